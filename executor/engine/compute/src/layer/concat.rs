//! Concatenation of values along their last dimension, such as the channels of an image.

use super::operands::{BackwardOperands, CpuKernel, ForwardOperands};

/// Shape of the operation. All inputs have the same number of rows per example.
#[derive(Debug, Clone)]
pub(crate) struct Concat {
    /// Number of columns of each input.
    pub(crate) parts: Vec<usize>,
}

impl CpuKernel for Concat {
    fn forward(&self, pass: ForwardOperands<'_>) {
        let (all, mut first) = (self.columns(), 0);
        for (index, &part) in self.parts.iter().enumerate() {
            let rows = pass.output.chunks_exact_mut(all);
            for (row, part) in rows.zip(pass.inputs.get(index).chunks_exact(part)) {
                row[first..first + part.len()].copy_from_slice(part);
            }
            first += part;
        }
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        let (all, mut first) = (self.columns(), 0);
        for (index, &part) in self.parts.iter().enumerate() {
            if let Some(d_input) = pass.d_inputs.get(index) {
                let rows = pass.d_output.chunks_exact(all);
                for (row, part) in rows.zip(d_input.chunks_exact_mut(part)) {
                    part.copy_from_slice(&row[first..first + part.len()]);
                }
            }
            first += part;
        }
    }
}

impl Concat {
    fn columns(&self) -> usize {
        self.parts.iter().sum()
    }
}
