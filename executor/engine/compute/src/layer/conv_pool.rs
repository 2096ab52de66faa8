//! 3×3 convolution with padding 1, bias, ReLU and 2×2 max pooling, as one layer.
//!
//! The convolution is a matrix product on gathered patches (im2col), a few examples at a time, so
//! that patches and raw output stay in the second-level cache. Only the pooled output is kept for
//! the backward pass, which gathers the patches again. Keeping the patches would take 9 times the
//! input's memory and is slower, because they would be read from memory.
//!
//! Examples are assigned to threads in groups of a fixed size. The gradients of the groups are
//! added in order, so the bits do not depend on the number of threads.

use super::matrix::{Matrix, WriteMode, multiply, transpose};
use super::operands::{BackwardOperands, CpuKernel, ForwardOperands, SavedSize, ThreadScratch};
use super::parallel::{accumulate, waves};
use super::patches::{self, WINDOW};
use super::pool;
use std::ops::Range;

/// Examples per group.
const GROUP: usize = 16;
/// Approximate number of patch elements per matrix product: 256 KiB.
const TILE: usize = 1 << 16;

/// Shape of the layer and ranges of its parameters in the flat arena.
#[derive(Debug, Clone)]
pub(crate) struct ConvPool {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels_in: usize,
    pub(crate) channels_out: usize,
    /// 3 × 3 × in × out, row-major (HWIO).
    pub(crate) weight: Range<usize>,
    /// Directly after the weight.
    pub(crate) bias: Range<usize>,
}

/// A thread's scratch for this layer.
struct ConvPoolScratch<'a> {
    patches: &'a mut [f32],
    raw: &'a mut [f32],
    d_weight: &'a mut [f32],
    d_bias: &'a mut [f32],
    /// Transposed weight, computed once for all products of a group.
    turned: &'a mut [f32],
}

/// A group's part of each operand of the backward pass.
struct ConvPoolGroup<'a> {
    input: &'a [f32],
    winners: &'a [u8],
    d_output: &'a [f32],
    d_input: Option<&'a mut [f32]>,
}

impl CpuKernel for ConvPool {
    /// Index of the largest value of each pooling window.
    fn saved_size(&self) -> SavedSize {
        let bytes = self.output_len();
        SavedSize { numbers: 0, bytes }
    }

    fn scratch(&self) -> usize {
        self.areas().iter().sum()
    }

    fn parameters(&self) -> Range<usize> {
        self.weight.start..self.bias.end
    }

    fn forward(&self, pass: ForwardOperands<'_>) {
        let (input_len, output_len) = (GROUP * self.input_len(), GROUP * self.output_len());
        let (params, lanes) = (pass.params, pass.lanes);
        let outputs = pass
            .output
            .chunks_mut(output_len)
            .zip(pass.bytes.chunks_mut(output_len));
        let groups = pass.inputs.get(0).chunks(input_len).zip(outputs);
        waves(
            lanes,
            groups,
            |(input, (output, winners)), lane| {
                self.forward_group(params, input, output, winners, lane);
            },
            |_| {},
        );
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        let (input_len, output_len) = (GROUP * self.input_len(), GROUP * self.output_len());
        let (params, lanes, mut write) = (pass.params, pass.lanes, pass.write);
        let mut d_inputs = pass
            .d_inputs
            .get(0)
            .map(|d_input| d_input.chunks_mut(input_len));
        let outputs = pass
            .bytes
            .chunks(output_len)
            .zip(pass.d_output.chunks(output_len));
        let groups = pass.inputs.get(0).chunks(input_len).zip(outputs).map(
            |(input, (winners, d_output))| ConvPoolGroup {
                input,
                winners,
                d_output,
                d_input: d_inputs.as_mut().and_then(Iterator::next),
            },
        );
        let grads = pass.grads;
        waves(
            lanes,
            groups,
            |group, lane| self.backward_group(params, group, lane),
            |lane| {
                let lane = self.areas_of(lane);
                accumulate(&mut grads[self.weight.clone()], lane.d_weight, write);
                accumulate(&mut grads[self.bias.clone()], lane.d_bias, write);
                write = WriteMode::Add;
            },
        );
    }
}

impl ConvPool {
    /// Number of elements of the input per example.
    pub(crate) fn input_len(&self) -> usize {
        self.height * self.width * self.channels_in
    }

    /// Number of elements per example, after pooling.
    pub(crate) fn output_len(&self) -> usize {
        (self.height / 2) * (self.width / 2) * self.channels_out
    }

    fn positions(&self) -> usize {
        self.height * self.width
    }

    fn patch_len(&self) -> usize {
        WINDOW * WINDOW * self.channels_in
    }

    /// Number of examples per matrix product.
    fn tile(&self) -> usize {
        (TILE / (self.positions() * self.patch_len())).clamp(1, GROUP)
    }

    /// Lengths of the areas of a thread's scratch: patches, raw output, gradients of weight and
    /// bias, transposed weight.
    fn areas(&self) -> [usize; 5] {
        let positions = self.tile() * self.positions();
        [
            positions * self.patch_len(),
            positions * self.channels_out,
            self.weight.len(),
            self.channels_out,
            self.weight.len(),
        ]
    }

    fn areas_of<'a>(&self, lane: &'a mut ThreadScratch) -> ConvPoolScratch<'a> {
        let [patches, raw, d_weight, d_bias, turned] = lane.split(self.areas());
        ConvPoolScratch {
            patches,
            raw,
            d_weight,
            d_bias,
            turned,
        }
    }

    fn forward_group(
        &self,
        params: &[f32],
        input: &[f32],
        output: &mut [f32],
        winners: &mut [u8],
        lane: &mut ThreadScratch,
    ) {
        let lane = self.areas_of(lane);
        let (tile, output_len) = (self.tile(), self.output_len());
        let weight = Matrix::new(
            &params[self.weight.clone()],
            self.patch_len(),
            self.channels_out,
        );
        let bias = &params[self.bias.clone()];
        let raw_len = self.positions() * self.channels_out;
        let outputs = output
            .chunks_mut(tile * output_len)
            .zip(winners.chunks_mut(tile * output_len));
        for (input, (output, winners)) in input.chunks(tile * self.input_len()).zip(outputs) {
            let patches = self.gather(input, lane.patches);
            let examples = input.len() / self.input_len();
            let raw = &mut lane.raw[..examples * raw_len];
            multiply(raw, WriteMode::Overwrite, patches, weight, 1);
            let outputs = output
                .chunks_exact_mut(output_len)
                .zip(winners.chunks_exact_mut(output_len));
            for (raw, (output, winners)) in raw.chunks_exact(raw_len).zip(outputs) {
                pool::forward(raw, self.height, self.width, bias, output, winners);
            }
        }
    }

    /// Gathers the patches of all examples of `input`, one below the other.
    fn gather<'a>(&self, input: &[f32], patches: &'a mut [f32]) -> Matrix<'a> {
        let examples = input.len() / self.input_len();
        let len = self.positions() * self.patch_len();
        let patches = &mut patches[..examples * len];
        for (image, patches) in input
            .chunks_exact(self.input_len())
            .zip(patches.chunks_exact_mut(len))
        {
            patches::gather(image, self.height, self.width, self.channels_in, patches);
        }
        Matrix::new(patches, examples * self.positions(), self.patch_len())
    }

    fn backward_group(&self, params: &[f32], group: ConvPoolGroup<'_>, lane: &mut ThreadScratch) {
        let (input_len, output_len, raw_len) = (
            self.input_len(),
            self.output_len(),
            self.positions() * self.channels_out,
        );
        let (tile, lane) = (self.tile(), self.areas_of(lane));
        let (inner, outer) = (self.patch_len(), self.channels_out);
        if group.d_input.is_some() {
            let weight = &params[self.weight.clone()];
            transpose(weight, outer, inner, outer, lane.turned);
        }
        let turned = Matrix::new(lane.turned, outer, inner);
        let (d_weight, d_bias) = (lane.d_weight, lane.d_bias);
        d_bias.fill(0.0);
        let mut d_inputs = group
            .d_input
            .map(|d_input| d_input.chunks_mut(tile * input_len));
        let mut write = WriteMode::Overwrite;
        let outputs = group
            .winners
            .chunks(tile * output_len)
            .zip(group.d_output.chunks(tile * output_len));
        for (input, (winners, d_output)) in group.input.chunks(tile * input_len).zip(outputs) {
            let examples = input.len() / input_len;
            let d_raw = &mut lane.raw[..examples * raw_len];
            let outputs = winners
                .chunks_exact(output_len)
                .zip(d_output.chunks_exact(output_len));
            for (d_raw, (winners, d_output)) in d_raw.chunks_exact_mut(raw_len).zip(outputs) {
                pool::backward(d_output, winners, self.height, self.width, d_raw, d_bias);
            }
            let d_raw = Matrix::new(d_raw, examples * self.positions(), self.channels_out);
            let patches = self.gather(input, lane.patches);
            multiply(d_weight, write, patches.transposed(), d_raw, 1);
            write = WriteMode::Add;
            if let Some(d_input) = d_inputs.as_mut().and_then(Iterator::next) {
                let len = self.positions() * self.patch_len();
                let d_patches = &mut lane.patches[..examples * len];
                multiply(d_patches, WriteMode::Overwrite, d_raw, turned, 1);
                for (patches, image) in d_patches
                    .chunks_exact(len)
                    .zip(d_input.chunks_exact_mut(input_len))
                {
                    patches::scatter(patches, self.height, self.width, self.channels_in, image);
                }
            }
        }
    }
}
