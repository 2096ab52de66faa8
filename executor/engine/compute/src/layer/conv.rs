//! Convolution with any window, stride, padding and groups, with optional bias and ReLU.
//!
//! The convolution is a matrix product on gathered patches (im2col). Each product covers as many
//! rows of output positions as keep the patches in the second-level cache. Bias and ReLU are
//! applied while the product is still in the cache. For a 1×1 window with stride 1 and no padding
//! the input serves as patches. Depthwise convolutions have loops of their own
//! ([`super::depthwise`]), because a matrix product with one column would waste vector lanes. The
//! backward pass gathers patches again, because keeping them would take the kernel's area times the
//! input's memory.
//!
//! Examples are assigned to threads in groups whose size depends on shapes alone. The gradients of
//! the groups are added in order, so the bits do not depend on the number of threads.

use super::dense::{add_bias, add_bias_relu, add_rows, mask_by_relu};
use super::depthwise;
use super::matrix::{Matrix, WriteMode, multiply, multiply_columns};
use super::operands::{BackwardOperands, CpuKernel, ForwardOperands, ThreadScratch};
use super::parallel::{accumulate, waves};
use super::window::{self, ImageWindows, PatchChannels};
use std::ops::Range;

/// Approximate number of patch elements per matrix product: 256 KiB.
const TILE: usize = 1 << 16;
/// Minimum number of positions per matrix product. Below it, the product is dominated by packing
/// the weight.
const MIN_TILE: usize = 256;
/// Approximate number of positions per thread's group, and maximum number of examples. Adding up a
/// group's weight gradient must be cheap compared with computing it.
const BACKWARD_GROUP: (usize, usize) = (4096, 16);

/// Shape of the layer and ranges of its parameters in the flat arena.
#[derive(Debug, Clone)]
pub(crate) struct Conv2d {
    pub(crate) window: ImageWindows,
    pub(crate) channels_in: usize,
    pub(crate) channels_out: usize,
    /// Number of groups. Each has the same number of input and of output channels.
    pub(crate) groups: usize,
    pub(crate) relu: bool,
    /// Kernel height × kernel width × in / groups × out, row-major (HWIO).
    pub(crate) weight: Range<usize>,
    /// Directly after the weight; empty for a layer without bias.
    pub(crate) bias: Range<usize>,
}

/// A thread's part of each operand of the backward pass.
struct ConvBackwardChunk<'a> {
    input: &'a [f32],
    output: &'a [f32],
    d_output: &'a mut [f32],
    d_input: Option<&'a mut [f32]>,
}

impl CpuKernel for Conv2d {
    fn scratch(&self) -> usize {
        self.areas().iter().sum()
    }

    fn parameters(&self) -> Range<usize> {
        self.weight.start..self.bias.end
    }

    fn forward(&self, pass: ForwardOperands<'_>) {
        let examples = self.examples_per_turn();
        let params = pass.params;
        let outputs = pass.output.chunks_mut(examples * self.output_len());
        let inputs = pass.inputs.get(0).chunks(examples * self.input_len());
        waves(
            pass.lanes,
            inputs.zip(outputs),
            |(input, output), lane| {
                if self.is_depthwise() {
                    let weight = &params[self.weight.clone()];
                    let images = input.chunks_exact(self.input_len());
                    for (image, output) in images.zip(output.chunks_exact_mut(self.output_len())) {
                        depthwise::forward(&self.window, self.channels_in, weight, image, output);
                    }
                    self.finish(params, output);
                } else {
                    self.forward_turn(params, input, output, lane);
                }
            },
            |_| {},
        );
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        let examples = self.examples_per_turn();
        let (input_len, output_len) = (examples * self.input_len(), examples * self.output_len());
        let (params, mut write) = (pass.params, pass.write);
        let mut d_inputs = pass.d_inputs.get(0).map(|d| d.chunks_mut(input_len));
        let outputs = pass.output.chunks(output_len);
        let d_outputs = pass.d_output.chunks_mut(output_len);
        let inputs = pass.inputs.get(0).chunks(input_len);
        let turns = inputs
            .zip(outputs.zip(d_outputs))
            .map(|(input, (output, d_output))| ConvBackwardChunk {
                input,
                output,
                d_output,
                d_input: d_inputs.as_mut().and_then(Iterator::next),
            });
        let grads = pass.grads;
        waves(
            pass.lanes,
            turns,
            |turn, lane| self.backward_turn(params, turn, lane),
            |lane| {
                let [_, d_weight, d_bias] = lane.split(self.areas());
                accumulate(&mut grads[self.weight.clone()], d_weight, write);
                accumulate(&mut grads[self.bias.clone()], d_bias, write);
                write = WriteMode::Add;
            },
        );
    }
}

impl Conv2d {
    fn input_len(&self) -> usize {
        self.window.image[0] * self.window.image[1] * self.channels_in
    }

    fn output_len(&self) -> usize {
        self.window.output()[0] * self.row_len()
    }

    /// Number of elements per row of output positions.
    fn row_len(&self) -> usize {
        self.window.output()[1] * self.channels_out
    }

    pub(crate) fn is_depthwise(&self) -> bool {
        self.groups > 1 && self.groups == self.channels_in && self.groups == self.channels_out
    }

    /// Whether the input serves as the matrix of patches.
    fn is_direct(&self) -> bool {
        self.window.is_pointwise() && self.groups == 1
    }

    /// Number of elements per patch of one group's channels.
    fn patch_len(&self) -> usize {
        self.window.taps() * (self.channels_in / self.groups)
    }

    fn examples_per_turn(&self) -> usize {
        let [height, width] = self.window.output();
        (BACKWARD_GROUP.0 / (height * width)).clamp(1, BACKWARD_GROUP.1)
    }

    /// Number of rows of output positions per matrix product.
    fn tile(&self) -> usize {
        let [height, width] = self.window.output();
        let positions = (TILE / self.patch_len()).max(MIN_TILE);
        (positions / width).clamp(1, self.examples_per_turn() * height)
    }

    /// Lengths of the areas of a thread's scratch: patches, gradients of weight and bias.
    fn areas(&self) -> [usize; 3] {
        let positions = self.tile() * self.window.output()[1];
        let patches = if self.is_direct() || self.is_depthwise() {
            0
        } else {
            positions * self.patch_len()
        };
        [patches, self.weight.len(), self.bias.len()]
    }

    /// Applies bias and ReLU.
    fn finish(&self, params: &[f32], output: &mut [f32]) {
        match (&params[self.bias.clone()], self.relu) {
            ([], false) => {}
            ([], true) => super::activate::relu(output),
            (bias, false) => add_bias(output, bias),
            (bias, true) => add_bias_relu(output, bias),
        }
    }

    fn channels(&self, group: usize) -> PatchChannels {
        let count = self.channels_in / self.groups;
        PatchChannels {
            all: self.channels_in,
            first: group * count,
            count,
        }
    }

    /// Returns the patches of the output rows `rows`, counted over all images.
    fn patches<'a>(
        &self,
        images: &'a [f32],
        rows: Range<usize>,
        group: usize,
        scratch: &'a mut [f32],
    ) -> Matrix<'a> {
        let [height, width] = self.window.output();
        let positions = rows.len() * width;
        if self.is_direct() {
            let input = &images[rows.start * width * self.channels_in..];
            return Matrix::new(
                &input[..positions * self.channels_in],
                positions,
                self.channels_in,
            );
        }
        let patches = &mut scratch[..positions * self.patch_len()];
        let channels = self.channels(group);
        for (row, patches) in rows.zip(patches.chunks_exact_mut(width * self.patch_len())) {
            let image = &images[row / height * self.input_len()..][..self.input_len()];
            window::gather(&self.window, image, row % height, channels, patches);
        }
        Matrix::new(patches, positions, self.patch_len())
    }

    /// Returns the columns of the weight, or of its gradient, that produce a group's output.
    fn weight_of<'a>(&self, weight: &'a [f32], group: usize) -> Matrix<'a> {
        let columns = self.channels_out / self.groups;
        Matrix::columns(weight, self.channels_out, group * columns, columns)
    }

    fn forward_turn(
        &self,
        params: &[f32],
        images: &[f32],
        output: &mut [f32],
        lane: &mut ThreadScratch,
    ) {
        let [scratch, ..] = lane.split(self.areas());
        let weight = &params[self.weight.clone()];
        let (tile, mut first) = (self.tile(), 0);
        for output in output.chunks_mut(tile * self.row_len()) {
            let rows = first..first + output.len() / self.row_len();
            first = rows.end;
            for group in 0..self.groups {
                let patches = self.patches(images, rows.clone(), group, scratch);
                let column = group * (self.channels_out / self.groups);
                multiply_columns(
                    output,
                    [self.channels_out, column],
                    WriteMode::Overwrite,
                    patches,
                    self.weight_of(weight, group),
                    1,
                );
            }
            self.finish(params, output);
        }
    }

    fn backward_turn(
        &self,
        params: &[f32],
        mut turn: ConvBackwardChunk<'_>,
        lane: &mut ThreadScratch,
    ) {
        let [scratch, d_weight, d_bias] = lane.split(self.areas());
        let weight = &params[self.weight.clone()];
        d_bias.fill(0.0);
        if self.is_depthwise() {
            self.prepare(turn.d_output, turn.output, d_bias);
            depthwise::backward_all(
                &self.window,
                [self.channels_in, self.input_len(), self.output_len()],
                weight,
                (turn.input, turn.d_output),
                d_weight,
                turn.d_input,
            );
            return;
        }
        if let Some(d_input) = turn.d_input.as_deref_mut().filter(|_| !self.is_direct()) {
            d_input.fill(0.0);
        }
        let (tile, mut first, mut write) = (self.tile(), 0, WriteMode::Overwrite);
        let d_outputs = turn.d_output.chunks_mut(tile * self.row_len());
        let outputs = turn.output.chunks(tile * self.row_len());
        for (d_output, output) in d_outputs.zip(outputs) {
            self.prepare(d_output, output, d_bias);
            let rows = first..first + output.len() / self.row_len();
            first = rows.end;
            for group in 0..self.groups {
                let columns = self.channels_out / self.groups;
                let at = [self.channels_out, group * columns];
                let patches = self.patches(turn.input, rows.clone(), group, scratch);
                let d_raw = Matrix::columns(d_output, at[0], at[1], columns);
                multiply_columns(d_weight, at, write, patches.transposed(), d_raw, 1);
                if let Some(d_input) = &mut turn.d_input {
                    let weight = self.weight_of(weight, group).transposed();
                    self.backward_input(d_raw, weight, rows.clone(), group, scratch, d_input);
                }
            }
            write = WriteMode::Add;
        }
    }

    /// Backward pass of ReLU and bias.
    fn prepare(&self, d_output: &mut [f32], output: &[f32], d_bias: &mut [f32]) {
        if self.relu {
            mask_by_relu(d_output, output);
        }
        if !d_bias.is_empty() {
            add_rows(d_bias, d_output);
        }
    }

    /// Adds to `d_images`, or overwrites its part where the input serves as patches.
    fn backward_input(
        &self,
        d_raw: Matrix<'_>,
        weight: Matrix<'_>,
        rows: Range<usize>,
        group: usize,
        scratch: &mut [f32],
        d_images: &mut [f32],
    ) {
        let [height, width] = self.window.output();
        let positions = rows.len() * width;
        if self.is_direct() {
            let d_input = &mut d_images[rows.start * width * self.channels_in..];
            let d_input = &mut d_input[..positions * self.channels_in];
            return multiply(d_input, WriteMode::Overwrite, d_raw, weight, 1);
        }
        let patches = &mut scratch[..positions * self.patch_len()];
        multiply(patches, WriteMode::Overwrite, d_raw, weight, 1);
        let channels = self.channels(group);
        for (row, patches) in rows.zip(patches.chunks_exact(width * self.patch_len())) {
            let image = &mut d_images[row / height * self.input_len()..][..self.input_len()];
            window::scatter(&self.window, patches, row % height, channels, image);
        }
    }
}
