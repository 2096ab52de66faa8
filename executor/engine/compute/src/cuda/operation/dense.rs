//! Dense layers and embeddings.

use super::pass::{DevicePass, chunks, partial_len};
use super::{DeviceKernel, OutputRow};
use crate::cuda::product::MatrixProduct;
use crate::cuda::queue::{THREADS, int};
use crate::layer::Dense;
use crate::layer::embedding::Embedding;
use crate::layer::matrix::WriteMode;
use crate::layer::positions::PositionTable;

impl DeviceKernel for Dense {
    /// Partial sums of the bias's gradient.
    fn scratch(&self, _examples: usize, _size: usize) -> usize {
        partial_len(self.bias.len())
    }

    fn row(&self) -> Option<OutputRow> {
        (!self.relu).then_some(OutputRow {
            numbers: self.outputs,
            by_rows: self.has_rows().then_some((self.weight.start, self.inputs)),
        })
    }

    fn forward(&self, pass: &mut DevicePass<'_>) {
        let rows = pass.rows(self.inputs);
        let weight = pass.weight(self.weight.start);
        let weight = if self.tied {
            pass.values(weight, self.inputs).transposed()
        } else {
            pass.values(weight, self.outputs)
        };
        let product = MatrixProduct::new(
            [rows, self.columns(pass), self.inputs],
            pass.values(pass.inputs[0], self.inputs),
            weight,
            pass.values(pass.output, self.stride(pass)),
        );
        let bias = if self.bias.is_empty() {
            0
        } else {
            pass.weight(self.bias.start)
        };
        pass.queue.multiply(&MatrixProduct {
            bias,
            relu: self.relu,
            ..product
        });
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let rows = pass.rows(self.inputs);
        if self.relu {
            pass.mask(rows * self.outputs);
        }
        if !self.bias.is_empty() {
            let (d, sum) = (pass.d_output, pass.gradient(self.bias.start));
            let (shape, write) = ([rows, self.outputs], pass.write);
            let stride = self.stride(pass);
            pass.sum_columns(d, stride, shape, pass.scratch, sum, write);
        }
        let d_output = pass.values(pass.d_output, self.stride(pass));
        let input = pass.values(pass.inputs[0], self.inputs);
        let d_weight = pass.gradient(self.weight.start);
        if self.tied {
            let shape = [self.outputs, self.inputs, rows];
            let (out, write) = ((d_weight, self.inputs), pass.write_shared);
            pass.multiply_gradient(shape, d_output.transposed(), input, out, write);
        } else {
            let shape = [self.inputs, self.outputs, rows];
            let (out, write) = ((d_weight, self.outputs), pass.write);
            pass.multiply_gradient(shape, input.transposed(), d_output, out, write);
        }
        if let Some(d_input) = pass.d_inputs[0] {
            let weight = pass.weight(self.weight.start);
            let weight = if self.tied {
                pass.values(weight, self.inputs)
            } else {
                pass.values(weight, self.outputs).transposed()
            };
            let out = pass.values(d_input, self.inputs);
            let shape = [rows, self.inputs, self.columns(pass)];
            pass.queue
                .multiply(&MatrixProduct::new(shape, d_output, weight, out));
        }
    }
}

impl Dense {
    /// Whether the weight has one row per output, and no other parameter has a value per output.
    fn has_rows(&self) -> bool {
        self.tied && self.bias.is_empty()
    }

    /// Number of columns of the output in products, with padding. Zeros after the weight produce
    /// zeros after the scores, and the loss leaves zeros after their gradients.
    fn columns(&self, pass: &DevicePass<'_>) -> usize {
        if self.has_rows() {
            self.stride(pass)
        } else {
            self.outputs
        }
    }

    fn stride(&self, pass: &DevicePass<'_>) -> usize {
        pass.output_stride.unwrap_or(self.outputs)
    }
}

impl DeviceKernel for Embedding {
    fn forward(&self, pass: &mut DevicePass<'_>) {
        let count = pass.rows(1) * self.width;
        let arguments = [
            pass.inputs[0].into(),
            pass.parameter(self.table.start).into(),
            pass.output.into(),
            int(count),
            int(self.width),
        ];
        pass.each("embed", count, &arguments);
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let arguments = [
            pass.inputs[0].into(),
            int(pass.rows(1)),
            pass.d_output.into(),
            pass.gradient(self.table.start).into(),
            int(self.width),
            (pass.write == WriteMode::Add).into(),
        ];
        pass.queue
            .launch("d_embed", self.vocabulary, THREADS, &arguments);
    }
}

impl DeviceKernel for PositionTable {
    /// Partial sums: the rows are examples, which form few chunks.
    fn scratch(&self, examples: usize, _size: usize) -> usize {
        chunks(examples).0 * self.table.len() * 4
    }

    fn forward(&self, pass: &mut DevicePass<'_>) {
        let len = self.table.len();
        let count = pass.examples * len;
        let arguments = [
            pass.inputs[0].into(),
            pass.parameter(self.table.start).into(),
            pass.output.into(),
            int(count),
            int(len),
        ];
        pass.packs("add_row", count, &arguments);
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let (len, examples, write) = (self.table.len(), pass.examples, pass.write);
        let (d, sum) = (pass.d_output, pass.gradient(self.table.start));
        pass.sum_columns(d, len, [examples, len], pass.scratch, sum, write);
        if let Some(d_input) = pass.d_inputs[0] {
            let bytes = pass.bytes(examples * len) as usize;
            pass.queue.copy(d, d_input, bytes);
        }
    }
}
