//! Multi-head causal self-attention. In bf16, heads of width 32 and 64 have fused kernels that
//! never write scores to memory. Otherwise the scores of several examples at a time are written as
//! one matrix per head. The backward pass recomputes the softmax instead of keeping the square of
//! the context's length.

use super::DeviceKernel;
use super::pass::{DevicePass, areas_len};
use crate::cuda::product::{ElementType, MatrixOperand, MatrixProduct};
use crate::cuda::queue::{DeviceAddress, KernelArgument, int};
use crate::layer::attention::Attention;

/// Approximate size of the scores of a chunk in bytes.
const SCORES: usize = 512 << 20;

/// Queries or keys per block of the fused kernels, and threads per block.
const TILE: usize = 64;
const TILE_THREADS: usize = 128;

/// Forward pass, gradients of queries, gradients of keys and values.
const TILED_32: [&str; 3] = ["attend_32", "d_queries_32", "d_keys_32"];
const TILED_64: [&str; 3] = ["attend_64", "d_queries_64", "d_keys_64"];

/// Addresses of the operands of a chunk of examples, each head after head.
struct AttentionOperands {
    qkv: DeviceAddress,
    scores: DeviceAddress,
    output: DeviceAddress,
    d_scores: DeviceAddress,
    d_qkv: DeviceAddress,
}

impl DeviceKernel for Attention {
    /// One logarithm per query for the fused kernels.
    fn saved_bytes(&self, examples: usize, size: usize) -> usize {
        match self.tiled(size) {
            Some(_) => 4 * self.queries(examples),
            None => 0,
        }
    }

    fn scratch(&self, examples: usize, size: usize) -> usize {
        match self.tiled(size) {
            Some(_) => 4 * self.queries(examples),
            None => areas_len(&self.rooms(self.chunk(examples, size), size)),
        }
    }

    fn forward(&self, pass: &mut DevicePass<'_>) {
        if let Some([kernel, ..]) = self.tiled(pass.kind.size()) {
            let mut arguments = vec![pass.inputs[0].into(), pass.output.into(), pass.saved.into()];
            arguments.extend(self.shape());
            let blocks = self.blocks(pass.examples);
            pass.queue.launch(kernel, blocks, TILE_THREADS, &arguments);
            return;
        }
        for (first, count) in self.chunks(pass) {
            let room = self.share_out(pass, first, count);
            let part = count * self.output_len();
            let value = self.operand(pass, room.qkv + pass.bytes(2 * part));
            let (shares, out) = (
                self.square(pass, room.scores),
                self.operand(pass, room.output),
            );
            let shape = [self.positions, self.head, self.positions];
            self.multiply(pass, count, shape, [shares, value, out]);
            let to = pass.output + pass.bytes(first * self.output_len());
            self.arrange(pass, (to, room.output), 1, count, true);
        }
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let Some(d_input) = pass.d_inputs[0] else {
            return;
        };
        if let Some([_, d_queries, d_keys]) = self.tiled(pass.kind.size()) {
            return self.backward_tiled(pass, d_input, [d_queries, d_keys]);
        }
        for (first, count) in self.chunks(pass) {
            let room = self.share_out(pass, first, count);
            let part = pass.bytes(count * self.output_len());
            let d_output = pass.d_output + pass.bytes(first * self.output_len());
            self.arrange(pass, (d_output, room.output), 1, count, false);
            let [q, k, v] = [0, 1, 2].map(|place| self.operand(pass, room.qkv + place * part));
            let [d_q, d_k, d_v] =
                [0, 1, 2].map(|place| self.operand(pass, room.d_qkv + place * part));
            let d_out = self.operand(pass, room.output);
            let (shares, d_scores) = (
                self.square(pass, room.scores),
                self.square(pass, room.d_scores),
            );
            let (long, wide) = (self.positions, self.head);
            let back = [d_out, v.transposed(), d_scores];
            self.multiply(pass, count, [long, long, wide], back);
            let d_value = [shares.transposed(), d_out, d_v];
            self.multiply(pass, count, [long, wide, long], d_value);
            let arguments = [
                room.scores.into(),
                room.d_scores.into(),
                int(long),
                self.factor().into(),
            ];
            let blocks = count * self.heads * long;
            let threads = self.threads();
            pass.queue
                .launch("d_causal_softmax", blocks, threads, &arguments);
            self.multiply(pass, count, [long, wide, long], [d_scores, k, d_q]);
            let d_key = [d_scores.transposed(), q, d_k];
            self.multiply(pass, count, [long, wide, long], d_key);
            let to = d_input + pass.bytes(3 * first * self.output_len());
            self.arrange(pass, (to, room.d_qkv), 3, count, true);
        }
    }
}

impl Attention {
    /// Returns the fused kernels, if there are some for this head width and values of `size` bytes.
    fn tiled(&self, size: usize) -> Option<[&'static str; 3]> {
        match (size == ElementType::Bf16.size(), self.head) {
            (true, 32) => Some(TILED_32),
            (true, 64) => Some(TILED_64),
            _ => None,
        }
    }

    /// Number of queries of all heads.
    fn queries(&self, examples: usize) -> usize {
        examples * self.heads * self.positions
    }

    fn blocks(&self, examples: usize) -> usize {
        self.positions.div_ceil(TILE) * examples * self.heads
    }

    /// Positions, heads, and the factor of the scores for exponentials to base 2.
    fn shape(&self) -> [KernelArgument; 3] {
        let factor = self.factor() * std::f32::consts::LOG2_E;
        [int(self.positions), int(self.heads), factor.into()]
    }

    fn backward_tiled(
        &self,
        pass: &mut DevicePass<'_>,
        d_input: DeviceAddress,
        [d_queries, d_keys]: [&'static str; 2],
    ) {
        let [x, d_output] = [pass.inputs[0], pass.d_output].map(KernelArgument::from);
        let [logs, alongs] = [pass.saved, pass.scratch].map(KernelArgument::from);
        let [positions, heads, scale] = self.shape();
        let (d_x, factor) = (d_input.into(), self.factor().into());
        let blocks = self.blocks(pass.examples);
        let output = pass.output.into();
        let arguments = [
            x, output, d_output, logs, alongs, d_x, positions, heads, scale, factor,
        ];
        pass.queue
            .launch(d_queries, blocks, TILE_THREADS, &arguments);
        let arguments = [
            x, d_output, logs, alongs, d_x, positions, heads, scale, factor,
        ];
        pass.queue.launch(d_keys, blocks, TILE_THREADS, &arguments);
    }

    /// Number of output elements per example.
    fn output_len(&self) -> usize {
        self.positions * self.heads * self.head
    }

    fn factor(&self) -> f32 {
        1.0 / (self.head as f32).sqrt()
    }

    /// Number of threads that share a row of scores.
    fn threads(&self) -> usize {
        self.positions.div_ceil(32).next_power_of_two().min(8) * 32
    }

    fn chunk(&self, examples: usize, size: usize) -> usize {
        let one = self.heads * self.positions * self.positions * size;
        (SCORES / one).clamp(1, examples.max(1))
    }

    fn chunks(&self, pass: &DevicePass<'_>) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (examples, chunk) = (pass.examples, self.chunk(pass.examples, pass.kind.size()));
        (0..examples)
            .step_by(chunk)
            .map(move |first| (first, chunk.min(examples - first)))
    }

    /// Sizes of the areas of a chunk: queries, keys and values; scores; the output or its gradient;
    /// the gradients of scores; the gradients of queries, keys and values.
    fn rooms(&self, examples: usize, size: usize) -> [usize; 5] {
        let rows = examples * self.output_len() * size;
        let scores = examples * self.heads * self.positions * self.positions * size;
        [3 * rows, scores, rows, scores, 3 * rows]
    }

    /// For each head positions × head.
    fn operand(&self, pass: &DevicePass<'_>, at: DeviceAddress) -> MatrixOperand {
        pass.values(at, self.head)
            .batch_stride(self.positions * self.head)
    }

    /// For each head positions × positions.
    fn square(&self, pass: &DevicePass<'_>, at: DeviceAddress) -> MatrixOperand {
        let batch_stride = self.positions * self.positions;
        pass.values(at, self.positions).batch_stride(batch_stride)
    }

    fn multiply(
        &self,
        pass: &mut DevicePass<'_>,
        examples: usize,
        shape: [usize; 3],
        [left, right, out]: [MatrixOperand; 3],
    ) {
        let batch = examples * self.heads;
        let product = MatrixProduct::new(shape, left, right, out);
        pass.queue.multiply(&MatrixProduct { batch, ..product });
    }

    /// Converts `parts` parts from rows of positions to head after head, or back.
    fn arrange(
        &self,
        pass: &mut DevicePass<'_>,
        (rows, heads_first): (DeviceAddress, DeviceAddress),
        parts: usize,
        examples: usize,
        back: bool,
    ) {
        let count = examples * parts * self.output_len();
        let arguments = [
            rows.into(),
            heads_first.into(),
            int(self.positions),
            int(parts),
            int(self.heads),
            int(self.head),
            int(examples),
            int(count),
            back.into(),
        ];
        pass.each("split_heads", count, &arguments);
    }

    /// Computes queries, keys and values of a chunk, and the softmax of each query.
    fn share_out(
        &self,
        pass: &mut DevicePass<'_>,
        first: usize,
        count: usize,
    ) -> AttentionOperands {
        let size = pass.kind.size();
        let areas = self.rooms(self.chunk(pass.examples, size), size);
        let [qkv, scores, output, d_scores, d_qkv] = DevicePass::areas(pass.scratch, areas);
        let x = pass.inputs[0] + pass.bytes(3 * first * self.output_len());
        self.arrange(pass, (x, qkv), 3, count, false);
        let queries = self.operand(pass, qkv);
        let keys = qkv + pass.bytes(count * self.output_len());
        let keys = self.operand(pass, keys).transposed();
        let out = self.square(pass, scores);
        let shape = [self.positions, self.positions, self.head];
        self.multiply(pass, count, shape, [queries, keys, out]);
        let arguments = [scores.into(), int(self.positions), self.factor().into()];
        let blocks = count * self.heads * self.positions;
        let threads = self.threads();
        pass.queue
            .launch("causal_softmax", blocks, threads, &arguments);
        AttentionOperands {
            qkv,
            scores,
            output,
            d_scores,
            d_qkv,
        }
    }
}
