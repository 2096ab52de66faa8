//! Convolutions as matrix products on patches, so many examples at a time that the patches fit a bounded room; one channel per group has
//! kernels of its own, as on the CPU.

use super::DeviceKernel;
use super::pass::{Pass, areas_len, chunks, partial_len};
use crate::cuda::product::{Operand, Product};
use crate::cuda::queue::{Address, int};
use crate::layer::ConvPool;
use crate::layer::conv::Conv;
use crate::layer::matrix::Write;
use crate::layer::window::Window;

/// Bytes of patches at a time, about: large enough to fill a large GPU with one product.
const PATCHES: usize = 256 << 20;

/// A convolution without what comes after the product.
struct Shape {
    window: Window,
    channels_in: usize,
    channels_out: usize,
    groups: usize,
    weight: usize,
}

/// What the products of one group in one chunk of examples work on.
struct Part {
    positions: usize,
    patches: Operand,
    column: usize,
}

impl Shape {
    fn positions(&self) -> usize {
        let [height, width] = self.window.output();
        height * width
    }

    /// The input is its own patches.
    fn is_direct(&self) -> bool {
        self.window.is_pointwise() && self.groups == 1
    }

    fn group_in(&self) -> usize {
        self.channels_in / self.groups
    }

    fn group_out(&self) -> usize {
        self.channels_out / self.groups
    }

    fn patch_len(&self) -> usize {
        self.window.taps() * self.group_in()
    }

    fn input_len(&self) -> usize {
        self.window.image[0] * self.window.image[1] * self.channels_in
    }

    /// Examples whose patches are made at a time.
    fn chunk(&self, examples: usize, size: usize) -> usize {
        let one = self.positions() * self.patch_len() * size;
        match self.is_direct() {
            true => examples,
            false => (PATCHES / one).clamp(1, examples.max(1)),
        }
    }

    fn patches_len(&self, examples: usize, size: usize) -> usize {
        match self.is_direct() {
            true => 0,
            false => self.chunk(examples, size) * self.positions() * self.patch_len() * size,
        }
    }

    /// Chunks as first example and number of them.
    fn chunks(&self, pass: &Pass<'_>) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (examples, chunk) = (pass.examples, self.chunk(pass.examples, pass.kind.size()));
        (0..examples)
            .step_by(chunk.max(1))
            .map(move |first| (first, chunk.min(examples - first)))
    }

    /// Patches of a group's channels of `count` examples from `first` on.
    fn gather(
        &self,
        pass: &mut Pass<'_>,
        (first, count): (usize, usize),
        group: usize,
        room: Address,
    ) -> Part {
        let positions = count * self.positions();
        let column = group * self.group_out();
        let x = pass.inputs[0] + pass.bytes(first * self.input_len());
        if self.is_direct() {
            let patches = pass.values(x, self.channels_in);
            return Part {
                positions,
                patches,
                column,
            };
        }
        let at_once = 16 / pass.kind.size();
        let is_wide = self.group_in().is_multiple_of(at_once);
        let (kernel, unit) = match is_wide {
            true => ("gather_wide", at_once),
            false => ("gather", 1),
        };
        let channels = self.group_in() / unit;
        let total = positions * self.patch_len() / unit;
        let arguments = [
            x.into(),
            room.into(),
            (&self.window).into(),
            int(self.channels_in / unit),
            int(group * channels),
            int(channels),
            int(total),
        ];
        pass.each(kernel, total, &arguments);
        let patches = pass.values(room, self.patch_len());
        Part {
            positions,
            patches,
            column,
        }
    }

    /// The columns of the weight that make a group's output.
    fn weight(&self, pass: &Pass<'_>, column: usize) -> Operand {
        let at = pass.weight(self.weight) + pass.bytes(column);
        pass.values(at, self.channels_out)
    }

    /// To `output`; `bias` is 0 without one.
    fn forward(
        &self,
        pass: &mut Pass<'_>,
        room: Address,
        output: Address,
        (bias, relu): (Address, bool),
    ) {
        for chunk in self.chunks(pass) {
            for group in 0..self.groups {
                let part = self.gather(pass, chunk, group, room);
                let at = chunk.0 * self.positions() * self.channels_out + part.column;
                let out = pass.values(output + pass.bytes(at), self.channels_out);
                let shape = [part.positions, self.group_out(), self.patch_len()];
                let weight = self.weight(pass, part.column);
                let product = Product::new(shape, part.patches, weight, out);
                let bias = match bias {
                    0 => 0,
                    bias => bias + pass.bytes(part.column),
                };
                pass.queue.multiply(&Product {
                    bias,
                    relu,
                    ..product
                });
            }
        }
    }

    /// From the gradient with respect to the product's output.
    fn backward(&self, pass: &mut Pass<'_>, room: Address, d_output: Address) {
        let mut write = pass.write;
        for chunk in self.chunks(pass) {
            for group in 0..self.groups {
                let part = self.gather(pass, chunk, group, room);
                let at = chunk.0 * self.positions() * self.channels_out + part.column;
                let d = pass.values(d_output + pass.bytes(at), self.channels_out);
                let d_weight = pass.gradient(self.weight) + 4 * part.column as u64;
                let shape = [self.patch_len(), self.group_out(), part.positions];
                let out = (d_weight, self.channels_out);
                pass.multiply_gradient(shape, part.patches.transposed(), d, out, write);
                if let Some(d_input) = pass.d_inputs[0] {
                    let d_input = d_input + pass.bytes(chunk.0 * self.input_len());
                    self.pass_back(pass, chunk.1, group, (d, part.column), (room, d_input));
                }
            }
            write = Write::Add;
        }
    }

    /// The gradient with respect to a group's channels of `count` examples.
    fn pass_back(
        &self,
        pass: &mut Pass<'_>,
        count: usize,
        group: usize,
        (d, column): (Operand, usize),
        (room, d_input): (Address, Address),
    ) {
        let weight = self.weight(pass, column).transposed();
        let shape = [count * self.positions(), self.patch_len(), self.group_out()];
        let target = if self.is_direct() { d_input } else { room };
        let out = pass.values(target, self.patch_len());
        pass.queue.multiply(&Product::new(shape, d, weight, out));
        if self.is_direct() {
            return;
        }
        let [height, width] = self.window.image;
        let total = count * height * width * self.group_in();
        let arguments = [
            room.into(),
            d_input.into(),
            (&self.window).into(),
            int(self.channels_in),
            int(group * self.group_in()),
            int(self.group_in()),
            int(total),
        ];
        pass.each("scatter", total, &arguments);
    }
}

impl DeviceKernel for Conv {
    /// Patches, and partial sums of the bias's gradient or of a depthwise weight's.
    fn scratch(&self, examples: usize, size: usize) -> usize {
        areas_len(&self.rooms(examples, size))
    }

    fn forward(&self, pass: &mut Pass<'_>) {
        if self.is_depthwise() {
            return self.forward_depthwise(pass);
        }
        let [room, _] = Pass::areas(pass.scratch, self.rooms(pass.examples, pass.kind.size()));
        let bias = match self.bias.is_empty() {
            true => 0,
            false => pass.weight(self.bias.start),
        };
        self.shape()
            .forward(pass, room, pass.output, (bias, self.relu));
    }

    fn backward(&self, pass: &mut Pass<'_>) {
        let [height, width] = self.window.output();
        let rows = pass.examples * height * width;
        let [room, partial] =
            Pass::areas(pass.scratch, self.rooms(pass.examples, pass.kind.size()));
        if self.relu {
            pass.mask(rows * self.channels_out);
        }
        if !self.bias.is_empty() {
            let (sum, write) = (pass.gradient(self.bias.start), pass.write);
            let (d, shape) = (pass.d_output, [rows, self.channels_out]);
            pass.sum_columns(d, self.channels_out, shape, partial, sum, write);
        }
        match self.is_depthwise() {
            true => self.backward_depthwise(pass, partial),
            false => self.shape().backward(pass, room, pass.d_output),
        }
    }
}

impl Conv {
    fn shape(&self) -> Shape {
        Shape {
            window: self.window,
            channels_in: self.channels_in,
            channels_out: self.channels_out,
            groups: self.groups,
            weight: self.weight.start,
        }
    }

    fn rooms(&self, examples: usize, size: usize) -> [usize; 2] {
        match self.is_depthwise() {
            true => [0, partial_len(self.weight.len().max(self.bias.len()))],
            false => [
                self.shape().patches_len(examples, size),
                partial_len(self.bias.len()),
            ],
        }
    }

    fn forward_depthwise(&self, pass: &mut Pass<'_>) {
        let [height, width] = self.window.output();
        let total = pass.examples * height * width * self.channels_out;
        let bias = match self.bias.is_empty() {
            true => 0,
            false => pass.parameter(self.bias.start),
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

    fn backward_depthwise(&self, pass: &mut Pass<'_>, partial: Address) {
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
    /// Which value of each window was the largest.
    fn kept(&self, examples: usize, _size: usize) -> usize {
        examples * self.output_len()
    }

    fn scratch(&self, examples: usize, size: usize) -> usize {
        areas_len(&self.rooms(examples, size))
    }

    fn forward(&self, pass: &mut Pass<'_>) {
        let areas = self.rooms(pass.examples, pass.kind.size());
        let [room, raw, _] = Pass::areas(pass.scratch, areas);
        self.shape().forward(pass, room, raw, (0, false));
        let total = pass.examples * self.output_len();
        let arguments = [
            raw.into(),
            pass.parameter(self.bias.start).into(),
            pass.output.into(),
            pass.kept.into(),
            int(self.height),
            int(self.width),
            int(self.channels_out),
            int(total),
        ];
        pass.each("relu_pool", total, &arguments);
    }

    fn backward(&self, pass: &mut Pass<'_>) {
        let areas = self.rooms(pass.examples, pass.kind.size());
        let [room, raw, partial] = Pass::areas(pass.scratch, areas);
        let rows = pass.examples * self.height * self.width;
        let total = rows * self.channels_out;
        let arguments = [
            pass.d_output.into(),
            pass.kept.into(),
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
        self.shape().backward(pass, room, raw);
    }
}

impl ConvPool {
    fn shape(&self) -> Shape {
        Shape {
            window: Window {
                image: [self.height, self.width],
                kernel: [3, 3],
                stride: [1, 1],
                padding: [1, 1],
            },
            channels_in: self.channels_in,
            channels_out: self.channels_out,
            groups: 1,
            weight: self.weight.start,
        }
    }

    /// Patches, the raw output or its gradient, partial sums of the bias's.
    fn rooms(&self, examples: usize, size: usize) -> [usize; 3] {
        let raw = examples * self.height * self.width * self.channels_out * size;
        [
            self.shape().patches_len(examples, size),
            raw,
            partial_len(self.channels_out),
        ]
    }
}
