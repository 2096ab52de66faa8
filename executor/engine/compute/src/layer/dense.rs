//! Fully connected layer with optional bias and ReLU, `y = relu(x · W + b)`, applied to each row of
//! an example.

use super::activate::relu;
use super::matrix::{Matrix, WriteMode, multiply};
use super::operands::{BackwardOperands, CpuKernel, ForwardOperands};
use crate::simd::vectorised;
use std::ops::Range;

/// Shape of the layer and ranges of its parameters in the flat arena. An example may have several
/// rows, such as the positions of a sequence.
#[derive(Debug, Clone)]
pub(crate) struct Dense {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) relu: bool,
    /// inputs × outputs, row-major; for a tied layer outputs × inputs.
    pub(crate) weight: Range<usize>,
    /// Directly after the weight, unless the weight is tied; empty for a layer without bias.
    pub(crate) bias: Range<usize>,
    /// Whether the weight is the transposed table of another operation (Press and Wolf, 2017).
    pub(crate) tied: bool,
}

impl CpuKernel for Dense {
    fn parameters(&self) -> Range<usize> {
        if self.tied {
            self.bias.clone()
        } else {
            self.weight.start..self.bias.end
        }
    }

    fn shared(&self) -> Range<usize> {
        if self.tied { self.weight.clone() } else { 0..0 }
    }

    fn forward(&self, pass: ForwardOperands<'_>) {
        let input = pass.inputs.get(0);
        let input = Matrix::new(input, input.len() / self.inputs, self.inputs);
        let (weight, threads) = (self.matrix(pass.params), pass.at.threads);
        multiply(pass.output, WriteMode::Overwrite, input, weight, threads);
        let bias = &pass.params[self.bias.clone()];
        match (self.relu, bias.is_empty()) {
            (true, false) => add_bias_relu(pass.output, bias),
            (true, true) => relu(pass.output),
            (false, false) => add_bias(pass.output, bias),
            (false, true) => {}
        }
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        if self.relu {
            mask_by_relu(pass.d_output, pass.output);
        }
        let (d_output, threads) = (&*pass.d_output, pass.at.threads);
        if !self.bias.is_empty() {
            let d_bias = &mut pass.grads[self.bias.clone()];
            if pass.write == WriteMode::Overwrite {
                d_bias.fill(0.0);
            }
            add_rows(d_bias, d_output);
        }
        let input = pass.inputs.get(0);
        let rows = input.len() / self.inputs;
        let d_output = Matrix::new(d_output, rows, self.outputs);
        let input = Matrix::new(input, rows, self.inputs);
        let d_weight = &mut pass.grads[self.weight.clone()];
        if self.tied {
            multiply(
                d_weight,
                pass.write_shared,
                d_output.transposed(),
                input,
                threads,
            )
        } else {
            multiply(d_weight, pass.write, input.transposed(), d_output, threads)
        }
        if let Some(d_input) = pass.d_inputs.get(0) {
            let weight = self.matrix(pass.params).transposed();
            multiply(d_input, WriteMode::Overwrite, d_output, weight, threads);
        }
    }
}

impl Dense {
    /// Returns the weight as inputs × outputs.
    fn matrix<'a>(&self, params: &'a [f32]) -> Matrix<'a> {
        let weight = &params[self.weight.clone()];
        if self.tied {
            Matrix::new(weight, self.outputs, self.inputs).transposed()
        } else {
            Matrix::new(weight, self.inputs, self.outputs)
        }
    }
}

vectorised! {
    pub(crate) fn add_bias(rows: &mut [f32], bias: &[f32]) {
        for row in rows.chunks_exact_mut(bias.len()) {
            for (value, bias) in row.iter_mut().zip(bias) {
                *value += bias;
            }
        }
    }

    /// The comparison propagates a NaN, so that divergence shows in the loss; `f32::max` would hide
    /// it.
    pub(crate) fn add_bias_relu(rows: &mut [f32], bias: &[f32]) {
        for row in rows.chunks_exact_mut(bias.len()) {
            for (value, bias) in row.iter_mut().zip(bias) {
                let sum = *value + bias;
                *value = if sum < 0.0 { 0.0 } else { sum };
            }
        }
    }

    pub(crate) fn mask_by_relu(d_output: &mut [f32], output: &[f32]) {
        for (d, y) in d_output.iter_mut().zip(output) {
            *d = if *y > 0.0 { *d } else { 0.0 };
        }
    }

    /// `sum += row` for each row, first to last.
    pub(crate) fn add_rows(sum: &mut [f32], rows: &[f32]) {
        for row in rows.chunks_exact(sum.len()) {
            for (sum, value) in sum.iter_mut().zip(row) {
                *sum += value;
            }
        }
    }
}
