//! Residual connection (He et al., 2016): the sum of two values of one shape, with optional ReLU.

use super::dense::mask_by_relu;
use super::operands::{BackwardOperands, CpuKernel, ForwardOperands};
use super::parallel::{each, examples_per_item};
use crate::simd::vectorised;

/// Sum of two inputs of the same shape.
#[derive(Debug, Clone)]
pub(crate) struct Residual {
    /// Elements per example.
    pub(crate) numbers: usize,
    pub(crate) relu: bool,
}

impl CpuKernel for Residual {
    fn forward(&self, pass: ForwardOperands<'_>) {
        let item = examples_per_item(self.numbers) * self.numbers;
        let inputs = pass.inputs.get(0).chunks(item);
        let inputs = inputs.zip(pass.inputs.get(1).chunks(item));
        each(
            pass.at.threads,
            inputs.zip(pass.output.chunks_mut(item)),
            |((a, b), sum)| {
                if self.relu {
                    add_relu(a, b, sum)
                } else {
                    add(a, b, sum)
                }
            },
        );
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        if self.relu {
            let item = examples_per_item(self.numbers) * self.numbers;
            let items = pass.d_output.chunks_mut(item).zip(pass.output.chunks(item));
            each(pass.at.threads, items, |(d, y)| mask_by_relu(d, y));
        }
        for index in 0..2 {
            if let Some(d_input) = pass.d_inputs.get(index) {
                d_input.copy_from_slice(pass.d_output);
            }
        }
    }
}

vectorised! {
    fn add(a: &[f32], b: &[f32], sum: &mut [f32]) {
        for (sum, (a, b)) in sum.iter_mut().zip(a.iter().zip(b)) {
            *sum = a + b;
        }
    }

    fn add_relu(a: &[f32], b: &[f32], out: &mut [f32]) {
        for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
            let sum = a + b;
            *out = if sum < 0.0 { 0.0 } else { sum };
        }
    }
}
