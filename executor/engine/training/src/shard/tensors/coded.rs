//! Steps with encoded gradients and answers: summed, applied and encoded one range (`ChunkRange`)
//! at a time.
//!
//! Decoding the gradients as a whole would write them to memory and read them again, and would read
//! the parameters and known parameters twice. Those transfers dominate the time of an encoded step.
//! Here a value is read from memory once, and its gradients stay in the first-level cache.

use super::chunk::{UpdateRules, share};
use super::{CHUNK, Factors, Tensors};
use muster_comm::shard_codec::{ChunkRange, Salt, ShardCodec};
use muster_compute::pages;

/// Minimum number of chunk ranges per thread.
const CHUNK_RANGES_PER_THREAD: usize = 4;

/// Memory of one chunk range.
struct ChunkWork<'a> {
    chunk_range: ChunkRange<'a>,
    parameters: &'a mut [f32],
    known: &'a mut [f32],
    /// Optimizer state of the chunk range, by the chunks of [`Tensors`].
    state: Vec<OptimizerSlice<'a>>,
    out: &'a mut [u8],
}

/// Optimizer state of `len` values.
#[derive(Default)]
struct OptimizerSlice<'a> {
    len: usize,
    planes: [&'a mut [f32]; 2],
}

/// Working memory of a thread.
#[derive(Default)]
struct SumScratch {
    sum: Vec<f32>,
    lacking: Vec<f32>,
}

impl Tensors {
    /// Sums the workers' encoded `pushes` in their order, applies the sum as update number
    /// `update`, and writes the encoded difference for the workers into `out`. The bits equal those
    /// of decoding, [`Tensors::update_by`] and [`ShardCodec::encode_pull`] in sequence.
    ///
    /// # Panics
    /// When the length of a push differs from the codec's, its codecs are not fixed, or the rule
    /// needs whole tensors.
    pub fn update_encoded(
        &mut self,
        (shard_codec, salt): (&ShardCodec, Salt),
        pushes: &[&[u8]],
        (update, factors): (u64, Factors),
        out: &mut Vec<u8>,
    ) {
        assert!(!self.looks_at_whole_tensors(), "a stretch is no tensor");
        pages::resize(out, shard_codec.max_pull_bytes());
        let rules = UpdateRules {
            optimizer: &self.optimizer,
            segments: &self.segments,
            trusts: None,
            update,
            factors,
        };
        let mut state =
            OptimizerSliceCursor::new(&mut self.state, self.optimizer.state_len_per_param());
        let (mut parameters, mut known) = (&mut *self.parameters, &mut *self.known);
        let mut rest = out.as_mut_slice();
        let mut works: Vec<ChunkWork<'_>> = Vec::new();
        for chunk_range in shard_codec.chunk_ranges() {
            let len = chunk_range.range.len();
            works.push(ChunkWork {
                parameters: parameters.split_off_mut(..len).expect("all of them"),
                known: known.split_off_mut(..len).expect("all of them"),
                state: state.take(len),
                out: rest
                    .split_off_mut(..chunk_range.pull_bytes.len())
                    .expect("room for all"),
                chunk_range,
            });
        }
        share(&mut works, self.threads, CHUNK_RANGES_PER_THREAD, |work| {
            work.run(&rules, pushes, salt, &mut SumScratch::default());
        });
    }
}

impl ChunkWork<'_> {
    fn run(
        &mut self,
        rules: &UpdateRules<'_>,
        pushes: &[&[u8]],
        salt: Salt,
        scratch: &mut SumScratch,
    ) {
        let at = self.chunk_range.range.start;
        let run = self.chunk_range.run();
        let mut states = std::mem::take(&mut self.state).into_iter();
        let mut state = OptimizerSlice::default();
        let parameters = self.parameters.chunks_mut(run);
        let runs = parameters.zip(self.known.chunks_mut(run)).enumerate();
        for (index, (parameters, known)) in runs {
            let start = index * run;
            scratch.sum.resize(parameters.len(), 0.0);
            self.chunk_range.add_up(pushes, start, &mut scratch.sum);
            let mut done = 0;
            while done < parameters.len() {
                if state.len == 0 {
                    state = states.next().expect("state of every number");
                }
                let len = state.len.min(parameters.len() - done);
                let here = done..done + len;
                let planes = state.split_off(len);
                let sum = &scratch.sum[here.clone()];
                rules.update(at + start + done, &mut parameters[here], sum, planes);
                done += len;
            }
            let lacking = &mut scratch.lacking;
            let place = (salt, start);
            self.chunk_range
                .catch_up(place, parameters, known, lacking, self.out);
        }
    }
}

impl<'a> OptimizerSlice<'a> {
    /// Takes the planes of the first `len` values.
    fn split_off(&mut self, len: usize) -> [&'a mut [f32]; 2] {
        self.len -= len;
        self.planes.each_mut().map(|plane| {
            let taken = plane.split_off_mut(..len.min(plane.len()));
            taken.expect("no more than there is")
        })
    }
}

/// Optimizer state in the layout of [`Tensors`], from which chunk ranges are taken in order.
struct OptimizerSliceCursor<'a> {
    rest: &'a mut [f32],
    planes: usize,
    /// The rest of a chunk.
    open: OptimizerSlice<'a>,
}

impl<'a> OptimizerSliceCursor<'a> {
    fn new(state: &'a mut [f32], planes: usize) -> Self {
        Self {
            rest: state,
            planes,
            open: OptimizerSlice::default(),
        }
    }

    /// Takes the state of the next `len` values.
    fn take(&mut self, len: usize) -> Vec<OptimizerSlice<'a>> {
        if self.planes == 0 {
            return vec![OptimizerSlice {
                len,
                ..OptimizerSlice::default()
            }];
        }
        let mut out = Vec::new();
        let mut wanted = len;
        while wanted > 0 {
            if self.open.len == 0 {
                self.open = self.next();
            }
            let len = wanted.min(self.open.len);
            let planes = self.open.split_off(len);
            out.push(OptimizerSlice { len, planes });
            wanted -= len;
        }
        out
    }

    fn next(&mut self) -> OptimizerSlice<'a> {
        let floats = self.rest.len().min(CHUNK * self.planes);
        let chunk = self.rest.split_off_mut(..floats).expect("no more than all");
        let len = floats / self.planes;
        let (first, second) = chunk.split_at_mut(len);
        OptimizerSlice {
            len,
            planes: [first, second],
        }
    }
}
