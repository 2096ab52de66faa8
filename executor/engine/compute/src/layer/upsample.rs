//! Upsampling of an image by a whole factor, by repetition of each position.
//!
//! Chosen instead of a transposed convolution. Followed by a convolution it has the same expressive
//! power and leaves no checkerboard pattern from unevenly overlapping windows (Odena, Dumoulin and
//! Olah, 2016). Both back ends already have the convolution.

use super::operands::{BackwardOperands, CpuKernel, ForwardOperands};
use super::parallel::{each, examples_per_item};
use crate::simd::vectorised;

/// Replaces each position by factor × factor copies.
#[derive(Debug, Clone)]
pub(crate) struct Upsample {
    pub(crate) width: usize,
    pub(crate) channels: usize,
    pub(crate) factor: usize,
}

impl CpuKernel for Upsample {
    fn forward(&self, pass: ForwardOperands<'_>) {
        let (line, larger) = self.lines();
        let rows = examples_per_item(larger);
        let inputs = pass.inputs.get(0).chunks(rows * line);
        let outputs = pass.output.chunks_mut(rows * larger);
        each(pass.at.threads, inputs.zip(outputs), |(input, output)| {
            for (row, rows) in input
                .chunks_exact(line)
                .zip(output.chunks_exact_mut(larger))
            {
                let (first, others) = rows.split_at_mut(line * self.factor);
                let targets = first.chunks_exact_mut(self.channels * self.factor);
                for (pixel, targets) in row.chunks_exact(self.channels).zip(targets) {
                    for target in targets.chunks_exact_mut(self.channels) {
                        target.copy_from_slice(pixel);
                    }
                }
                for other in others.chunks_exact_mut(first.len()) {
                    other.copy_from_slice(first);
                }
            }
        });
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        let (line, larger) = self.lines();
        let rows = examples_per_item(larger);
        let Some(d_input) = pass.d_inputs.get(0) else {
            return;
        };
        let items = d_input
            .chunks_mut(rows * line)
            .zip(pass.d_output.chunks(rows * larger));
        each(pass.at.threads, items, |(d_input, d_output)| {
            let rows = d_input.chunks_exact_mut(line);
            for (row, rows) in rows.zip(d_output.chunks_exact(larger)) {
                sum(self.channels, self.factor, rows, row);
            }
        });
    }
}

impl Upsample {
    /// Number of elements in one row of input positions, and in the output rows that it becomes.
    fn lines(&self) -> (usize, usize) {
        let line = self.width * self.channels;
        (line, line * self.factor * self.factor)
    }
}

vectorised! {
    /// Overwrites `row` with the sum over the repetitions of each position in `rows`.
    fn sum(channels: usize, factor: usize, rows: &[f32], row: &mut [f32]) {
        row.fill(0.0);
        let line = row.len() * factor;
        for large in rows.chunks_exact(line) {
            let pixels = row.chunks_exact_mut(channels);
            for (pixel, parts) in pixels.zip(large.chunks_exact(channels * factor)) {
                for part in parts.chunks_exact(channels) {
                    for (sum, x) in pixel.iter_mut().zip(part) {
                        *sum += x;
                    }
                }
            }
        }
    }
}
