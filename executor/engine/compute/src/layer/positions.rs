//! Adds a learned row to each position of a sequence.

use super::matrix::WriteMode;
use super::operands::{BackwardOperands, CpuKernel, ForwardOperands};
use crate::simd::vectorised;
use std::ops::Range;

/// One positions × features table for all examples.
#[derive(Debug, Clone)]
pub(crate) struct PositionTable {
    pub(crate) table: Range<usize>,
}

impl CpuKernel for PositionTable {
    fn parameters(&self) -> Range<usize> {
        self.table.clone()
    }

    fn forward(&self, pass: ForwardOperands<'_>) {
        let len = self.table.len();
        let outputs = pass.output.chunks_exact_mut(len);
        for (x, y) in pass.inputs.get(0).chunks_exact(len).zip(outputs) {
            sum(x, &pass.params[self.table.clone()], y);
        }
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        let d_table = &mut pass.grads[self.table.clone()];
        if pass.write == WriteMode::Overwrite {
            d_table.fill(0.0);
        }
        super::dense::add_rows(d_table, pass.d_output);
        if let Some(d_input) = pass.d_inputs.get(0) {
            d_input.copy_from_slice(pass.d_output);
        }
    }
}

vectorised! {
    fn sum(a: &[f32], b: &[f32], out: &mut [f32]) {
        for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
            *out = a + b;
        }
    }
}
