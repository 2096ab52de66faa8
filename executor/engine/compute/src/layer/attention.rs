//! Multi-head causal self-attention (Vaswani et al., 2017).
//!
//! Queries are processed in tiles. The forward pass keeps only the largest score and the sum of
//! each softmax row; the backward pass recomputes the tile from them (Dao et al., 2022). Memory
//! therefore grows linearly with the length of the context. A tile contains all of its keys, so no
//! rescaling as in online softmax is needed. A tile of 64 queries and 4,096 keys takes 1 MiB.

use super::math::{dot, exp, largest, sum_of};
use super::matrix::{Matrix, WriteMode, multiply, multiply_columns, transpose};
use super::operands::{BackwardOperands, CpuKernel, ForwardOperands, SavedSize, ThreadScratch};
use super::parallel::waves;
use crate::simd::vectorised;
use std::ops::Range;

/// Queries per tile.
const TILE: usize = 64;

/// Shape of the operation. The input of an example is positions × 3 · width: queries, keys and
/// values, each of them head after head.
#[derive(Debug, Clone)]
pub(crate) struct Attention {
    pub(crate) positions: usize,
    pub(crate) heads: usize,
    /// Width of a head.
    pub(crate) head: usize,
}

/// Operands of one example in the backward pass.
struct AttentionExample<'a> {
    input: &'a [f32],
    output: &'a [f32],
    d_output: &'a [f32],
    saved: &'a [f32],
    d_input: &'a mut [f32],
}

impl CpuKernel for Attention {
    /// Largest score and 1 / sum of exponentials of each row.
    fn saved_size(&self) -> SavedSize {
        let numbers = 2 * self.heads * self.positions;
        SavedSize { numbers, bytes: 0 }
    }

    fn scratch(&self) -> usize {
        self.areas().iter().sum()
    }

    fn forward(&self, pass: ForwardOperands<'_>) {
        let [input, output, saved] = self.lens();
        let inputs = pass.inputs.get(0).chunks_exact(input);
        let outputs = pass.output.chunks_exact_mut(output);
        let items = inputs.zip(outputs.zip(pass.numbers.chunks_exact_mut(saved)));
        waves(
            pass.lanes,
            items,
            |(x, (y, saved)), lane| {
                let saved = saved.chunks_exact_mut(2 * self.positions);
                saved
                    .enumerate()
                    .for_each(|(head, saved)| self.mix(head, x, y, saved, lane));
            },
            |_| {},
        );
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        let [input, output, saved] = self.lens();
        let Some(d_input) = pass.d_inputs.get(0) else {
            return;
        };
        let values = pass.inputs.get(0).chunks_exact(input);
        let values = values.zip(pass.output.chunks_exact(output));
        let gradients = pass.d_output.chunks_exact(output);
        let gradients = gradients.zip(d_input.chunks_exact_mut(input));
        let items = values.zip(gradients).zip(pass.numbers.chunks_exact(saved));
        let items = items.map(
            |(((input, output), (d_output, d_input)), saved)| AttentionExample {
                input,
                output,
                d_output,
                saved,
                d_input,
            },
        );
        waves(
            pass.lanes,
            items,
            |mut example, lane| {
                (0..self.heads).for_each(|head| self.pass_back(head, &mut example, lane));
            },
            |_| {},
        );
    }
}

impl Attention {
    fn width(&self) -> usize {
        self.heads * self.head
    }

    /// Number of elements per example of the input, the output and the kept values.
    fn lens(&self) -> [usize; 3] {
        let output = self.positions * self.width();
        [3 * output, output, 2 * self.heads * self.positions]
    }

    /// Lengths of the scratch areas: transposed keys and values of a head, scores of a tile and
    /// their gradients.
    fn areas(&self) -> [usize; 4] {
        let (turned, tile) = (self.head * self.positions, TILE * self.positions);
        [turned, turned, tile, tile]
    }

    /// Returns the queries, keys or values (`part` 0 to 2) of a head at the positions `at`.
    fn part<'a>(&self, x: &'a [f32], part: usize, head: usize, at: Range<usize>) -> Matrix<'a> {
        let stride = 3 * self.width();
        let first = part * self.width() + head * self.head;
        Matrix::columns(
            &x[at.start * stride..at.end * stride],
            stride,
            first,
            self.head,
        )
    }

    /// Writes the keys (`part` 1) or values (`part` 2) of a head as head width × positions.
    fn turn(&self, x: &[f32], part: usize, head: usize, out: &mut [f32]) {
        let first = part * self.width() + head * self.head;
        transpose(
            &x[first..],
            3 * self.width(),
            self.positions,
            self.head,
            out,
        );
    }

    fn tiles(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + use<> {
        let positions = self.positions;
        (0..positions.div_ceil(TILE)).map(move |tile| tile * TILE..positions.min((tile + 1) * TILE))
    }

    fn mix(
        &self,
        head: usize,
        x: &[f32],
        y: &mut [f32],
        saved: &mut [f32],
        lane: &mut ThreadScratch,
    ) {
        let [keys, _, scores, _] = lane.split(self.areas());
        self.turn(x, 1, head, keys);
        let width = self.width();
        for tile in self.tiles() {
            let scores = &mut scores[..tile.len() * tile.end];
            let queries = self.part(x, 0, head, tile.clone());
            let keys = Matrix::columns(keys, self.positions, 0, tile.end);
            multiply(scores, WriteMode::Overwrite, queries, keys, 1);
            let saved = &mut saved[2 * tile.start..2 * tile.end];
            softmax(scores, tile.start, tile.end, self.scale(), saved);
            let scores = Matrix::new(scores, tile.len(), tile.end);
            let values = self.part(x, 2, head, 0..tile.end);
            let y = &mut y[tile.start * width..tile.end * width];
            multiply_columns(
                y,
                [width, head * self.head],
                WriteMode::Overwrite,
                scores,
                values,
                1,
            );
        }
    }

    /// Runs the backward pass of a head from the last tile to the first. The last tile reads every
    /// key, so it overwrites the gradients and the other tiles add to them.
    fn pass_back(&self, head: usize, example: &mut AttentionExample<'_>, lane: &mut ThreadScratch) {
        let [keys, values, scores, d_scores] = lane.split(self.areas());
        self.turn(example.input, 1, head, keys);
        self.turn(example.input, 2, head, values);
        let (width, first) = (self.width(), head * self.head);
        let mut write = WriteMode::Overwrite;
        for tile in self.tiles().rev() {
            let (rows, end) = (tile.len(), tile.end);
            let scores = &mut scores[..rows * end];
            let d_scores = &mut d_scores[..rows * end];
            let queries = self.part(example.input, 0, head, tile.clone());
            let span = tile.start * width..tile.end * width;
            let d_output =
                Matrix::columns(&example.d_output[span.clone()], width, first, self.head);
            let read = Matrix::columns(keys, self.positions, 0, end);
            multiply(scores, WriteMode::Overwrite, queries, read, 1);
            let read = Matrix::columns(values, self.positions, 0, end);
            multiply(d_scores, WriteMode::Overwrite, d_output, read, 1);
            let saved = &example.saved[2 * self.positions * head..][2 * tile.start..2 * tile.end];
            let (output, d) = (&example.output[span.clone()], &example.d_output[span]);
            for (row, saved) in saved.chunks_exact(2).enumerate() {
                let own = row * width + first..row * width + first + self.head;
                let along = dot(&output[own.clone()], &d[own]);
                let part = row * end..(row + 1) * end;
                let (scores, d_scores) = (&mut scores[part.clone()], &mut d_scores[part]);
                d_softmax(
                    scores,
                    d_scores,
                    tile.start + row + 1,
                    self.scale(),
                    saved,
                    along,
                );
            }
            let scores = Matrix::new(scores, rows, end);
            let d_scores = Matrix::new(d_scores, rows, end);
            let stride = 3 * width;
            let d_input = &mut *example.d_input;
            let d_queries = &mut d_input[tile.start * stride..end * stride];
            let read = self.part(example.input, 1, head, 0..end);
            multiply_columns(
                d_queries,
                [stride, first],
                WriteMode::Overwrite,
                d_scores,
                read,
                1,
            );
            let all = &mut d_input[..end * stride];
            let at = [stride, width + first];
            multiply_columns(all, at, write, d_scores.transposed(), queries, 1);
            let at = [stride, 2 * width + first];
            multiply_columns(all, at, write, scores.transposed(), d_output, 1);
            write = WriteMode::Add;
        }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head as f32).sqrt()
    }
}

vectorised! {
    /// Softmax in place of rows of `columns` scores. The first row attends to `before + 1` keys and
    /// each next row to one more; scores of later keys become 0.
    fn softmax(scores: &mut [f32], before: usize, columns: usize, scale: f32, saved: &mut [f32]) {
        let rows = scores.chunks_exact_mut(columns).zip(saved.chunks_exact_mut(2));
        for (row, (scores, saved)) in rows.enumerate() {
            let (seen, later) = scores.split_at_mut(before + row + 1);
            let most = largest(seen);
            for score in seen.iter_mut() {
                *score = exp((*score - most) * scale);
            }
            let inverse = 1.0 / sum_of(seen, |x| x);
            for score in seen {
                *score *= inverse;
            }
            later.fill(0.0);
            saved.copy_from_slice(&[most, inverse]);
        }
    }

    /// Recomputes the softmax in `scores` and turns `d_scores` from the gradient of the softmax
    /// into the gradient of the scores. `along` is the sum of their products, which equals the dot
    /// product of the output and its gradient.
    fn d_softmax(
        scores: &mut [f32],
        d_scores: &mut [f32],
        seen: usize,
        scale: f32,
        saved: &[f32],
        along: f32,
    ) {
        let (most, inverse) = (saved[0], saved[1]);
        let (scores, later) = scores.split_at_mut(seen);
        let (d_scores, d_later) = d_scores.split_at_mut(seen);
        for (score, d) in scores.iter_mut().zip(d_scores) {
            let share = exp((*score - most) * scale) * inverse;
            *score = share;
            *d = share * (*d - along) * scale;
        }
        later.fill(0.0);
        d_later.fill(0.0);
    }
}
