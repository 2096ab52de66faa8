//! Long short-term memory (Hochreiter and Schmidhuber, 1997), with PyTorch's gates and one bias.
//!
//! The input's part of all gates at all positions is one matrix product, and so is the gradient of
//! each weight. Only the recurrent part runs step by step. A step multiplies the rows of a group of
//! examples in place and computes their cells in one pass.

use super::math::{sigmoid, tanh};
use super::matrix::{Matrix, MatrixStrips, WriteMode, multiply, multiply_columns, multiply_strips};
use super::operands::{BackwardOperands, CpuKernel, ForwardOperands, SavedSize, ThreadScratch};
use super::parallel::waves;
use super::recurrent::{self, GROUP};
use crate::simd::vectorised;
use std::ops::Range;

/// i, f, g, o = x Wx + h Wh + b; c = σ(f) c + σ(i) tanh(g); h = σ(o) tanh(c), from h = c = 0.
#[derive(Debug, Clone)]
pub(crate) struct Lstm {
    pub(crate) positions: usize,
    pub(crate) inputs: usize,
    pub(crate) hidden: usize,
    /// inputs × 4 · hidden, gates in the order i, f, g, o.
    pub(crate) input_weight: Range<usize>,
    /// hidden × 4 · hidden, directly after the input weight.
    pub(crate) recurrent_weight: Range<usize>,
    /// 4 · hidden, directly after the recurrent weight.
    pub(crate) bias: Range<usize>,
}

impl CpuKernel for Lstm {
    /// Gates and cell of each position.
    fn saved_size(&self) -> SavedSize {
        let numbers = self.positions * 5 * self.hidden;
        SavedSize { numbers, bytes: 0 }
    }

    fn scratch(&self) -> usize {
        self.areas().iter().sum()
    }

    fn parameters(&self) -> Range<usize> {
        self.input_weight.start..self.bias.end
    }

    fn forward(&self, pass: ForwardOperands<'_>) {
        let (hidden, saved) = (self.hidden, 5 * self.hidden);
        let input_weight = self.input_weight(pass.params);
        let recurrent = &pass.params[self.recurrent_weight.clone()];
        let bias = &pass.params[self.bias.clone()];
        let input = pass.inputs.get(0);
        let input = Matrix::new(input, input.len() / self.inputs, self.inputs);
        let (at, threads) = ([saved, 0], pass.at.threads);
        multiply_columns(
            pass.numbers,
            at,
            WriteMode::Overwrite,
            input,
            input_weight,
            threads,
        );
        let groups = pass.numbers.chunks_mut(GROUP * self.positions * saved);
        let groups = groups.zip(pass.output.chunks_mut(GROUP * self.positions * hidden));
        waves(
            pass.lanes,
            groups,
            |(numbers, output), lane| {
                let [weight, _, _, zeros] = lane.split(self.areas());
                let weight = MatrixStrips::of(recurrent, hidden, 4 * hidden, weight);
                zeros.fill(0.0);
                for t in 0..self.positions {
                    if let Some(before) = t.checked_sub(1) {
                        let h = Matrix::columns(
                            output,
                            self.positions * hidden,
                            before * hidden,
                            hidden,
                        );
                        let at = [self.positions * saved, t * saved];
                        multiply_strips(numbers, at, WriteMode::Add, h, weight);
                    }
                    let examples = numbers.chunks_exact_mut(self.positions * saved);
                    let outputs = output.chunks_exact_mut(self.positions * hidden);
                    for (numbers, output) in examples.zip(outputs) {
                        let (before, now) = numbers.split_at_mut(t * saved);
                        let cell = recurrent::tail(before, hidden).unwrap_or(zeros);
                        step(
                            &mut now[..saved],
                            cell,
                            bias,
                            &mut output[t * hidden..][..hidden],
                        );
                    }
                }
            },
            |_| {},
        );
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        let (hidden, saved) = (self.hidden, 5 * self.hidden);
        let input_weight = self.input_weight(pass.params);
        let groups = pass.numbers.chunks_mut(GROUP * self.positions * saved);
        let groups = groups.zip(pass.d_output.chunks(GROUP * self.positions * hidden));
        let recurrent = &pass.params[self.recurrent_weight.clone()];
        waves(
            pass.lanes,
            groups,
            |(numbers, d_output), lane| {
                self.unroll(recurrent, numbers, d_output, lane);
            },
            |_| {},
        );
        let (threads, write) = (pass.at.threads, pass.write);
        let input = pass.inputs.get(0);
        let rows = input.len() / self.inputs;
        let input = Matrix::new(input, rows, self.inputs);
        let d_gates = Matrix::columns(pass.numbers, saved, 0, 4 * hidden);
        let d_weight = &mut pass.grads[self.input_weight.clone()];
        multiply(d_weight, write, input.transposed(), d_gates, threads);
        let d_bias = &mut pass.grads[self.bias.clone()];
        recurrent::add_columns(d_bias, write, pass.numbers, saved, 0);
        if let Some(d_input) = pass.d_inputs.get(0) {
            let weight = input_weight.transposed();
            multiply(d_input, WriteMode::Overwrite, d_gates, weight, threads);
        }
        recurrent::forget_first(pass.numbers, saved, self.positions);
        let d_gates = Matrix::columns(&pass.numbers[saved..], saved, 0, 4 * hidden);
        let h = Matrix::new(&pass.output[..(rows - 1) * hidden], rows - 1, hidden);
        let d_weight = &mut pass.grads[self.recurrent_weight.clone()];
        multiply(d_weight, write, h.transposed(), d_gates, threads);
    }
}

impl Lstm {
    /// Lengths of the scratch areas: recurrent weight in strips, gradients of a group's hidden
    /// state and cell, a row of zeros.
    fn areas(&self) -> [usize; 4] {
        let group = GROUP * self.hidden;
        [4 * self.hidden * self.hidden, group, group, self.hidden]
    }

    fn input_weight<'a>(&self, params: &'a [f32]) -> Matrix<'a> {
        let weight = &params[self.input_weight.clone()];
        Matrix::new(weight, self.inputs, 4 * self.hidden)
    }

    /// Runs the backward pass over time for a group. Replaces the gates by the gradients with
    /// respect to their sums.
    fn unroll(
        &self,
        recurrent: &[f32],
        numbers: &mut [f32],
        d_output: &[f32],
        lane: &mut ThreadScratch,
    ) {
        let (hidden, saved) = (self.hidden, 5 * self.hidden);
        let [weight, d_h, d_c, zeros] = lane.split(self.areas());
        let weight = MatrixStrips::transposed(recurrent, hidden, 4 * hidden, weight);
        let examples = numbers.len() / (self.positions * saved);
        let (d_h, d_c) = (&mut d_h[..examples * hidden], &mut d_c[..examples * hidden]);
        d_h.fill(0.0);
        d_c.fill(0.0);
        zeros.fill(0.0);
        for t in (0..self.positions).rev() {
            if t + 1 < self.positions {
                let stride = self.positions * saved;
                let d_gates = Matrix::columns(numbers, stride, (t + 1) * saved, 4 * hidden);
                multiply_strips(d_h, [hidden, 0], WriteMode::Overwrite, d_gates, weight);
            }
            let states = d_h.chunks_exact(hidden).zip(d_c.chunks_exact_mut(hidden));
            let examples = numbers.chunks_exact_mut(self.positions * saved);
            let examples = examples.zip(d_output.chunks_exact(self.positions * hidden));
            for ((numbers, d_output), (d_h, d_c)) in examples.zip(states) {
                let (before, now) = numbers.split_at_mut(t * saved);
                let cell = recurrent::tail(before, hidden).unwrap_or(zeros);
                let d_output = &d_output[t * hidden..][..hidden];
                step_back(&mut now[..saved], cell, d_output, d_h, d_c);
            }
        }
    }
}

vectorised! {
    /// Computes one step. On entry `now` holds the sums of the gates without bias; on return it
    /// holds the four gates and the cell.
    fn step(now: &mut [f32], cell: &[f32], bias: &[f32], output: &mut [f32]) {
        let hidden = output.len();
        let [i, f, g, o, c] = recurrent::parts_mut(now, hidden);
        let [bi, bf, bg, bo] = recurrent::parts(bias, hidden);
        let cell = &cell[..hidden];
        for k in 0..hidden {
            i[k] = sigmoid(i[k] + bi[k]);
            f[k] = sigmoid(f[k] + bf[k]);
            g[k] = tanh(g[k] + bg[k]);
            o[k] = sigmoid(o[k] + bo[k]);
            c[k] = f[k] * cell[k] + i[k] * g[k];
            output[k] = o[k] * tanh(c[k]);
        }
    }

    fn step_back(now: &mut [f32], cell: &[f32], d_output: &[f32], d_h: &[f32], d_c: &mut [f32]) {
        let hidden = d_output.len();
        let [i, f, g, o, c] = recurrent::parts_mut(now, hidden);
        let (cell, d_h, d_c) = (&cell[..hidden], &d_h[..hidden], &mut d_c[..hidden]);
        for k in 0..hidden {
            let d_h = d_output[k] + d_h[k];
            let bent = tanh(c[k]);
            let d = d_c[k] + d_h * o[k] * (1.0 - bent * bent);
            d_c[k] = d * f[k];
            let d_i = d * g[k] * (i[k] * (1.0 - i[k]));
            f[k] = d * cell[k] * (f[k] * (1.0 - f[k]));
            g[k] = d * i[k] * (1.0 - g[k] * g[k]);
            o[k] = d_h * bent * (o[k] * (1.0 - o[k]));
            i[k] = d_i;
        }
    }
}
