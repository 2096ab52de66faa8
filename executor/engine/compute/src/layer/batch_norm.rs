//! Batch normalisation (Ioffe and Szegedy, 2015) over examples and positions, per channel, with
//! optional ReLU.
//!
//! The definition is PyTorch's. A training pass normalises by the mean and the biased variance of
//! the examples of this worker. Running statistics move by a tenth towards the batch's, with the
//! unbiased variance. Evaluation normalises by the running statistics.
//!
//! The running statistics are stored among the parameters, so that they are exchanged, averaged
//! over workers and written to checkpoints as parameters are. Gradients are sums over examples, and
//! every update rule subtracts a statistic's gradient times 1 / global batch. The gradient of a
//! statistic is therefore examples × 0.1 × (current value − value of the batch).
//!
//! A pass reads its value from memory twice. Sums are computed over fixed chunks of rows while the
//! chunk is in the second-level cache. Chunks are combined in order (Chan, Golub and LeVeque,
//! 1979). The variance suffers no cancellation, and the bits do not depend on the number of
//! threads.

use super::matrix::WriteMode;
use super::operands::{
    BackwardOperands, CpuKernel, ForwardOperands, PassMode, SavedSize, ThreadScratch,
};
use super::parallel::{accumulate, each, waves};
use crate::simd::vectorised;
use std::ops::Range;

/// Weight of the batch's statistics in the update of the running ones.
const MOMENTUM: f32 = 0.1;
/// Added to variances before the square root.
const EPSILON: f32 = 1e-5;
/// Approximate number of elements per chunk: 256 KiB.
const CHUNK: usize = 1 << 16;

/// Shape of the layer and ranges of its parameters in the flat arena. Each block has one number per
/// channel, and the blocks are adjacent.
#[derive(Debug, Clone)]
pub(crate) struct BatchNorm {
    pub(crate) channels: usize,
    pub(crate) relu: bool,
    pub(crate) scale: Range<usize>,
    pub(crate) shift: Range<usize>,
    pub(crate) mean: Range<usize>,
    pub(crate) variance: Range<usize>,
}

/// Statistics of a batch in a training pass, one number per channel each.
struct BatchStatistics<'a> {
    mean: &'a mut [f32],
    /// Sum of squared deviations from the mean; later the reciprocal of the standard deviation.
    spread: &'a mut [f32],
    variance: &'a mut [f32],
    /// Sum of the gradient with respect to the output.
    d_shift: &'a mut [f32],
    /// Sum of the product of that gradient and the normalised input.
    d_scale: &'a mut [f32],
}

impl CpuKernel for BatchNorm {
    /// [`BatchStatistics`]. They are kept per example, and only those of the first example are
    /// used.
    fn saved_size(&self) -> SavedSize {
        let numbers = 5 * self.channels;
        SavedSize { numbers, bytes: 0 }
    }

    fn scratch(&self) -> usize {
        2 * self.channels
    }

    fn parameters(&self) -> Range<usize> {
        self.scale.start..self.variance.end
    }

    fn forward(&self, pass: ForwardOperands<'_>) {
        let (input, chunk) = (pass.inputs.get(0), self.chunk());
        let (scale, shift) = (
            &pass.params[self.scale.clone()],
            &pass.params[self.shift.clone()],
        );
        let evaluated;
        let (mean, inverse): (&[f32], &[f32]) = match pass.at.mode {
            PassMode::Train { .. } => {
                let of_batch = self.statistics(pass.numbers);
                self.measure(input, pass.lanes, of_batch);
                let of_batch = self.statistics(pass.numbers);
                (of_batch.mean, of_batch.spread)
            }
            PassMode::Evaluate => {
                let [inverse] = pass.lanes[0].split([self.channels]);
                inverse.copy_from_slice(&pass.params[self.variance.clone()]);
                invert(inverse);
                evaluated = inverse;
                (&pass.params[self.mean.clone()], evaluated)
            }
        };
        let items = input.chunks(chunk).zip(pass.output.chunks_mut(chunk));
        each(pass.at.threads, items, |(x, y)| {
            if self.relu {
                normalise_relu(x, y, mean, inverse, scale, shift)
            } else {
                normalise(x, y, mean, inverse, scale, shift)
            }
        });
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        let (input, chunk, relu) = (pass.inputs.get(0), self.chunk(), self.relu);
        let rows = input.len() / self.channels;
        let of_batch = self.statistics(pass.numbers);
        let (mean, inverse) = (&*of_batch.mean, &*of_batch.spread);
        let (d_scale, d_shift) = (of_batch.d_scale, of_batch.d_shift);
        d_scale.fill(0.0);
        d_shift.fill(0.0);
        let gradients = pass
            .d_output
            .chunks_mut(chunk)
            .zip(pass.output.chunks(chunk));
        waves(
            pass.lanes,
            input.chunks(chunk).zip(gradients),
            |(x, (d_y, y)), lane| {
                let [scales, shifts] = lane.split([self.channels; 2]);
                scales.fill(0.0);
                shifts.fill(0.0);
                if relu {
                    super::dense::mask_by_relu(d_y, y);
                }
                sums(x, d_y, mean, inverse, scales, shifts);
            },
            |lane| {
                let [scales, shifts] = lane.split([self.channels; 2]);
                super::math::add(d_scale, scales);
                super::math::add(d_shift, shifts);
            },
        );
        if let Some(d_input) = pass.d_inputs.get(0) {
            let scale = &pass.params[self.scale.clone()];
            let factors = [mean, inverse, scale, d_scale, d_shift];
            let items = d_input.chunks_mut(chunk).zip(input.chunks(chunk));
            let items = items.zip(pass.d_output.chunks(chunk));
            each(pass.at.threads, items, |((d_x, x), d_y)| {
                back(x, d_y, d_x, factors, 1.0 / rows as f32);
            });
        }
        let examples = pass.at.examples as f32;
        let (params, grads, write) = (pass.params, pass.grads, pass.write);
        accumulate(&mut grads[self.scale.clone()], d_scale, write);
        accumulate(&mut grads[self.shift.clone()], d_shift, write);
        let unbiased = rows as f32 / (rows.max(2) - 1) as f32;
        for (block, of_batch, factor) in [
            (&self.mean, mean, 1.0),
            (&self.variance, &*of_batch.variance, unbiased),
        ] {
            let grads = grads[block.clone()].iter_mut();
            let present = params[block.clone()].iter().zip(of_batch);
            for (grad, (present, of_batch)) in grads.zip(present) {
                let change = examples * MOMENTUM * (present - factor * of_batch);
                match write {
                    WriteMode::Overwrite => *grad = change,
                    WriteMode::Add => *grad += change,
                }
            }
        }
    }
}

impl BatchNorm {
    /// Number of elements per chunk, a multiple of the row length.
    fn chunk(&self) -> usize {
        (CHUNK / self.channels).max(1) * self.channels
    }

    fn statistics<'a>(&self, saved: &'a mut [f32]) -> BatchStatistics<'a> {
        let (mean, rest) = saved.split_at_mut(self.channels);
        let (spread, rest) = rest.split_at_mut(self.channels);
        let (variance, rest) = rest.split_at_mut(self.channels);
        let (d_shift, rest) = rest.split_at_mut(self.channels);
        BatchStatistics {
            mean,
            spread,
            variance,
            d_shift,
            d_scale: &mut rest[..self.channels],
        }
    }

    /// Writes the mean, the biased variance and the reciprocal standard deviation of the batch.
    fn measure(&self, input: &[f32], lanes: &mut [ThreadScratch], of_batch: BatchStatistics<'_>) {
        let BatchStatistics {
            mean,
            spread,
            variance,
            ..
        } = of_batch;
        mean.fill(0.0);
        spread.fill(0.0);
        let chunk = self.chunk();
        let mut left = input.len();
        let mut rows = 0.0;
        waves(
            lanes,
            input.chunks(chunk),
            |x, lane| {
                let [mean, spread] = lane.split([self.channels; 2]);
                moments(x, mean, spread);
            },
            |lane| {
                let [chunk_mean, chunk_spread] = lane.split([self.channels; 2]);
                let more = (left.min(chunk) / self.channels) as f32;
                left -= left.min(chunk);
                combine(mean, spread, rows, chunk_mean, chunk_spread, more);
                rows += more;
            },
        );
        for (variance, spread) in variance.iter_mut().zip(&*spread) {
            *variance = spread / rows;
        }
        spread.copy_from_slice(variance);
        invert(spread);
    }
}

/// Replaces variances by reciprocals of standard deviations. A running variance may be slightly
/// below 0: under ASP a stale worker subtracts its share from a value that other workers have since
/// made much smaller.
fn invert(variances: &mut [f32]) {
    for variance in variances {
        *variance = 1.0 / (variance.max(0.0) + EPSILON).sqrt();
    }
}

/// Combines the mean and the sum of squared deviations of a chunk with those of the rows before it.
fn combine(
    mean: &mut [f32],
    spread: &mut [f32],
    rows: f32,
    chunk_mean: &[f32],
    chunk_spread: &[f32],
    more: f32,
) {
    let share = more / (rows + more);
    let parts = chunk_mean.iter().zip(chunk_spread);
    for ((mean, spread), (chunk_mean, chunk_spread)) in mean.iter_mut().zip(spread).zip(parts) {
        let delta = chunk_mean - *mean;
        *mean += delta * share;
        *spread += chunk_spread + delta * delta * (rows * share);
    }
}

vectorised! {
    /// Mean of each column and sum of squared deviations from it.
    fn moments(x: &[f32], mean: &mut [f32], spread: &mut [f32]) {
        let channels = mean.len();
        mean.fill(0.0);
        spread.fill(0.0);
        for row in x.chunks_exact(channels) {
            for (sum, x) in mean.iter_mut().zip(row) {
                *sum += x;
            }
        }
        let rows = (x.len() / channels) as f32;
        for mean in mean.iter_mut() {
            *mean /= rows;
        }
        for row in x.chunks_exact(channels) {
            for ((sum, mean), x) in spread.iter_mut().zip(mean.iter()).zip(row) {
                let delta = x - mean;
                *sum += delta * delta;
            }
        }
    }

    fn normalise(x: &[f32], y: &mut [f32], mean: &[f32], inverse: &[f32], scale: &[f32], shift: &[f32]) {
        let channels = mean.len();
        for (y, x) in y.chunks_exact_mut(channels).zip(x.chunks_exact(channels)) {
            let (inverse, scale, shift) = (&inverse[..channels], &scale[..channels], &shift[..channels]);
            for c in 0..channels {
                y[c] = (x[c] - mean[c]) * (inverse[c] * scale[c]) + shift[c];
            }
        }
    }

    fn normalise_relu(x: &[f32], y: &mut [f32], mean: &[f32], inverse: &[f32], scale: &[f32], shift: &[f32]) {
        let channels = mean.len();
        for (y, x) in y.chunks_exact_mut(channels).zip(x.chunks_exact(channels)) {
            let (inverse, scale, shift) = (&inverse[..channels], &scale[..channels], &shift[..channels]);
            for c in 0..channels {
                let value = (x[c] - mean[c]) * (inverse[c] * scale[c]) + shift[c];
                y[c] = if value < 0.0 { 0.0 } else { value };
            }
        }
    }

    /// Adds the column sums of d and of d times the normalised input.
    fn sums(x: &[f32], d_y: &[f32], mean: &[f32], inverse: &[f32], scales: &mut [f32], shifts: &mut [f32]) {
        let channels = mean.len();
        for (d_y, x) in d_y.chunks_exact(channels).zip(x.chunks_exact(channels)) {
            let (scales, shifts) = (&mut scales[..channels], &mut shifts[..channels]);
            for c in 0..channels {
                scales[c] += d_y[c] * (x[c] - mean[c]);
                shifts[c] += d_y[c];
            }
        }
        for (scale, inverse) in scales.iter_mut().zip(inverse) {
            *scale *= inverse;
        }
    }

    /// d_x = scale / deviation · (d_y − mean of d_y − normalised x · mean of (d_y · normalised x)).
    fn back(x: &[f32], d_y: &[f32], d_x: &mut [f32], factors: [&[f32]; 5], share: f32) {
        let channels = factors[0].len();
        let [mean, inverse, scale, d_scale, d_shift] = factors.map(|factor| &factor[..channels]);
        let rows = x.chunks_exact(channels).zip(d_y.chunks_exact(channels));
        for (d_x, (x, d_y)) in d_x.chunks_exact_mut(channels).zip(rows) {
            for c in 0..channels {
                let normalised = (x[c] - mean[c]) * inverse[c];
                let centred = d_y[c] - share * (d_shift[c] + normalised * d_scale[c]);
                d_x[c] = scale[c] * inverse[c] * centred;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_variance_counts_as_zero() {
        let mut variances = [-0.3, 0.0, 4.0];
        invert(&mut variances);
        assert_eq!(variances[0], variances[1]);
        assert!(variances[0].is_finite());
        assert!((variances[2] - 0.5).abs() < 1e-5);
    }
}
