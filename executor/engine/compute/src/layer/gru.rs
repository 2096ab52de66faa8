//! Gated recurrent units (Cho et al., 2014) as PyTorch defines them: the reset gate follows the
//! recurrent product, so that one product serves all gates. The structure is that of
//! [`super::lstm`].

use super::math::{sigmoid, tanh};
use super::matrix::{Matrix, MatrixStrips, WriteMode, multiply, multiply_columns, multiply_strips};
use super::operands::{BackwardOperands, CpuKernel, ForwardOperands, SavedSize, ThreadScratch};
use super::parallel::waves;
use super::recurrent::{self, GROUP};
use crate::simd::vectorised;
use std::ops::Range;

/// r, z = σ(x Wx + b + h Wh + b'); n = tanh(x Wx + b + r (h Wh + b')); h = (1 − z) n + z h.
/// The initial state is h = 0.
#[derive(Debug, Clone)]
pub(crate) struct Gru {
    pub(crate) positions: usize,
    pub(crate) inputs: usize,
    pub(crate) hidden: usize,
    /// inputs × 3 · hidden, gates in the order r, z, n.
    pub(crate) input_weight: Range<usize>,
    /// hidden × 3 · hidden, directly after the input weight.
    pub(crate) recurrent_weight: Range<usize>,
    /// 3 · hidden, directly after the recurrent weight.
    pub(crate) bias: Range<usize>,
    /// 3 · hidden, directly after the bias.
    pub(crate) recurrent_bias: Range<usize>,
}

impl CpuKernel for Gru {
    /// For each position r, z, the recurrent part of n, and n.
    fn saved_size(&self) -> SavedSize {
        let numbers = self.positions * 4 * self.hidden;
        SavedSize { numbers, bytes: 0 }
    }

    fn scratch(&self) -> usize {
        self.areas().iter().sum()
    }

    fn parameters(&self) -> Range<usize> {
        self.input_weight.start..self.recurrent_bias.end
    }

    fn forward(&self, pass: ForwardOperands<'_>) {
        let (hidden, saved) = (self.hidden, 4 * self.hidden);
        let (params, threads) = (pass.params, pass.at.threads);
        let input = pass.inputs.get(0);
        let input = Matrix::new(input, input.len() / self.inputs, self.inputs);
        for (weight, first) in self.input_weights(params).into_iter().zip([0, 3 * hidden]) {
            let at = [saved, first];
            multiply_columns(
                pass.numbers,
                at,
                WriteMode::Overwrite,
                input,
                weight,
                threads,
            );
        }
        let recurrent = &params[self.recurrent_weight.clone()];
        let biases = &params[self.bias.start..self.recurrent_bias.end];
        let groups = pass.numbers.chunks_mut(GROUP * self.positions * saved);
        let groups = groups.zip(pass.output.chunks_mut(GROUP * self.positions * hidden));
        waves(
            pass.lanes,
            groups,
            |(numbers, output), lane| {
                let [weight, _, zeros] = lane.split(self.areas());
                let weight = MatrixStrips::of(recurrent, hidden, 3 * hidden, weight);
                zeros.fill(0.0);
                for row in numbers.chunks_exact_mut(saved) {
                    row[2 * hidden..3 * hidden].fill(0.0);
                }
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
                        let (before, now) = output.split_at_mut(t * hidden);
                        let state = recurrent::tail(before, hidden).unwrap_or(zeros);
                        let numbers = &mut numbers[t * saved..][..saved];
                        step(numbers, state, biases, &mut now[..hidden]);
                    }
                }
            },
            |_| {},
        );
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        let (hidden, saved) = (self.hidden, 4 * self.hidden);
        let (threads, write, params) = (pass.at.threads, pass.write, pass.params);
        let len = GROUP * self.positions * hidden;
        let groups = pass.numbers.chunks_mut(GROUP * self.positions * saved);
        let groups = groups.zip(pass.output.chunks(len).zip(pass.d_output.chunks(len)));
        let recurrent = &params[self.recurrent_weight.clone()];
        waves(
            pass.lanes,
            groups,
            |(numbers, outputs), lane| {
                self.unroll(recurrent, numbers, outputs, lane);
            },
            |_| {},
        );
        let input = pass.inputs.get(0);
        let rows = input.len() / self.inputs;
        let input = Matrix::new(input, rows, self.inputs);
        let gates = [
            Matrix::columns(pass.numbers, saved, 0, 2 * hidden),
            Matrix::columns(pass.numbers, saved, 3 * hidden, hidden),
        ];
        for (gates, first) in gates.into_iter().zip([0, 2 * hidden]) {
            let (d_weight, at) = (
                &mut pass.grads[self.input_weight.clone()],
                [3 * hidden, first],
            );
            multiply_columns(d_weight, at, write, input.transposed(), gates, threads);
        }
        let (d_bias, d_new) = pass.grads[self.bias.clone()].split_at_mut(2 * hidden);
        recurrent::add_columns(d_bias, write, pass.numbers, saved, 0);
        recurrent::add_columns(d_new, write, pass.numbers, saved, 3 * hidden);
        let d_bias = &mut pass.grads[self.recurrent_bias.clone()];
        recurrent::add_columns(d_bias, write, pass.numbers, saved, 0);
        if let Some(d_input) = pass.d_inputs.get(0) {
            let weights = self.input_weights(params);
            let writes = [WriteMode::Overwrite, WriteMode::Add];
            for ((gates, weight), write) in gates.into_iter().zip(weights).zip(writes) {
                multiply(d_input, write, gates, weight.transposed(), threads);
            }
        }
        recurrent::forget_first(pass.numbers, saved, self.positions);
        let d_gates = Matrix::columns(&pass.numbers[saved..], saved, 0, 3 * hidden);
        let h = Matrix::new(&pass.output[..(rows - 1) * hidden], rows - 1, hidden);
        let d_weight = &mut pass.grads[self.recurrent_weight.clone()];
        multiply(d_weight, write, h.transposed(), d_gates, threads);
    }
}

impl Gru {
    /// Lengths of the scratch areas: recurrent weight in strips, gradients of a group's hidden
    /// state, a row of zeros.
    fn areas(&self) -> [usize; 3] {
        let weight = 3 * self.hidden * self.hidden;
        [weight, GROUP * self.hidden, self.hidden]
    }

    /// Returns the input weights of r and z, and those of n.
    fn input_weights<'a>(&self, params: &'a [f32]) -> [Matrix<'a>; 2] {
        let (weight, hidden) = (&params[self.input_weight.clone()], self.hidden);
        [
            Matrix::columns(weight, 3 * hidden, 0, 2 * hidden),
            Matrix::columns(weight, 3 * hidden, 2 * hidden, hidden),
        ]
    }

    /// Runs the backward pass over time for a group. Replaces the gates by the gradients with
    /// respect to their sums. The tuple holds the group's outputs and their gradients.
    fn unroll(
        &self,
        recurrent: &[f32],
        numbers: &mut [f32],
        (output, d_output): (&[f32], &[f32]),
        lane: &mut ThreadScratch,
    ) {
        let (hidden, saved) = (self.hidden, 4 * self.hidden);
        let [weight, d_h, zeros] = lane.split(self.areas());
        let weight = MatrixStrips::transposed(recurrent, hidden, 3 * hidden, weight);
        let examples = numbers.len() / (self.positions * saved);
        let d_h = &mut d_h[..examples * hidden];
        d_h.fill(0.0);
        zeros.fill(0.0);
        for t in (0..self.positions).rev() {
            if t + 1 < self.positions {
                let stride = self.positions * saved;
                let d_gates = Matrix::columns(numbers, stride, (t + 1) * saved, 3 * hidden);
                multiply_strips(d_h, [hidden, 0], WriteMode::Add, d_gates, weight);
            }
            let outputs = output.chunks_exact(self.positions * hidden);
            let outputs = outputs.zip(d_output.chunks_exact(self.positions * hidden));
            let examples = numbers.chunks_exact_mut(self.positions * saved);
            let examples = examples.zip(d_h.chunks_exact_mut(hidden));
            for ((numbers, d_h), (output, d_output)) in examples.zip(outputs) {
                let state = recurrent::tail(&output[..t * hidden], hidden).unwrap_or(zeros);
                let numbers = &mut numbers[t * saved..][..saved];
                step_back(numbers, state, &d_output[t * hidden..][..hidden], d_h);
            }
        }
    }
}

vectorised! {
    /// Computes one step. On entry `now` holds the sums of r, z, the recurrent part of n and the
    /// input's part of n, all without bias. `biases` are the input's, followed by the recurrent
    /// ones.
    fn step(now: &mut [f32], state: &[f32], biases: &[f32], output: &mut [f32]) {
        let hidden = output.len();
        let [r, z, m, n] = recurrent::parts_mut(now, hidden);
        let [br, bz, bn, cr, cz, cn] = recurrent::parts(biases, hidden);
        let state = &state[..hidden];
        for k in 0..hidden {
            r[k] = sigmoid(r[k] + (br[k] + cr[k]));
            z[k] = sigmoid(z[k] + (bz[k] + cz[k]));
            m[k] += cn[k];
            n[k] = tanh(n[k] + bn[k] + r[k] * m[k]);
            output[k] = n[k] + z[k] * (state[k] - n[k]);
        }
    }

    /// Leaves in `d_h` the gradient that reaches the previous state without passing the gates.
    fn step_back(now: &mut [f32], state: &[f32], d_output: &[f32], d_h: &mut [f32]) {
        let hidden = d_output.len();
        let [r, z, m, n] = recurrent::parts_mut(now, hidden);
        let (state, d_h) = (&state[..hidden], &mut d_h[..hidden]);
        for k in 0..hidden {
            let d = d_output[k] + d_h[k];
            d_h[k] = d * z[k];
            let d_n = d * (1.0 - z[k]) * (1.0 - n[k] * n[k]);
            z[k] = d * (state[k] - n[k]) * (z[k] * (1.0 - z[k]));
            let d_m = d_n * r[k];
            r[k] = d_n * m[k] * (r[k] * (1.0 - r[k]));
            m[k] = d_m;
            n[k] = d_n;
        }
    }
}
