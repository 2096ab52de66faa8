//! Fully connected layer with optional ReLU: `y = relu(x · W + b)`.

use super::matrix::{Matrix, Write, multiply};
use super::simd::vectorised;
use std::ops::Range;

/// Shape of the layer and place of its parameters in the flat arena.
#[derive(Debug, Clone)]
pub(crate) struct Dense {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) relu: bool,
    /// inputs × outputs, row-major.
    pub(crate) weight: Range<usize>,
    pub(crate) bias: Range<usize>,
}

impl Dense {
    /// `input` is batch × inputs, `output` batch × outputs.
    pub(crate) fn forward(
        &self,
        params: &[f32],
        input: &[f32],
        output: &mut [f32],
        threads: usize,
    ) {
        let batch = input.len() / self.inputs;
        let weight = Matrix::new(&params[self.weight.clone()], self.inputs, self.outputs);
        multiply(
            output,
            Write::Overwrite,
            Matrix::new(input, batch, self.inputs),
            weight,
            threads,
        );
        let bias = &params[self.bias.clone()];
        if self.relu {
            add_bias_relu(output, bias);
        } else {
            add_bias(output, bias);
        }
    }

    /// From `d_output`, the gradient with respect to `output`, writes or adds the parameters' gradients and writes the gradient with
    /// respect to `input` when that is wanted. `d_output` is masked by the ReLU in place.
    #[expect(
        clippy::too_many_arguments,
        reason = "a pass has that many operands; a struct around them would be built for one call"
    )]
    pub(crate) fn backward(
        &self,
        params: &[f32],
        input: &[f32],
        output: &[f32],
        d_output: &mut [f32],
        d_input: Option<&mut [f32]>,
        grads: &mut [f32],
        write: Write,
        threads: usize,
    ) {
        let batch = input.len() / self.inputs;
        if self.relu {
            mask_by_relu(d_output, output);
        }
        let d_output = &*d_output;
        let d_bias = &mut grads[self.bias.clone()];
        if write == Write::Overwrite {
            d_bias.fill(0.0);
        }
        add_rows(d_bias, d_output);
        let d_output = Matrix::new(d_output, batch, self.outputs);
        let input = Matrix::new(input, batch, self.inputs);
        multiply(
            &mut grads[self.weight.clone()],
            write,
            input.transposed(),
            d_output,
            threads,
        );
        if let Some(d_input) = d_input {
            let weight = Matrix::new(&params[self.weight.clone()], self.inputs, self.outputs);
            multiply(
                d_input,
                Write::Overwrite,
                d_output,
                weight.transposed(),
                threads,
            );
        }
    }
}

vectorised! {
    fn add_bias(rows: &mut [f32], bias: &[f32]) {
        for row in rows.chunks_exact_mut(bias.len()) {
            for (value, bias) in row.iter_mut().zip(bias) {
                *value += bias;
            }
        }
    }

    /// `max` as a comparison lets a NaN pass, so that a diverged network shows in the loss; `f32::max` would hide it.
    fn add_bias_relu(rows: &mut [f32], bias: &[f32]) {
        for row in rows.chunks_exact_mut(bias.len()) {
            for (value, bias) in row.iter_mut().zip(bias) {
                let sum = *value + bias;
                *value = if sum < 0.0 { 0.0 } else { sum };
            }
        }
    }

    fn mask_by_relu(d_output: &mut [f32], output: &[f32]) {
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
