//! Embedding: one row of a table for each token.

use super::math::add;
use super::matrix::WriteMode;
use super::operands::{BackwardOperands, CpuKernel, ForwardOperands};
use super::parallel::each;
use std::ops::Range;

/// Number of parts of the vocabulary that threads work on. The bits of the table's gradient do not
/// depend on it.
const PARTS: usize = 16;

/// Shape of the table. Tokens are whole numbers below `vocabulary`, stored as `f32`.
#[derive(Debug, Clone)]
pub(crate) struct Embedding {
    pub(crate) vocabulary: usize,
    pub(crate) width: usize,
    /// vocabulary × width, row-major.
    pub(crate) table: Range<usize>,
}

impl CpuKernel for Embedding {
    fn parameters(&self) -> Range<usize> {
        self.table.clone()
    }

    /// # Panics
    /// If a token is not in the vocabulary; data sets are checked when they are read.
    fn forward(&self, pass: ForwardOperands<'_>) {
        let table = &pass.params[self.table.clone()];
        let rows = pass.output.chunks_exact_mut(self.width);
        for (token, row) in pass.inputs.get(0).iter().zip(rows) {
            row.copy_from_slice(&table[self.token(*token) * self.width..][..self.width]);
        }
    }

    /// Each part of the vocabulary scans all tokens, so that a row's gradients are added in the
    /// order of the tokens.
    fn backward(&self, pass: BackwardOperands<'_>) {
        let (tokens, d_output) = (pass.inputs.get(0), &*pass.d_output);
        let parts = if pass.at.threads == 1 { 1 } else { PARTS };
        let size = self.vocabulary.div_ceil(parts);
        let d_table = pass.grads[self.table.clone()].chunks_mut(size * self.width);
        each(pass.at.threads, d_table.enumerate(), |(part, d_table)| {
            if pass.write == WriteMode::Overwrite {
                d_table.fill(0.0);
            }
            for (token, d_row) in tokens.iter().zip(d_output.chunks_exact(self.width)) {
                let place = (*token as usize).wrapping_sub(part * size);
                if let Some(sum) = d_table.get_mut(place.saturating_mul(self.width)..)
                    && !sum.is_empty()
                {
                    add(&mut sum[..self.width], d_row);
                }
            }
        });
    }
}

impl Embedding {
    fn token(&self, token: f32) -> usize {
        let place = token as usize;
        assert!(
            place < self.vocabulary && place as f32 == token,
            "token {token} of a vocabulary of {}",
            self.vocabulary
        );
        place
    }
}
