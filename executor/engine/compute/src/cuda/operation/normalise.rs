//! Batch and layer normalisation.

use super::DeviceKernel;
use super::pass::{DevicePass, areas_len, chunks, is_wide, partial_len, row_blocks};
use crate::cuda::queue::{DeviceAddress, THREADS, int};
use crate::layer::batch_norm::BatchNorm;
use crate::layer::layer_norm::LayerNorm;
use crate::layer::matrix::WriteMode;

impl DeviceKernel for BatchNorm {
    /// Mean, 1 / deviation and variance of the batch.
    fn saved_bytes(&self, _examples: usize, _size: usize) -> usize {
        12 * self.channels
    }

    fn scratch(&self, _examples: usize, _size: usize) -> usize {
        areas_len(&self.rooms())
    }

    fn forward(&self, pass: &mut DevicePass<'_>) {
        let [means, spreads, statistics, _] = DevicePass::areas(pass.scratch, self.rooms());
        let (x, channels) = (pass.inputs[0], self.channels);
        let shape = [pass.rows(channels), channels];
        let ([rows, columns], wide) = (shape.map(int), is_wide(channels, &[x, pass.output]));
        let statistics = if pass.is_training {
            let (number, per_chunk) = chunks(shape[0]);
            let (means, spreads, per_chunk) = (means.into(), spreads.into(), int(per_chunk));
            let arguments = [
                x.into(),
                rows,
                columns,
                per_chunk,
                means,
                spreads,
                wide.into(),
            ];
            pass.tiles("column_moments", shape, wide, &arguments);
            let arguments = [
                means,
                spreads,
                int(number),
                per_chunk,
                rows,
                columns,
                pass.saved.into(),
            ];
            let blocks = channels.div_ceil(8);
            pass.queue
                .launch("finish_moments", blocks, THREADS, &arguments);
            pass.saved
        } else {
            let arguments = [
                pass.parameter(self.mean.start).into(),
                pass.parameter(self.variance.start).into(),
                columns,
                statistics.into(),
            ];
            pass.each("running_statistics", channels, &arguments);
            statistics
        };
        let (blocks, per_block) = row_blocks(shape, wide);
        let arguments = [
            x.into(),
            pass.output.into(),
            statistics.into(),
            pass.parameter(self.scale.start).into(),
            pass.parameter(self.shift.start).into(),
            rows,
            columns,
            int(per_block),
            self.relu.into(),
            wide.into(),
        ];
        pass.queue.launch("batch_norm", blocks, THREADS, &arguments);
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let [partial, _, _, sums] = DevicePass::areas(pass.scratch, self.rooms());
        let (x, d, channels) = (pass.inputs[0], pass.d_output, self.channels);
        let shape = [pass.rows(channels), channels];
        let ([rows, columns], wide) = (shape.map(int), is_wide(channels, &[x, d]));
        let (scale, shift) = (
            pass.parameter(self.scale.start).into(),
            pass.parameter(self.shift.start).into(),
        );
        let arguments = [
            x.into(),
            d.into(),
            pass.saved.into(),
            scale,
            shift,
            rows,
            columns,
            int(chunks(shape[0]).1),
            self.relu.into(),
            partial.into(),
            wide.into(),
        ];
        pass.tiles("batch_norm_sums", shape, wide, &arguments);
        let [d_shift, d_scale] = [sums, sums + 4 * channels as u64];
        let (both, to) = ([channels; 2], [d_shift, d_scale]);
        pass.finish_two(partial, shape[0], both, to, WriteMode::Overwrite);
        if let Some(d_x) = pass.d_inputs[0] {
            let wide = wide && is_wide(channels, &[d_x]);
            let (blocks, per_block) = row_blocks(shape, wide);
            let arguments = [
                x.into(),
                d.into(),
                d_x.into(),
                pass.saved.into(),
                scale,
                shift,
                sums.into(),
                rows,
                columns,
                int(per_block),
                (1.0 / shape[0] as f32).into(),
                self.relu.into(),
                wide.into(),
            ];
            pass.queue
                .launch("d_batch_norm", blocks, THREADS, &arguments);
        }
        self.gradients(pass, shape[0], d_shift, d_scale);
    }
}

impl BatchNorm {
    /// Sizes of the areas: two quantities per chunk, which the backward pass stores in one area;
    /// statistics of evaluation; two sums per channel.
    fn rooms(&self) -> [usize; 4] {
        let partial = partial_len(self.channels);
        [partial, partial, 12 * self.channels, 8 * self.channels]
    }

    fn gradients(
        &self,
        pass: &mut DevicePass<'_>,
        rows: usize,
        d_shift: DeviceAddress,
        d_scale: DeviceAddress,
    ) {
        let unbiased = rows as f32 / (rows.max(2) - 1) as f32;
        let arguments = [
            pass.saved.into(),
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
            (pass.write == WriteMode::Add).into(),
        ];
        pass.each("batch_norm_grads", self.channels, &arguments);
    }
}

impl DeviceKernel for LayerNorm {
    /// Mean and 1 / deviation of each row.
    fn saved_bytes(&self, examples: usize, _size: usize) -> usize {
        examples * self.rows * 8
    }

    /// Two quantities per chunk.
    fn scratch(&self, _examples: usize, _size: usize) -> usize {
        partial_len(2 * self.width)
    }

    fn forward(&self, pass: &mut DevicePass<'_>) {
        let rows = pass.examples * self.rows;
        let wide = is_wide(self.width, &[pass.inputs[0], pass.output]);
        let arguments = [
            pass.inputs[0].into(),
            pass.output.into(),
            pass.parameter(self.scale.start).into(),
            pass.parameter(self.shift.start).into(),
            int(rows),
            int(self.width),
            pass.saved.into(),
            wide.into(),
        ];
        pass.warps("layer_norm", rows, &arguments);
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let (x, d, partial) = (pass.inputs[0], pass.d_output, pass.scratch);
        let shape = [pass.examples * self.rows, self.width];
        let (rows, wide) = (shape[0], is_wide(self.width, &[x, d]));
        let arguments = [
            x.into(),
            d.into(),
            pass.saved.into(),
            int(rows),
            int(self.width),
            int(chunks(rows).1),
            partial.into(),
            wide.into(),
        ];
        pass.tiles("layer_norm_sums", shape, wide, &arguments);
        let to = [&self.shift, &self.scale].map(|block| pass.gradient(block.start));
        pass.finish_two(partial, rows, [self.width; 2], to, pass.write);
        if let Some(d_x) = pass.d_inputs[0] {
            let wide = wide && is_wide(self.width, &[d_x]);
            let arguments = [
                x.into(),
                d.into(),
                d_x.into(),
                pass.parameter(self.scale.start).into(),
                int(rows),
                int(self.width),
                pass.saved.into(),
                wide.into(),
            ];
            pass.warps("d_layer_norm", rows, &arguments);
        }
    }
}
