//! Convolutions. The queue computes them if it supports them; otherwise they are matrix products on
//! patches, in chunks of examples whose patches fit a bounded area. Depthwise convolutions have
//! kernels of their own, as on the CPU.

use super::DeviceKernel;
use super::pass::{DevicePass, areas_len, chunks, partial_len};
use crate::cuda::convolution::{ComputedOperand, ConvolutionCall, ConvolutionShape};
use crate::cuda::product::{ElementType, MatrixOperand, MatrixProduct};
use crate::cuda::queue::{DeviceAddress, DeviceQueue, THREADS, add_bias, int};
use crate::layer::ConvPool;
use crate::layer::conv::Conv2d;
use crate::layer::matrix::WriteMode;
use crate::layer::window::ImageWindows;

/// Approximate size of the patches of a chunk in bytes: large enough to fill a large GPU with one
/// product.
const PATCHES: usize = 256 << 20;

/// Convolution without bias and ReLU.
struct PlainConvolution {
    filters: ConvolutionShape,
    weight: usize,
}

/// Operands of the products of one group in one chunk of examples.
struct GroupOperands {
    positions: usize,
    patches: MatrixOperand,
    column: usize,
}

impl PlainConvolution {
    fn positions(&self) -> usize {
        let [height, width] = self.filters.window.output();
        height * width
    }

    /// Whether the input serves as the matrix of patches.
    fn is_direct(&self) -> bool {
        self.filters.window.is_pointwise() && self.filters.groups == 1
    }

    fn input_len(&self) -> usize {
        let [height, width] = self.filters.window.image;
        height * width * self.filters.channels_in
    }

    /// Whether the queue supports the convolution.
    fn is_queues(
        &self,
        queue: &mut dyn DeviceQueue,
        computed: ComputedOperand,
        examples: usize,
    ) -> bool {
        !self.is_direct() && queue.can_convolve(&self.filters, computed, examples)
    }

    /// Size in bytes of the area that passes need: for patches, or for the weight in the queue's
    /// order.
    fn room_len(&self, queue: &mut dyn DeviceQueue, examples: usize) -> usize {
        let size = self.filters.kind.size();
        let lens = ComputedOperand::ALL.map(|computed| {
            if self.is_queues(queue, computed, examples) {
                self.filters.weight_len() * size
            } else {
                self.patches_len(examples, size)
            }
        });
        lens.into_iter().max().unwrap_or(0)
    }

    /// Number of examples whose patches are gathered at a time.
    fn chunk(&self, examples: usize, size: usize) -> usize {
        let one = self.positions() * self.filters.patch_len() * size;
        if self.is_direct() {
            examples
        } else {
            (PATCHES / one).clamp(1, examples.max(1))
        }
    }

    fn patches_len(&self, examples: usize, size: usize) -> usize {
        if self.is_direct() {
            0
        } else {
            self.chunk(examples, size) * self.positions() * self.filters.patch_len() * size
        }
    }

    /// Chunks as first example and number of examples.
    fn chunks(&self, pass: &DevicePass<'_>) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (examples, chunk) = (pass.examples, self.chunk(pass.examples, pass.kind.size()));
        (0..examples)
            .step_by(chunk.max(1))
            .map(move |first| (first, chunk.min(examples - first)))
    }

    /// Gathers the patches of a group's channels, of `count` examples from `first` on.
    fn gather(
        &self,
        pass: &mut DevicePass<'_>,
        (first, count): (usize, usize),
        group: usize,
        room: DeviceAddress,
    ) -> GroupOperands {
        let positions = count * self.positions();
        let column = group * self.filters.group_out();
        let x = pass.inputs[0] + pass.bytes(first * self.input_len());
        if self.is_direct() {
            let patches = pass.values(x, self.filters.channels_in);
            return GroupOperands {
                positions,
                patches,
                column,
            };
        }
        let at_once = 16 / pass.kind.size();
        let is_wide = self.filters.group_in().is_multiple_of(at_once);
        let (kernel, unit) = if is_wide {
            ("gather_wide", at_once)
        } else {
            ("gather", 1)
        };
        let channels = self.filters.group_in() / unit;
        let total = positions * self.filters.patch_len() / unit;
        let arguments = [
            x.into(),
            room.into(),
            (&self.filters.window).into(),
            int(self.filters.channels_in / unit),
            int(group * channels),
            int(channels),
            int(total),
        ];
        pass.each(kernel, total, &arguments);
        let patches = pass.values(room, self.filters.patch_len());
        GroupOperands {
            positions,
            patches,
            column,
        }
    }

    /// Returns the columns of the weight that produce a group's output.
    fn weight(&self, pass: &DevicePass<'_>, column: usize) -> MatrixOperand {
        let at = pass.weight(self.weight) + pass.bytes(column);
        pass.values(at, self.filters.channels_out)
    }

    /// Writes `output`; `bias` is 0 for a convolution without bias.
    fn forward(
        &self,
        pass: &mut DevicePass<'_>,
        room: DeviceAddress,
        output: DeviceAddress,
        (bias, relu): (DeviceAddress, bool),
    ) {
        if self.is_queues(pass.queue, ComputedOperand::Output, pass.examples) {
            self.weight_by_output(pass, room);
            let image = pass.inputs[0];
            self.convolve(pass, ComputedOperand::Output, [image, room, output]);
            if bias != 0 || relu {
                let channels = self.filters.channels_out;
                let shape = [pass.examples * self.positions(), channels];
                add_bias(pass.queue, (output, channels), shape, (bias, relu));
            }
            return;
        }
        for chunk in self.chunks(pass) {
            for group in 0..self.filters.groups {
                let part = self.gather(pass, chunk, group, room);
                let out = self.output_of(pass, chunk.0, part.column, output);
                let shape = [
                    part.positions,
                    self.filters.group_out(),
                    self.filters.patch_len(),
                ];
                let weight = self.weight(pass, part.column);
                let product = MatrixProduct::new(shape, part.patches, weight, out);
                let bias = match bias {
                    0 => 0,
                    bias => bias + pass.bytes(part.column),
                };
                pass.queue.multiply(&MatrixProduct {
                    bias,
                    relu,
                    ..product
                });
            }
        }
    }

    /// Backward pass from the gradient with respect to the output.
    fn backward(&self, pass: &mut DevicePass<'_>, room: DeviceAddress, d_output: DeviceAddress) {
        self.weight_gradient(pass, room, d_output);
        if let Some(d_input) = pass.d_inputs[0] {
            self.input_gradient(pass, room, d_output, d_input);
        }
    }

    fn weight_gradient(
        &self,
        pass: &mut DevicePass<'_>,
        room: DeviceAddress,
        d_output: DeviceAddress,
    ) {
        let mut write = pass.write;
        if self.is_queues(pass.queue, ComputedOperand::Weight, pass.examples) {
            let image = pass.inputs[0];
            self.convolve(pass, ComputedOperand::Weight, [image, room, d_output]);
            let [rows, columns] = [self.filters.patch_len(), self.filters.channels_out];
            let arguments = [
                room.into(),
                pass.gradient(self.weight).into(),
                int(rows),
                int(columns),
                (write == WriteMode::Add).into(),
            ];
            let blocks = rows.div_ceil(32) * columns.div_ceil(32);
            let queue = &mut pass.queue;
            return queue.launch("d_weight_by_output", blocks, THREADS, &arguments);
        }
        for chunk in self.chunks(pass) {
            for group in 0..self.filters.groups {
                let part = self.gather(pass, chunk, group, room);
                let d = self.output_of(pass, chunk.0, part.column, d_output);
                let d_weight = pass.gradient(self.weight) + 4 * part.column as u64;
                let shape = [
                    self.filters.patch_len(),
                    self.filters.group_out(),
                    part.positions,
                ];
                let out = (d_weight, self.filters.channels_out);
                pass.multiply_gradient(shape, part.patches.transposed(), d, out, write);
            }
            write = WriteMode::Add;
        }
    }

    fn input_gradient(
        &self,
        pass: &mut DevicePass<'_>,
        room: DeviceAddress,
        d_output: DeviceAddress,
        d_input: DeviceAddress,
    ) {
        if self.is_queues(pass.queue, ComputedOperand::Image, pass.examples) {
            self.weight_by_output(pass, room);
            return self.convolve(pass, ComputedOperand::Image, [d_input, room, d_output]);
        }
        for chunk in self.chunks(pass) {
            for group in 0..self.filters.groups {
                let column = group * self.filters.group_out();
                let d = self.output_of(pass, chunk.0, column, d_output);
                let d_input = d_input + pass.bytes(chunk.0 * self.input_len());
                self.pass_back(pass, chunk.1, group, (d, column), (room, d_input));
            }
        }
    }

    /// Returns a group's columns of a value in the output's layout, from an example on.
    fn output_of(
        &self,
        pass: &DevicePass<'_>,
        first: usize,
        column: usize,
        output: DeviceAddress,
    ) -> MatrixOperand {
        let channels = self.filters.channels_out;
        let at = first * self.positions() * channels + column;
        pass.values(output + pass.bytes(at), channels)
    }

    /// Requests the convolution of all examples from the queue.
    fn convolve(
        &self,
        pass: &mut DevicePass<'_>,
        computed: ComputedOperand,
        [image, weight, output]: [DeviceAddress; 3],
    ) {
        pass.queue.convolve(&ConvolutionCall {
            filters: self.filters,
            examples: pass.examples,
            computed,
            image,
            weight,
            output,
        });
    }

    /// Writes the weight to `room` in the queue's order.
    fn weight_by_output(&self, pass: &mut DevicePass<'_>, room: DeviceAddress) {
        let [rows, columns] = [self.filters.patch_len(), self.filters.channels_out];
        let weight = pass.weight(self.weight);
        let arguments = [weight.into(), room.into(), int(rows), int(columns)];
        let blocks = rows.div_ceil(32) * columns.div_ceil(32);
        pass.queue
            .launch("weight_by_output", blocks, THREADS, &arguments);
    }

    /// Computes the gradient with respect to a group's channels of `count` examples.
    fn pass_back(
        &self,
        pass: &mut DevicePass<'_>,
        count: usize,
        group: usize,
        (d, column): (MatrixOperand, usize),
        (room, d_input): (DeviceAddress, DeviceAddress),
    ) {
        let weight = self.weight(pass, column).transposed();
        let shape = [
            count * self.positions(),
            self.filters.patch_len(),
            self.filters.group_out(),
        ];
        let target = if self.is_direct() { d_input } else { room };
        let out = pass.values(target, self.filters.patch_len());
        pass.queue
            .multiply(&MatrixProduct::new(shape, d, weight, out));
        if self.is_direct() {
            return;
        }
        let [height, width] = self.filters.window.image;
        let total = count * height * width * self.filters.group_in();
        let arguments = [
            room.into(),
            d_input.into(),
            (&self.filters.window).into(),
            int(self.filters.channels_in),
            int(group * self.filters.group_in()),
            int(self.filters.group_in()),
            int(total),
        ];
        pass.each("scatter", total, &arguments);
    }
}

impl DeviceKernel for Conv2d {
    fn scratch_on(&self, queue: &mut dyn DeviceQueue, examples: usize, kind: ElementType) -> usize {
        areas_len(&self.rooms(queue, examples, kind))
    }

    fn forward(&self, pass: &mut DevicePass<'_>) {
        if self.is_depthwise() {
            return self.forward_depthwise(pass);
        }
        let areas = self.rooms(pass.queue, pass.examples, pass.kind);
        let [room, _] = DevicePass::areas(pass.scratch, areas);
        let bias = if self.bias.is_empty() {
            0
        } else {
            pass.weight(self.bias.start)
        };
        self.shape(pass.kind)
            .forward(pass, room, pass.output, (bias, self.relu));
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let [height, width] = self.window.output();
        let rows = pass.examples * height * width;
        let areas = self.rooms(pass.queue, pass.examples, pass.kind);
        let [room, partial] = DevicePass::areas(pass.scratch, areas);
        if self.relu {
            pass.mask(rows * self.channels_out);
        }
        if !self.bias.is_empty() {
            let (sum, write) = (pass.gradient(self.bias.start), pass.write);
            let (d, shape) = (pass.d_output, [rows, self.channels_out]);
            pass.sum_columns(d, self.channels_out, shape, partial, sum, write);
        }
        if self.is_depthwise() {
            self.backward_depthwise(pass, partial)
        } else {
            self.shape(pass.kind).backward(pass, room, pass.d_output)
        }
    }
}

impl Conv2d {
    fn shape(&self, kind: ElementType) -> PlainConvolution {
        PlainConvolution {
            filters: ConvolutionShape {
                window: self.window,
                channels_in: self.channels_in,
                channels_out: self.channels_out,
                groups: self.groups,
                kind,
            },
            weight: self.weight.start,
        }
    }

    /// Sizes of the areas: for the convolution, and for partial sums of the bias's gradient or of a
    /// depthwise weight's.
    fn rooms(&self, queue: &mut dyn DeviceQueue, examples: usize, kind: ElementType) -> [usize; 2] {
        if self.is_depthwise() {
            [0, partial_len(self.weight.len().max(self.bias.len()))]
        } else {
            [
                self.shape(kind).room_len(queue, examples),
                partial_len(self.bias.len()),
            ]
        }
    }

    fn forward_depthwise(&self, pass: &mut DevicePass<'_>) {
        let [height, width] = self.window.output();
        let total = pass.examples * height * width * self.channels_out;
        let bias = if self.bias.is_empty() {
            0
        } else {
            pass.parameter(self.bias.start)
        };
        let arguments = [
            pass.inputs[0].into(),
            pass.weight(self.weight.start).into(),
            bias.into(),
            pass.output.into(),
            (&self.window).into(),
            int(self.channels_in),
            int(total),
            self.relu.into(),
        ];
        pass.each("depthwise", total, &arguments);
    }

    fn backward_depthwise(&self, pass: &mut DevicePass<'_>, partial: DeviceAddress) {
        let rows = pass.examples * self.window.output()[0];
        let (number, per_chunk) = chunks(rows);
        let total = number * self.weight.len();
        let arguments = [
            pass.inputs[0].into(),
            pass.d_output.into(),
            (&self.window).into(),
            int(self.channels_in),
            int(rows),
            int(per_chunk),
            partial.into(),
            int(total),
        ];
        pass.each("d_depthwise_weight", total, &arguments);
        let (sum, write) = (pass.gradient(self.weight.start), pass.write);
        pass.finish_columns(partial, rows, self.weight.len(), sum, write);
        if let Some(d_input) = pass.d_inputs[0] {
            let total = pass.input_len(0);
            let arguments = [
                pass.d_output.into(),
                pass.weight(self.weight.start).into(),
                d_input.into(),
                (&self.window).into(),
                int(self.channels_in),
                int(total),
            ];
            pass.each("d_depthwise_input", total, &arguments);
        }
    }
}

impl DeviceKernel for ConvPool {
    /// Index of the largest value of each window.
    fn saved_bytes(&self, examples: usize, _size: usize) -> usize {
        examples * self.output_len()
    }

    fn scratch_on(&self, queue: &mut dyn DeviceQueue, examples: usize, kind: ElementType) -> usize {
        areas_len(&self.rooms(queue, examples, kind))
    }

    fn forward(&self, pass: &mut DevicePass<'_>) {
        let areas = self.rooms(pass.queue, pass.examples, pass.kind);
        let [room, raw, _] = DevicePass::areas(pass.scratch, areas);
        self.shape(pass.kind).forward(pass, room, raw, (0, false));
        let total = pass.examples * self.output_len();
        let arguments = [
            raw.into(),
            pass.parameter(self.bias.start).into(),
            pass.output.into(),
            pass.saved.into(),
            int(self.height),
            int(self.width),
            int(self.channels_out),
            int(total),
        ];
        pass.each("relu_pool", total, &arguments);
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let areas = self.rooms(pass.queue, pass.examples, pass.kind);
        let [room, raw, partial] = DevicePass::areas(pass.scratch, areas);
        let rows = pass.examples * self.height * self.width;
        let total = rows * self.channels_out;
        let arguments = [
            pass.d_output.into(),
            pass.saved.into(),
            raw.into(),
            int(self.height),
            int(self.width),
            int(self.channels_out),
            int(total),
        ];
        pass.each("d_relu_pool", total, &arguments);
        let (sum, write) = (pass.gradient(self.bias.start), pass.write);
        let shape = [rows, self.channels_out];
        pass.sum_columns(raw, self.channels_out, shape, partial, sum, write);
        self.shape(pass.kind).backward(pass, room, raw);
    }
}

impl ConvPool {
    fn shape(&self, kind: ElementType) -> PlainConvolution {
        let window = ImageWindows {
            image: [self.height, self.width],
            kernel: [3, 3],
            stride: [1, 1],
            padding: [1, 1],
        };
        PlainConvolution {
            filters: ConvolutionShape {
                window,
                channels_in: self.channels_in,
                channels_out: self.channels_out,
                groups: 1,
                kind,
            },
            weight: self.weight.start,
        }
    }

    /// Sizes of the areas: for the convolution, its raw output or the gradient of it, and partial
    /// sums of the bias's gradient.
    fn rooms(&self, queue: &mut dyn DeviceQueue, examples: usize, kind: ElementType) -> [usize; 3] {
        let raw = examples * self.height * self.width * self.channels_out * kind.size();
        [
            self.shape(kind).room_len(queue, examples),
            raw,
            partial_len(self.channels_out),
        ]
    }
}
