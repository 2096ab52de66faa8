//! Layer normalisation (Ba, Kiros and Hinton, 2016): scales each row to mean 0 and variance 1, then
//! applies a learned scale and shift.

use super::math::{sum_of, sum_of_two};
use super::matrix::WriteMode;
use super::operands::{BackwardOperands, CpuKernel, ForwardOperands, SavedSize};
use super::parallel::{accumulate, each, examples_per_item, waves};
use crate::simd::vectorised;
use std::ops::Range;

/// Added to the variance, as in PyTorch.
const EPSILON: f32 = 1e-5;

/// Normalisation over the last dimension.
#[derive(Debug, Clone)]
pub(crate) struct LayerNorm {
    /// Rows per example.
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) scale: Range<usize>,
    /// Directly after the scale.
    pub(crate) shift: Range<usize>,
}

impl CpuKernel for LayerNorm {
    /// Mean and 1 / standard deviation of each row.
    fn saved_size(&self) -> SavedSize {
        let numbers = 2 * self.rows;
        SavedSize { numbers, bytes: 0 }
    }

    /// Gradients of scale and shift.
    fn scratch(&self) -> usize {
        2 * self.width
    }

    fn parameters(&self) -> Range<usize> {
        self.scale.start..self.shift.end
    }

    fn forward(&self, pass: ForwardOperands<'_>) {
        let [item, saved] = self.item();
        let (scale, shift) = self.of(pass.params);
        let inputs = pass.inputs.get(0).chunks(item);
        let outputs = pass
            .output
            .chunks_mut(item)
            .zip(pass.numbers.chunks_mut(saved));
        each(pass.at.threads, inputs.zip(outputs), |(x, (y, saved))| {
            normalise(x, scale, shift, y, saved);
        });
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        let [item, saved] = self.item();
        let (scale, _) = self.of(pass.params);
        let mut d_inputs = pass.d_inputs.get(0).map(|d_input| d_input.chunks_mut(item));
        let inputs = pass
            .inputs
            .get(0)
            .chunks(item)
            .zip(pass.numbers.chunks(saved));
        let items = inputs.zip(pass.d_output.chunks(item)).map(|(input, d_y)| {
            let d_x = d_inputs.as_mut().and_then(Iterator::next);
            (input, d_y, d_x.unwrap_or_default())
        });
        let mut write = pass.write;
        let areas = [self.width, self.width];
        waves(
            pass.lanes,
            items,
            |((x, saved), d_y, d_x), lane| {
                let [d_scale, d_shift] = lane.split(areas);
                d_scale.fill(0.0);
                d_shift.fill(0.0);
                differentiate(x, saved, scale, d_y, d_scale, d_shift);
                if !d_x.is_empty() {
                    pass_back(x, saved, scale, d_y, d_x);
                }
            },
            |lane| {
                let [d_scale, d_shift] = lane.split(areas);
                accumulate(&mut pass.grads[self.scale.clone()], d_scale, write);
                accumulate(&mut pass.grads[self.shift.clone()], d_shift, write);
                write = WriteMode::Add;
            },
        );
    }
}

impl LayerNorm {
    /// Number of elements of an item of work, and number of its kept values.
    fn item(&self) -> [usize; 2] {
        let examples = examples_per_item(self.rows * self.width);
        [examples * self.rows * self.width, examples * 2 * self.rows]
    }

    fn of<'a>(&self, params: &'a [f32]) -> (&'a [f32], &'a [f32]) {
        (&params[self.scale.clone()], &params[self.shift.clone()])
    }
}

vectorised! {
    fn normalise(x: &[f32], scale: &[f32], shift: &[f32], y: &mut [f32], saved: &mut [f32]) {
        let width = scale.len();
        let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
        for ((x, y), saved) in rows.zip(saved.chunks_exact_mut(2)) {
            let mean = sum_of(x, |x| x) / width as f32;
            let variance = sum_of(x, |x| (x - mean) * (x - mean)) / width as f32;
            let inverse = 1.0 / (variance + EPSILON).sqrt();
            for (y, (x, (scale, shift))) in y.iter_mut().zip(x.iter().zip(scale.iter().zip(shift))) {
                *y = (x - mean) * inverse * scale + shift;
            }
            saved.copy_from_slice(&[mean, inverse]);
        }
    }

    /// Adds to the gradients of scale and shift.
    fn differentiate(
        x: &[f32],
        saved: &[f32],
        scale: &[f32],
        d_y: &[f32],
        d_scale: &mut [f32],
        d_shift: &mut [f32],
    ) {
        let width = scale.len();
        let rows = x.chunks_exact(width).zip(d_y.chunks_exact(width));
        for ((x, d_y), saved) in rows.zip(saved.chunks_exact(2)) {
            let (mean, inverse) = (saved[0], saved[1]);
            let sums = d_scale.iter_mut().zip(d_shift.iter_mut());
            for ((d_scale, d_shift), (x, d_y)) in sums.zip(x.iter().zip(d_y)) {
                *d_scale += d_y * ((x - mean) * inverse);
                *d_shift += d_y;
            }
        }
    }

    fn pass_back(x: &[f32], saved: &[f32], scale: &[f32], d_y: &[f32], d_x: &mut [f32]) {
        let width = scale.len();
        let rows = x.chunks_exact(width).zip(d_y.chunks_exact(width));
        let rows = rows.zip(d_x.chunks_exact_mut(width)).zip(saved.chunks_exact(2));
        for (((x, d_y), d_x), saved) in rows {
            let (mean, inverse) = (saved[0], saved[1]);
            for (d_x, (d_y, scale)) in d_x.iter_mut().zip(d_y.iter().zip(scale)) {
                *d_x = d_y * scale;
            }
            let along = sum_of(d_x, |d| d) / width as f32;
            let across = sum_of_two(d_x, x, |d, x| d * ((x - mean) * inverse)) / width as f32;
            for (d_x, x) in d_x.iter_mut().zip(x) {
                *d_x = inverse * (*d_x - along - (x - mean) * inverse * across);
            }
        }
    }
}
