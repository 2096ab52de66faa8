//! LSTM and GRU. The input's part of all gates at all positions is one product, and so is each
//! weight's gradient. The rest runs step by step, with one product and one kernel each.

use super::DeviceKernel;
use super::pass::{DevicePass, areas_len, partial_len};
use crate::cuda::product::{ElementType, MatrixOperand, MatrixProduct};
use crate::cuda::queue::{DeviceAddress, int};
use crate::layer::gru::Gru;
use crate::layer::lstm::Lstm;
use crate::layer::matrix::WriteMode;

impl DeviceKernel for Lstm {
    /// Gates as values and cells as f32, for each position.
    fn saved_bytes(&self, examples: usize, size: usize) -> usize {
        areas_len(&self.saved_areas(examples, size))
    }

    /// Partial sums of the bias's gradient; gradients of hidden state and cell.
    fn scratch(&self, examples: usize, _size: usize) -> usize {
        areas_len(&self.rooms(examples))
    }

    fn forward(&self, pass: &mut DevicePass<'_>) {
        let (hidden, positions, examples) = (self.hidden, self.positions, pass.examples);
        let [gates, cells] =
            DevicePass::areas(pass.saved, self.saved_areas(examples, pass.kind.size()));
        let rows = examples * positions;
        let input = pass.values(pass.inputs[0], self.inputs);
        let weight = pass.values(pass.weight(self.input_weight.start), 4 * hidden);
        let out = pass.values(gates, 4 * hidden);
        let shape = [rows, 4 * hidden, self.inputs];
        pass.queue
            .multiply(&MatrixProduct::new(shape, input, weight, out));
        let weight = pass.values(pass.weight(self.recurrent_weight.start), 4 * hidden);
        for t in 0..positions {
            if t > 0 {
                let h = pass.output + pass.bytes((t - 1) * hidden);
                let h = pass.values(h, positions * hidden);
                let out = gates + pass.bytes(t * 4 * hidden);
                let out = pass.values(out, positions * 4 * hidden);
                let product = MatrixProduct::new([examples, 4 * hidden, hidden], h, weight, out);
                let add = true;
                pass.queue.multiply(&MatrixProduct { add, ..product });
            }
            let count = examples * hidden;
            let arguments = [
                gates.into(),
                cells.into(),
                pass.parameter(self.bias.start).into(),
                pass.output.into(),
                int(t),
                int(positions),
                int(hidden),
                int(count),
            ];
            pass.each("lstm_step", count, &arguments);
        }
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let (hidden, positions, examples) = (self.hidden, self.positions, pass.examples);
        let areas = self.saved_areas(examples, pass.kind.size());
        let [gates, cells] = DevicePass::areas(pass.saved, areas);
        let [partial, d_h, d_c] = DevicePass::areas(pass.scratch, self.rooms(examples));
        let weight = pass.values(pass.weight(self.recurrent_weight.start), 4 * hidden);
        for t in (0..positions).rev() {
            if t + 1 < positions {
                let d_gates = gates + pass.bytes((t + 1) * 4 * hidden);
                let d_gates = pass.values(d_gates, positions * 4 * hidden);
                let out = MatrixOperand::new(d_h, ElementType::F32, hidden);
                let shape = [examples, hidden, 4 * hidden];
                let product = MatrixProduct::new(shape, d_gates, weight.transposed(), out);
                pass.queue.multiply(&product);
            }
            let count = examples * hidden;
            let arguments = [
                gates.into(),
                cells.into(),
                pass.d_output.into(),
                d_h.into(),
                d_c.into(),
                int(t),
                int(positions),
                int(hidden),
                int(count),
            ];
            pass.each("d_lstm_step", count, &arguments);
        }
        let rows = examples * positions;
        let (sum, write) = (pass.gradient(self.bias.start), pass.write);
        pass.sum_columns(gates, 4 * hidden, [rows, 4 * hidden], partial, sum, write);
        let d_gates = pass.values(gates, 4 * hidden);
        let columns = [(d_gates, 4 * hidden, 0)];
        input_gradients(pass, self.inputs, self.input_weight.start, &columns);
        let place = self.recurrent_weight.start;
        recurrent_gradient(pass, gates, place, [positions, hidden, 4, 4]);
    }
}

impl Lstm {
    fn saved_areas(&self, examples: usize, size: usize) -> [usize; 2] {
        let units = examples * self.positions * self.hidden;
        [4 * units * size, 4 * units]
    }

    fn rooms(&self, examples: usize) -> [usize; 3] {
        let state = 4 * examples * self.hidden;
        [partial_len(4 * self.hidden), state, state]
    }
}

impl DeviceKernel for Gru {
    /// For each position r, z, the recurrent part of n, and n.
    fn saved_bytes(&self, examples: usize, size: usize) -> usize {
        examples * self.positions * 4 * self.hidden * size
    }

    /// Partial sums of the biases' gradients; gradient of the hidden state.
    fn scratch(&self, examples: usize, _size: usize) -> usize {
        areas_len(&self.rooms(examples))
    }

    fn forward(&self, pass: &mut DevicePass<'_>) {
        let (hidden, positions, examples) = (self.hidden, self.positions, pass.examples);
        let (gates, rows) = (pass.saved, examples * positions);
        // The product of each step adds to the recurrent part of n, as to r and z.
        let bytes = pass.bytes(rows * 4 * hidden) as usize;
        pass.queue.zero(gates, bytes);
        let input = pass.values(pass.inputs[0], self.inputs);
        for (from, to, columns) in [(0, 0, 2 * hidden), (2 * hidden, 3 * hidden, hidden)] {
            let weight = pass.weight(self.input_weight.start) + pass.bytes(from);
            let weight = pass.values(weight, 3 * hidden);
            let out = pass.values(gates + pass.bytes(to), 4 * hidden);
            let shape = [rows, columns, self.inputs];
            pass.queue
                .multiply(&MatrixProduct::new(shape, input, weight, out));
        }
        let weight = pass.values(pass.weight(self.recurrent_weight.start), 3 * hidden);
        for t in 0..positions {
            if t > 0 {
                let h = pass.output + pass.bytes((t - 1) * hidden);
                let h = pass.values(h, positions * hidden);
                let out = gates + pass.bytes(t * 4 * hidden);
                let out = pass.values(out, positions * 4 * hidden);
                let product = MatrixProduct::new([examples, 3 * hidden, hidden], h, weight, out);
                let add = true;
                pass.queue.multiply(&MatrixProduct { add, ..product });
            }
            let count = examples * hidden;
            let arguments = [
                gates.into(),
                pass.parameter(self.bias.start).into(),
                pass.parameter(self.recurrent_bias.start).into(),
                pass.output.into(),
                int(t),
                int(positions),
                int(hidden),
                int(count),
            ];
            pass.each("gru_step", count, &arguments);
        }
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let (hidden, positions, examples) = (self.hidden, self.positions, pass.examples);
        let gates = pass.saved;
        let [partial, d_h] = DevicePass::areas(pass.scratch, self.rooms(examples));
        let weight = pass.values(pass.weight(self.recurrent_weight.start), 3 * hidden);
        for t in (0..positions).rev() {
            if t + 1 < positions {
                let d_gates = gates + pass.bytes((t + 1) * 4 * hidden);
                let d_gates = pass.values(d_gates, positions * 4 * hidden);
                let out = MatrixOperand::new(d_h, ElementType::F32, hidden);
                let shape = [examples, hidden, 3 * hidden];
                let product = MatrixProduct::new(shape, d_gates, weight.transposed(), out);
                let add = true;
                pass.queue.multiply(&MatrixProduct { add, ..product });
            }
            let count = examples * hidden;
            let arguments = [
                gates.into(),
                pass.output.into(),
                pass.d_output.into(),
                d_h.into(),
                int(t),
                int(positions),
                int(hidden),
                int(count),
            ];
            pass.each("d_gru_step", count, &arguments);
        }
        let (rows, write) = (examples * positions, pass.write);
        let new = gates + pass.bytes(3 * hidden);
        let bias = pass.gradient(self.bias.start);
        let d_new = pass.gradient(self.bias.start) + 8 * hidden as u64;
        let recurrent = pass.gradient(self.recurrent_bias.start);
        for (from, columns, sum) in [
            (gates, 2 * hidden, bias),
            (new, hidden, d_new),
            (gates, 3 * hidden, recurrent),
        ] {
            pass.sum_columns(from, 4 * hidden, [rows, columns], partial, sum, write);
        }
        let columns = [
            (pass.values(gates, 4 * hidden), 2 * hidden, 0),
            (pass.values(new, 4 * hidden), hidden, 2 * hidden),
        ];
        input_gradients(pass, self.inputs, self.input_weight.start, &columns);
        let place = self.recurrent_weight.start;
        recurrent_gradient(pass, gates, place, [positions, hidden, 4, 3]);
    }
}

impl Gru {
    fn rooms(&self, examples: usize) -> [usize; 2] {
        [partial_len(3 * self.hidden), 4 * examples * self.hidden]
    }
}

/// Computes the gradients of the input weight and of the input. `parts` are the gates' gradients,
/// the number of columns, and the first of the weight's columns that produced them.
fn input_gradients(
    pass: &mut DevicePass<'_>,
    inputs: usize,
    place: usize,
    parts: &[(MatrixOperand, usize, usize)],
) {
    let rows = pass.rows(inputs);
    let all: usize = parts.iter().map(|part| part.1).sum();
    let mut add = false;
    for &(d_gates, columns, first) in parts {
        let input = pass.values(pass.inputs[0], inputs);
        let out = (pass.gradient(place) + 4 * first as u64, all);
        let (shape, write) = ([inputs, columns, rows], pass.write);
        pass.multiply_gradient(shape, input.transposed(), d_gates, out, write);
        if let Some(d_input) = pass.d_inputs[0] {
            let weight = pass.weight(place) + pass.bytes(first);
            let weight = pass.values(weight, all).transposed();
            let out = pass.values(d_input, inputs);
            let product = MatrixProduct::new([rows, inputs, columns], d_gates, weight, out);
            pass.queue.multiply(&MatrixProduct { add, ..product });
            add = true;
        }
    }
}

/// Computes the gradient of the recurrent weight from the hidden states and the gates' gradients of
/// the next position. Only the first `gates` of the `stored` gates per position are used.
fn recurrent_gradient(
    pass: &mut DevicePass<'_>,
    rows: DeviceAddress,
    place: usize,
    [positions, hidden, stored, gates]: [usize; 4],
) {
    let (width, write) = (stored * hidden, pass.write);
    let count = pass.examples * width;
    // Consecutive rows can then be multiplied across the boundary between sequences, where there is
    // no previous state.
    let arguments = [rows.into(), int(positions), int(width), int(count)];
    pass.each("forget_first", count, &arguments);
    let pairs = pass.examples * positions - 1;
    let sum = pass.gradient(place);
    if pairs == 0 {
        if write == WriteMode::Overwrite {
            pass.queue.zero(sum, 4 * hidden * gates * hidden);
        }
        return;
    }
    let later = pass.values(rows + pass.bytes(width), width);
    let h = pass.values(pass.output, hidden).transposed();
    let shape = [hidden, gates * hidden, pairs];
    pass.multiply_gradient(shape, h, later, (sum, gates * hidden), write);
}
