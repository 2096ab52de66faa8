//! All-reduce of encoded gradients in two legs, without a server.
//!
//! Each worker owns a part of the chunks. On the first leg every worker encodes its gradients and
//! keeps the loss of the codec as its residual. It sends each owner the chunks of that owner's
//! part; the owner adds them in order of rank. On the second leg the owner encodes the sum, keeps
//! the loss for its next sums and sends the bytes to all. All workers decode the same bytes, the
//! owner too, so all have the same bits. The loss of either leg is thus sent later. This is the
//! double pass of DoubleSqueeze (Tang et al., ICML 2019), by reduce-scatter and all-gather as in
//! 1-bit Adam (Tang et al., ICML 2021). Sums of sparse gradients are sent without loss, in sparse
//! encoding (SparCML's split and all-gather, Renggli et al., SC 2019).
//!
//! Gradients are encoded once per step. A death during the sum repeats it from the same bytes, with
//! the chunks divided again. An owner adds the residual of a chunk that now belongs to another
//! worker to its own next gradients. So a change of members loses only the residuals of dead
//! members.

mod residuals;
#[cfg(test)]
mod tests;
mod units;

use crate::worker::head::HEAD;
use muster_comm::collective::{AllReduceAlgorithm, CollectiveGroup, Reduced, all_reduce};
use muster_comm::compress::{
    CHUNK, Codec, CodecConfig, CodecPlan, Codecs, DecodeMode, Encoding, EncodingKey, Feedback,
    FeedbackPlane, FeedbackState, HalfFormat, PlanError, Rounding, build,
};
use muster_comm::fabric::{FabricError, Mesh};
use muster_comm::shard_codec::by_largest;
use muster_compute::model::ParameterBlock;
use std::ops::Range;
use std::sync::Arc;
use units::{EncodingUnit, deal, decode, own_units, span, trade, units};

/// Number of the second leg's random stream; it differs from all ranks.
const SECOND_LEG: u64 = 0x6261_636b;

/// Encoded all-reduce of one worker.
#[derive(Debug)]
pub struct EncodedAllReduce {
    plan: CodecPlan,
    /// Codecs of the second leg, by block.
    back: Vec<Arc<dyn Codec>>,
    seed: u64,
    feedback: Feedback,
    /// Residual of the sums that this worker owned; as long as the parameters.
    sum_residual: Vec<f32>,
    /// Ranges in which `sum_residual` may differ from 0.
    residual_ranges: Vec<Range<usize>>,
    sent: EncodedGradients,
    pending: PendingResidual,
}

/// Encoded gradients of this step, unit after unit, each aligned to a word.
#[derive(Debug, Default)]
struct EncodedGradients {
    step: u64,
    units: Vec<EncodingUnit>,
    words: Vec<u32>,
    /// End of each unit's words.
    ends: Vec<usize>,
}

impl EncodedGradients {
    /// Returns the words of some consecutive units.
    fn words_of(&self, units: &Range<usize>) -> &[u32] {
        let [start, end] = [units.start, units.end]
            .map(|unit| unit.checked_sub(1).map_or(0, |before| self.ends[before]));
        &self.words[start..end]
    }
}

/// Residual that this worker has if the sum of `view` is completed.
#[derive(Debug, Default)]
struct PendingResidual {
    view: u64,
    range: Range<usize>,
    sum_residual: Vec<f32>,
}

impl EncodedAllReduce {
    /// Creates an all-reduce without residuals.
    ///
    /// # Errors
    /// When a codec's settings are outside their range.
    pub fn new(codecs: &Codecs, blocks: &[ParameterBlock], seed: u64) -> Result<Self, PlanError> {
        let named = blocks
            .iter()
            .map(|block| (block.name.as_str(), block.range(), block.role));
        let plan = CodecPlan::new(codecs, named)?;
        let back = plan.blocks().iter().map(|block| {
            build(&back(block.config)).map_err(|source| PlanError::Codec {
                name: block.name.clone(),
                source,
            })
        });
        Ok(Self {
            back: back.collect::<Result<_, _>>()?,
            feedback: Feedback::new(&plan),
            sum_residual: vec![0.0; plan.arena_len()],
            residual_ranges: Vec::new(),
            sent: EncodedGradients::default(),
            pending: PendingResidual::default(),
            plan,
            seed,
        })
    }

    /// Like [`CollectiveGroup::all_reduce`], for the gradients in `arena`, which are whole blocks.
    /// The sums are the decoded ones. The head is summed without a codec, if `arena` begins with
    /// it.
    ///
    /// # Errors
    /// [`FabricError`].
    pub fn all_reduce(
        &mut self,
        group: &mut CollectiveGroup,
        step: u64,
        arena: Range<usize>,
    ) -> Result<Reduced, FabricError> {
        let bucket = arena.start.saturating_sub(HEAD)..arena.end - HEAD;
        let (rank, size) = (group.rank(), group.view().members.len());
        let mut head = [0.0; HEAD];
        if arena.start == 0 {
            head.copy_from_slice(&group.gradients_mut()[..HEAD]);
        }
        let gradients = &mut group.gradients_mut()[HEAD..];
        self.encode(step, bucket, gradients, (rank, size));
        let reduced = group.all_reduce_by(arena.clone(), |mesh, view, output| {
            // The sum of the heads proves that all members are present and no longer need the
            // previous sums.
            let mut heads = [0.0; HEAD];
            all_reduce(mesh, AllReduceAlgorithm::Tree, &[], &head, &mut heads)?;
            if arena.start == 0 {
                output[..HEAD].copy_from_slice(&heads);
            }
            self.exchange(mesh, view, &mut output[HEAD..])
        })?;
        self.settle(reduced.view);
        Ok(reduced)
    }

    /// Encodes the gradients of `bucket`. First adds this worker's residuals of sums in chunks that
    /// other workers own now.
    fn encode(
        &mut self,
        step: u64,
        bucket: Range<usize>,
        gradients: &mut [f32],
        (rank, size): (usize, usize),
    ) {
        let units = units(&self.plan, &bucket);
        let own = span(&units, deal(&units, size)[rank].clone());
        for range in std::mem::take(&mut self.residual_ranges) {
            for part in [
                range.start..range.end.min(bucket.start),
                range.start.max(own.start)..range.end.min(own.end),
                range.start.max(bucket.end)..range.end,
            ] {
                self.keep(part);
            }
            let (a, b) = (range.start.max(bucket.start), range.end.min(bucket.end));
            for part in [a..b.min(own.start.max(a)), a.max(own.end.min(b))..b] {
                for at in part {
                    gradients[at] += std::mem::take(&mut self.sum_residual[at]);
                }
            }
        }
        let seed = mixed(self.seed, rank as u64 + 1);
        let sent = &mut self.sent;
        sent.step = step;
        sent.ends.clear();
        let most = units.iter().map(|unit| {
            let codec = self.plan.blocks()[unit.block].codec();
            codec.max_chunk_bytes(unit.range.len()).div_ceil(4)
        });
        sent.words.resize(most.sum(), 0);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut sent.words);
        let mut written = 0;
        let mut next = 0;
        while let Some(EncodingUnit { block, .. }) = units.get(next) {
            let mut encoding = self
                .plan
                .begin(seed, step, *block, gradients, &mut self.feedback);
            while let Some((_, count)) = encoding.next_chunk(&mut bytes[written..]) {
                written += count;
                let whole = written.next_multiple_of(4);
                bytes[written..whole].fill(0);
                written = whole;
                sent.ends.push(written / 4);
                next += 1;
            }
        }
        sent.units = units;
    }

    fn keep(&mut self, range: Range<usize>) {
        if !range.is_empty() && !self.residual_ranges.contains(&range) {
            self.residual_ranges.push(range);
        }
    }

    /// Does both legs of one attempt. `output` is as long as the parameters; its part for the
    /// bucket becomes the sum.
    fn exchange(
        &mut self,
        mesh: &mut Mesh,
        view: u64,
        output: &mut [f32],
    ) -> Result<(), FabricError> {
        let sent = &self.sent;
        let units = &sent.units;
        let (rank, size) = (mesh.rank(), mesh.size());
        let dealt = deal(units, size);
        let own = &units[dealt[rank].clone()];
        let most: usize = own.iter().map(|unit| self.most_words(unit)).sum();
        let mut received: Vec<Vec<u32>> = vec![Vec::new(); size];
        for hop in 1..size {
            let (to, from) = ((rank + hop) % size, (rank + size - hop) % size);
            received[from] = trade(mesh, (to, sent.words_of(&dealt[to])), (from, most))?;
        }
        let part = span(units, dealt[rank].clone());
        for (contributor, words) in received.iter().enumerate() {
            let words = if contributor == rank {
                sent.words_of(&dealt[rank])
            } else {
                words
            };
            let mode = match contributor {
                0 => DecodeMode::Overwrite,
                _ => DecodeMode::Add,
            };
            let plan = &self.plan;
            let decoded = decode(
                own,
                |unit| plan.blocks()[unit.block].codec(),
                words,
                output,
                mode,
            );
            decoded.ok_or(FabricError::Nonsense { rank: contributor })?;
        }
        self.pending.view = view;
        self.pending.range = part.clone();
        if size == 1 {
            self.keep_whole(part, output);
            return Ok(());
        }
        let step = sent.step;
        let sum = self.encode_sum(step, dealt[rank].clone(), output);
        let (units, back) = (&self.sent.units, &self.back);
        decode(
            own_units(units, &dealt, rank),
            |unit| &*back[unit.block],
            &sum,
            output,
            DecodeMode::Overwrite,
        )
        .expect("its own encoding");
        for hop in 1..size {
            let (to, from) = ((rank + hop) % size, (rank + size - hop) % size);
            let theirs = own_units(units, &dealt, from);
            let most = theirs.iter().map(|unit| self.most_words(unit)).sum();
            let words = trade(mesh, (to, &sum), (from, most))?;
            let decoded = decode(
                theirs,
                |unit| &*back[unit.block],
                &words,
                output,
                DecodeMode::Overwrite,
            );
            decoded.ok_or(FabricError::Nonsense { rank: from })?;
        }
        Ok(())
    }

    /// Completes the sums of a single worker. They need no codec and include the whole residual of
    /// earlier sums.
    fn keep_whole(&mut self, part: Range<usize>, output: &mut [f32]) {
        for (sum, sum_residual) in output[part.clone()]
            .iter_mut()
            .zip(&self.sum_residual[part.clone()])
        {
            *sum += sum_residual;
        }
        self.pending.sum_residual.clear();
        self.pending.sum_residual.resize(part.len(), 0.0);
    }

    /// Encodes the sums in `output` that this worker owns. The loss becomes the pending residual.
    fn encode_sum(&mut self, step: u64, own: Range<usize>, output: &[f32]) -> Vec<u32> {
        let units = &self.sent.units[own.clone()];
        let whole = span(&self.sent.units, own);
        self.pending.sum_residual.clear();
        self.pending
            .sum_residual
            .extend_from_slice(&self.sum_residual[whole.clone()]);
        let most: usize = units.iter().map(|unit| self.most_words(unit)).sum();
        let mut words = vec![0u32; most];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let mut written = 0;
        let (mut value, mut made) = (vec![0.0; CHUNK], vec![0.0; CHUNK]);
        for unit in units {
            let codec = &*self.back[unit.block];
            let len = unit.range.len();
            let at = unit.range.start - whole.start;
            let sum_residual = &mut self.pending.sum_residual[at..at + len];
            let key = EncodingKey {
                seed: mixed(self.seed, SECOND_LEG),
                step,
                // The place distinguishes the units of a step.
                block: unit.range.start as u32,
            };
            let sum = &output[unit.range.clone()];
            if codec.planes().contains(&FeedbackPlane::Residual) {
                let state = FeedbackState {
                    residual: sum_residual,
                    velocity: &mut [],
                };
                let mut encoding = Encoding::begin(codec, key, sum, state);
                let (_, count) = encoding
                    .next_chunk(&mut bytes[written..])
                    .expect("a unit is not empty");
                written += count;
            } else {
                let (value, made) = (&mut value[..len], &mut made[..len]);
                for ((value, sum), sum_residual) in value.iter_mut().zip(sum).zip(&*sum_residual) {
                    *value = sum + sum_residual;
                }
                let mut encoding = Encoding::begin(codec, key, value, FeedbackState::default());
                let (_, count) = encoding
                    .next_chunk(&mut bytes[written..])
                    .expect("a unit is not empty");
                codec
                    .decode_chunk(
                        &bytes[written..written + count],
                        made,
                        DecodeMode::Overwrite,
                    )
                    .expect("its own encoding");
                for ((sum_residual, value), made) in sum_residual.iter_mut().zip(value).zip(made) {
                    *sum_residual = *value - *made;
                }
                written += count;
            }
            let end = written.next_multiple_of(4);
            bytes[written..end].fill(0);
            written = end;
        }
        words.truncate(written / 4);
        words
    }

    /// Returns the maximum number of words of a unit on either leg.
    fn most_words(&self, unit: &EncodingUnit) -> usize {
        let len = unit.range.len();
        let forth = self.plan.blocks()[unit.block].codec().max_chunk_bytes(len);
        let back = self.back[unit.block].max_chunk_bytes(len);
        forth.max(back).div_ceil(4)
    }

    /// Applies the pending residual if the completed sum is that of `view`. The residual of an
    /// interrupted attempt is discarded.
    fn settle(&mut self, view: u64) {
        let PendingResidual { range, .. } = &self.pending;
        if self.pending.view == view && !range.is_empty() {
            let range = range.clone();
            self.sum_residual[range.clone()].copy_from_slice(&self.pending.sum_residual);
            self.keep(range);
        }
        self.pending.range = 0..0;
    }
}

/// Returns a separate seed for each number.
fn mixed(seed: u64, number: u64) -> u64 {
    seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

/// Returns the codec of sums for gradients encoded with `config`.
fn back(config: CodecConfig) -> CodecConfig {
    match config {
        CodecConfig::None {} | CodecConfig::Half { .. } => config,
        CodecConfig::Qsgd { bits, bucket, .. } => by_largest(bits, bucket),
        // One-bit codes on both legs diverge at smaller learning rates already.
        CodecConfig::OneBit {} => by_largest(4, 512),
        // The error of three levels exceeds the sum itself; feedback cannot correct it.
        CodecConfig::TernGrad { .. } => CodecConfig::Half {
            format: HalfFormat::Bf16,
            rounding: Rounding::Nearest,
            feedback: true,
        },
        // Sends all values other than 0.
        CodecConfig::TopK { .. } | CodecConfig::Threshold { .. } | CodecConfig::Dgc { .. } => {
            CodecConfig::Threshold {
                magnitude: f32::from_bits(1),
            }
        }
    }
}
