//! Batch and layer normalisation.

use super::DeviceKernel;
use super::pass::{Pass, areas_len, chunks, partial_len};
use crate::cuda::queue::{Address, int};
use crate::layer::batch_norm::BatchNorm;
use crate::layer::layer_norm::LayerNorm;

impl DeviceKernel for BatchNorm {
    /// Mean, 1 / deviation and variance of the batch.
    fn kept(&self, _examples: usize, _size: usize) -> usize {
        12 * self.channels
    }

    fn scratch(&self, _examples: usize, _size: usize) -> usize {
        areas_len(&self.rooms())
    }

    fn forward(&self, pass: &mut Pass<'_>) {
        let [means, spreads, statistics, _] = Pass::areas(pass.scratch, self.rooms());
        let (x, count, channels) = (pass.inputs[0], pass.input_len(0), self.channels);
        let rows = count / channels;
        let (number, per_chunk) = chunks(rows);
        let statistics = match pass.is_training {
            true => {
                let shape = [int(rows), int(channels), int(per_chunk)];
                let [a, b, c] = shape;
                let arguments = [x.into(), a, b, c, means.into(), spreads.into()];
                pass.tiles("column_moments", rows, channels, &arguments);
                let arguments = [
                    means.into(),
                    spreads.into(),
                    int(number),
                    c,
                    a,
                    b,
                    pass.kept.into(),
                ];
                pass.each("finish_moments", channels, &arguments);
                pass.kept
            }
            false => {
                let arguments = [
                    pass.parameter(self.mean.start).into(),
                    pass.parameter(self.variance.start).into(),
                    int(channels),
                    statistics.into(),
                ];
                pass.each("running_statistics", channels, &arguments);
                statistics
            }
        };
        let arguments = [
            x.into(),
            pass.output.into(),
            statistics.into(),
            pass.parameter(self.scale.start).into(),
            pass.parameter(self.shift.start).into(),
            int(count),
            int(channels),
            self.relu.into(),
        ];
        pass.each("batch_norm", count, &arguments);
    }

    fn backward(&self, pass: &mut Pass<'_>) {
        let [shifts, scales, d_shift, d_scale] = Pass::areas(pass.scratch, self.rooms());
        let (x, count, channels) = (pass.inputs[0], pass.input_len(0), self.channels);
        let rows = count / channels;
        let y = if self.relu { pass.output } else { 0 };
        let arguments = [
            x.into(),
            y.into(),
            pass.d_output.into(),
            pass.kept.into(),
            int(rows),
            int(channels),
            int(chunks(rows).1),
            shifts.into(),
            scales.into(),
        ];
        pass.tiles("batch_norm_sums", rows, channels, &arguments);
        let overwrite = crate::layer::matrix::Write::Overwrite;
        pass.finish_columns(shifts, rows, channels, d_shift, overwrite);
        pass.finish_columns(scales, rows, channels, d_scale, overwrite);
        if let Some(d_x) = pass.d_inputs[0] {
            let arguments = [
                x.into(),
                y.into(),
                pass.d_output.into(),
                d_x.into(),
                pass.kept.into(),
                pass.parameter(self.scale.start).into(),
                d_shift.into(),
                d_scale.into(),
                int(count),
                int(channels),
                (1.0 / rows as f32).into(),
            ];
            pass.each("d_batch_norm", count, &arguments);
        }
        self.gradients(pass, rows, d_shift, d_scale);
    }
}

impl BatchNorm {
    /// Two quantities per chunk, and two per channel; evaluation's statistics take the third.
    fn rooms(&self) -> [usize; 4] {
        let partial = partial_len(self.channels);
        [partial, partial, 12 * self.channels, 4 * self.channels]
    }

    fn gradients(&self, pass: &mut Pass<'_>, rows: usize, d_shift: Address, d_scale: Address) {
        let unbiased = rows as f32 / (rows.max(2) - 1) as f32;
        let arguments = [
            pass.kept.into(),
            d_shift.into(),
            d_scale.into(),
            pass.parameter(self.mean.start).into(),
            pass.parameter(self.variance.start).into(),
            int(self.channels),
            (pass.examples as f32).into(),
            unbiased.into(),
            pass.gradient(self.scale.start).into(),
            pass.gradient(self.shift.start).into(),
            pass.gradient(self.mean.start).into(),
            pass.gradient(self.variance.start).into(),
            (pass.write == crate::layer::matrix::Write::Add).into(),
        ];
        pass.each("batch_norm_grads", self.channels, &arguments);
    }
}

impl DeviceKernel for LayerNorm {
    /// Each row's mean and 1 / deviation.
    fn kept(&self, examples: usize, _size: usize) -> usize {
        examples * self.rows * 8
    }

    fn scratch(&self, _examples: usize, _size: usize) -> usize {
        areas_len(&self.rooms())
    }

    fn forward(&self, pass: &mut Pass<'_>) {
        let rows = pass.examples * self.rows;
        let arguments = [
            pass.inputs[0].into(),
            pass.output.into(),
            pass.parameter(self.scale.start).into(),
            pass.parameter(self.shift.start).into(),
            int(rows),
            int(self.width),
            pass.kept.into(),
        ];
        pass.warps("layer_norm", rows, &arguments);
    }

    fn backward(&self, pass: &mut Pass<'_>) {
        let [shifts, scales] = Pass::areas(pass.scratch, self.rooms());
        let rows = pass.examples * self.rows;
        let arguments = [
            pass.inputs[0].into(),
            pass.d_output.into(),
            pass.kept.into(),
            int(rows),
            int(self.width),
            int(chunks(rows).1),
            shifts.into(),
            scales.into(),
        ];
        pass.tiles("layer_norm_sums", rows, self.width, &arguments);
        let (write, shift, scale) = (
            pass.write,
            pass.gradient(self.shift.start),
            pass.gradient(self.scale.start),
        );
        pass.finish_columns(shifts, rows, self.width, shift, write);
        pass.finish_columns(scales, rows, self.width, scale, write);
        if let Some(d_x) = pass.d_inputs[0] {
            let arguments = [
                pass.inputs[0].into(),
                pass.d_output.into(),
                d_x.into(),
                pass.parameter(self.scale.start).into(),
                int(rows),
                int(self.width),
                pass.kept.into(),
            ];
            pass.warps("d_layer_norm", rows, &arguments);
        }
    }
}

impl LayerNorm {
    fn rooms(&self) -> [usize; 2] {
        [partial_len(self.width); 2]
    }
}
