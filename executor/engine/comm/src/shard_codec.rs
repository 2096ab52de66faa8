//! Shard codec: encodes the gradients that a worker sends to one PS shard and the parameters that
//! the shard returns. Worker and shard construct the same [`ShardCodec`] from the job's codecs, the
//! network's blocks and the shard's pieces, so it is never sent.
//!
//! Pushes: a worker keeps the loss of a codec as its residual and adds it to its next gradients.
//! Answers: the shard keeps the known parameters, which are the parameters as all workers have
//! them. It encodes the difference between its parameters and the known ones, and adds the decoded
//! difference to the known ones, as each worker does. The loss of one answer is part of the next
//! difference, so the replicas do not drift (the double pass of DoubleSqueeze, Tang et al., ICML
//! 2019). This requires workers in step, so only BSP uses it. It also requires a codec whose error
//! is never larger than its input; therefore answers to TernGrad and sparse codecs are encoded as
//! bfloat16.

use crate::assign::{ParameterPiece, common};
use crate::compress::{
    CHUNK, Codec, CodecConfig, CodecPlan, Codecs, DecodeError, DecodeMode, Encoding, EncodingKey,
    Feedback, HalfFormat, Norm, PlanError, Rounding, build,
};
use muster_compute::model::{ParameterBlock, ParameterRole};
use muster_compute::pages;
use std::ops::Range;
use std::sync::Arc;

/// Part of a block that lies on the shard.
#[derive(Debug)]
struct BlockPart {
    /// Range in the whole arena.
    global: Range<usize>,
    pull: Arc<dyn Codec>,
}

/// Codecs, blocks and ranges that one worker and one shard share.
#[derive(Debug)]
pub struct ShardCodec {
    /// Plan of pushes, indexed by part, in the shard's local order.
    push: CodecPlan,
    parts: Vec<BlockPart>,
}

/// Input of a codec's random numbers, for pushes and answers.
#[derive(Debug, Clone, Copy)]
pub struct Salt {
    /// Seed of the job and of the encoding task.
    pub seed: u64,
    pub step: u64,
}

impl ShardCodec {
    /// Creates the codec of the shard that holds `pieces`.
    ///
    /// # Errors
    /// If a setting of a codec is out of range.
    pub fn new(
        codecs: &Codecs,
        blocks: &[ParameterBlock],
        pieces: &[ParameterPiece],
    ) -> Result<Self, PlanError> {
        let all: Vec<ParameterPiece> = blocks
            .iter()
            .map(|block| ParameterPiece {
                offset: block.offset,
                len: block.len,
            })
            .collect();
        let mut named = Vec::new();
        let mut at = 0;
        let mut globals = Vec::new();
        for part in common(&all, pieces) {
            let block = blocks.partition_point(|block| block.range().end <= part.offset);
            let ParameterBlock { name, role, .. } = &blocks[block];
            named.push((name.as_str(), at..at + part.len, *role));
            at += part.len;
            globals.push(part.range());
        }
        let push = CodecPlan::new(codecs, named)?;
        let mut parts = Vec::with_capacity(globals.len());
        for (planned, global) in push.blocks().iter().zip(globals) {
            let pull = build(&back(planned.config)).map_err(|source| PlanError::Codec {
                name: planned.name.clone(),
                source,
            })?;
            parts.push(BlockPart { global, pull });
        }
        Ok(Self { push, parts })
    }

    /// Creates the error feedback of a worker, for the whole network and any number of shards.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn feedback(codecs: &Codecs, blocks: &[ParameterBlock]) -> Result<Feedback, PlanError> {
        let named = blocks
            .iter()
            .map(|block| (block.name.as_str(), block.range(), block.role));
        Ok(Feedback::new(&CodecPlan::new(codecs, named)?))
    }

    /// Worker: encodes the shard's part of `gradients`, which contain the whole network.
    pub fn encode_push(
        &self,
        salt: Salt,
        gradients: &[f32],
        feedback: &mut Feedback,
        out: &mut Vec<u8>,
    ) {
        pages::resize(out, self.max_push_bytes());
        let mut written = 0;
        for (part, planned) in self.parts.iter().zip(self.push.blocks()) {
            let state = feedback.state(part.global.clone());
            let gradients = &gradients[part.global.clone()];
            let mut encoding =
                Encoding::begin(planned.codec(), part.key(salt, 0), gradients, state);
            while let Some((_, bytes)) = encoding.next_chunk(&mut out[written..]) {
                written += bytes;
            }
        }
        out.truncate(written);
    }

    /// Worker: the shard's part of the residual, plane by plane.
    #[must_use]
    pub fn residual<'a>(&self, feedback: &'a Feedback) -> Vec<&'a [f32]> {
        let parts = feedback.planes().flat_map(|(_, plane)| {
            self.parts
                .iter()
                .map(move |part| &plane[part.global.clone()])
        });
        parts.collect()
    }

    /// Shard: decodes the gradients of a worker, in the local order.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not a valid push.
    pub fn decode_push(&self, bytes: &[u8], gradients: &mut [f32]) -> Result<(), DecodeError> {
        let all = 0..self.parts.len();
        self.push
            .decode(all, bytes, gradients, DecodeMode::Overwrite)
    }

    /// Shard: encodes the difference between `parameters` and `known`, the parameters that the
    /// workers have, and adds the decoded difference to `known`.
    pub fn encode_pull(
        &self,
        salt: Salt,
        parameters: &[f32],
        known: &mut [f32],
        out: &mut Vec<u8>,
    ) {
        pages::resize(out, self.max_pull_bytes());
        let mut written = 0;
        let mut scratch = Vec::new();
        for (part, planned) in self.parts.iter().zip(self.push.blocks()) {
            let parameters = parameters[planned.range.clone()].chunks(CHUNK);
            let known = known[planned.range.clone()].chunks_mut(CHUNK);
            for (chunk, (parameters, known)) in parameters.zip(known).enumerate() {
                let (key, out) = (part.key(salt, chunk), &mut out[written..]);
                written += part
                    .pull
                    .catch_up(key, parameters, known, &mut scratch, out);
            }
        }
        out.truncate(written);
    }

    /// Whether [`Self::chunk_ranges`] is available: the encoded length of every codec, in both
    /// directions, depends on the number of values only.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        let mut all = self.parts.iter().zip(self.push.blocks());
        all.all(|(part, planned)| planned.codec().is_fixed() && part.pull.is_fixed())
    }

    /// Shard: cuts a step into consecutive chunks in the local order, each with its own byte ranges
    /// in pushes and answer.
    ///
    /// # Panics
    /// If a codec has no fixed length.
    #[must_use]
    pub fn chunk_ranges(&self) -> Vec<ChunkRange<'_>> {
        assert!(self.is_fixed(), "bytes of a length that is known");
        let mut out = Vec::new();
        let (mut pushed, mut pulled) = (0, 0);
        for (part, planned) in self.parts.iter().zip(self.push.blocks()) {
            let push = planned.codec();
            for (chunk, start) in planned.range.clone().step_by(CHUNK).enumerate() {
                let range = start..planned.range.end.min(start + CHUNK);
                let push_end = pushed + push.max_chunk_bytes(range.len());
                let pull_end = pulled + part.pull.max_chunk_bytes(range.len());
                out.push(ChunkRange {
                    part,
                    chunk,
                    push,
                    range,
                    push_bytes: pushed..push_end,
                    pull_bytes: pulled..pull_end,
                });
                (pushed, pulled) = (push_end, pull_end);
            }
        }
        out
    }

    /// Worker: decodes the shard's answer and adds it to its `pieces` of the parameters.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not a valid answer.
    ///
    /// # Panics
    /// If the pieces are not those of the shard.
    pub fn decode_pull(
        &self,
        mut bytes: &[u8],
        pieces: &mut [&mut [f32]],
    ) -> Result<(), DecodeError> {
        let mut pieces = pieces.iter_mut();
        let mut piece: &mut [f32] = &mut [];
        for part in &self.parts {
            if piece.is_empty() {
                piece = pieces.next().expect("parts are cut from pieces");
            }
            let (here, rest) = std::mem::take(&mut piece).split_at_mut(part.global.len());
            for chunk in here.chunks_mut(CHUNK) {
                let read = part.pull.decode_chunk(bytes, chunk, DecodeMode::Add)?;
                bytes = &bytes[read..];
            }
            piece = rest;
        }
        match bytes.len() {
            0 => Ok(()),
            rest => Err(DecodeError::Trailing(rest)),
        }
    }

    /// Maximum length of a push in bytes.
    #[must_use]
    pub fn max_push_bytes(&self) -> usize {
        self.push.max_bytes(0..self.parts.len())
    }

    /// Maximum length of an answer in bytes.
    #[must_use]
    pub fn max_pull_bytes(&self) -> usize {
        let bytes =
            |part: &BlockPart| crate::compress::max_encoded_bytes(&*part.pull, part.global.len());
        self.parts.iter().map(bytes).sum()
    }
}

/// Chunk of a part, at most [`CHUNK`] values. A shard processes a step chunk by chunk, so that the
/// values stay in a core's cache.
#[derive(Debug)]
pub struct ChunkRange<'a> {
    part: &'a BlockPart,
    /// Index within the part.
    chunk: usize,
    push: &'a dyn Codec,
    /// Range in the shard's local order.
    pub range: Range<usize>,
    /// Byte range in each push; `pull_bytes` is the byte range in the answer.
    push_bytes: Range<usize>,
    pub pull_bytes: Range<usize>,
}

/// Values that are processed at a time, so that sums, parameters and known parameters stay in the
/// first-level cache.
const RUN: usize = 2048;

impl ChunkRange<'_> {
    /// Number of values that can be processed at a time; the last run may be shorter.
    #[must_use]
    pub fn run(&self) -> usize {
        let grains = [self.push.grain(), self.part.pull.grain()];
        if grains.iter().all(|&grain| RUN.is_multiple_of(grain)) {
            RUN
        } else {
            CHUNK
        }
    }

    /// Decodes the workers' pushes and adds them up in their order into `sum`, which holds the
    /// chunk's values from `start` on.
    ///
    /// # Panics
    /// If a push has a wrong length, or `start` is not the beginning of a run.
    pub fn add_up(&self, pushes: &[&[u8]], start: usize, sum: &mut [f32]) {
        let skipped = self.push_bytes.start + self.push.max_chunk_bytes(start);
        for (index, push) in pushes.iter().enumerate() {
            let mode = match index {
                0 => DecodeMode::Overwrite,
                _ => DecodeMode::Add,
            };
            let decoded = self.push.decode_chunk(&push[skipped..], sum, mode);
            decoded.expect("a push of the right length");
        }
    }

    /// Encodes the difference between `parameters` and `known` for the values from `start` on, into
    /// the same part of `out`, and adds the decoded difference to `known`. `scratch` is working
    /// memory.
    pub fn catch_up(
        &self,
        (salt, start): (Salt, usize),
        parameters: &[f32],
        known: &mut [f32],
        scratch: &mut Vec<f32>,
        out: &mut [u8],
    ) {
        let (pull, key) = (&self.part.pull, self.part.key(salt, self.chunk));
        let out = &mut out[pull.max_chunk_bytes(start)..];
        pull.catch_up(key, parameters, known, scratch, out);
    }
}

impl BlockPart {
    fn key(&self, salt: Salt, chunk: usize) -> EncodingKey {
        EncodingKey {
            seed: salt.seed,
            step: salt.step,
            // The offset differs between any two parts and chunks of a step.
            block: (self.global.start + chunk * CHUNK) as u32,
        }
    }
}

/// Whether a network with codecs has blocks that are never encoded, because they are running
/// statistics and not gradients. Earlier releases encoded them.
#[must_use]
pub fn has_plain_statistics(codecs: Option<&Codecs>, blocks: &[ParameterBlock]) -> bool {
    let mut roles = blocks.iter().map(|block| block.role);
    codecs.is_some() && roles.any(|role| role == ParameterRole::Statistic)
}

/// QSGD for codecs with error feedback. With the Euclidean norm of a bucket, the few levels are so
/// far apart that an error can exceed its input. Error feedback would then add up errors without
/// limit.
pub fn by_largest(bits: u8, bucket: usize) -> CodecConfig {
    CodecConfig::Qsgd {
        bits,
        bucket,
        norm: Norm::Largest,
    }
}

/// Codec of the answers for pushes with `config`.
fn back(config: CodecConfig) -> CodecConfig {
    match config {
        CodecConfig::None {} | CodecConfig::OneBit {} | CodecConfig::Half { .. } => config,
        CodecConfig::Qsgd { bits, bucket, .. } => by_largest(bits, bucket),
        CodecConfig::TernGrad { .. }
        | CodecConfig::TopK { .. }
        | CodecConfig::Threshold { .. }
        | CodecConfig::Dgc { .. } => CodecConfig::Half {
            format: HalfFormat::Bf16,
            rounding: Rounding::Nearest,
            feedback: false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assign::{load, reassign, split_mut};

    fn blocks(lens: &[usize]) -> Vec<ParameterBlock> {
        ParameterBlock::in_a_row(lens.iter().map(|&len| (len, ParameterRole::Weight)))
    }

    fn codecs(codec: CodecConfig) -> Codecs {
        Codecs {
            codec,
            dense_below: 100,
            layers: Vec::new(),
        }
    }

    fn values(len: usize, salt: usize) -> Vec<f32> {
        (0..len)
            .map(|i| ((i * 7_919 + salt * 104_729) % 1_000) as f32 / 500.0 - 1.0)
            .collect()
    }

    /// The shard's parameters move and then rest. With every codec of the answers, later answers
    /// compensate for the loss of earlier ones.
    #[test]
    fn known_parameters_converge_to_the_shards_parameters() {
        let blocks = blocks(&[70_000, 50, 3_000]);
        let len = 73_050;
        let held = reassign(len, &[Vec::new(), Vec::new()]);
        for codec in [
            CodecConfig::None {},
            CodecConfig::OneBit {},
            CodecConfig::Qsgd {
                bits: 8,
                bucket: 512,
                norm: Norm::Largest,
            },
            CodecConfig::Qsgd {
                bits: 4,
                bucket: 4096,
                norm: Norm::Euclidean,
            },
            CodecConfig::TopK {
                density: 0.01,
                sampled: false,
            },
        ] {
            let mut arena = vec![0.0f32; len];
            for pieces in &held {
                let shard_codec = ShardCodec::new(&codecs(codec), &blocks, pieces).unwrap();
                let target = values(load(pieces), 3);
                let mut known = vec![0.0; target.len()];
                let mut off = f32::MAX;
                for step in 0..60 {
                    let salt = Salt { seed: 1, step };
                    let mut bytes = Vec::new();
                    shard_codec.encode_pull(salt, &target, &mut known, &mut bytes);
                    let mut parts = split_mut(&mut arena, std::slice::from_ref(pieces));
                    shard_codec.decode_pull(&bytes, &mut parts[0]).unwrap();
                    let here: Vec<f32> = parts
                        .remove(0)
                        .into_iter()
                        .flat_map(|part| part.to_vec())
                        .collect();
                    assert_eq!(here, known, "the worker has what the shard thinks it has");
                    off = here
                        .iter()
                        .zip(&target)
                        .map(|(a, b)| (a - b).abs())
                        .fold(0.0, f32::max);
                }
                assert!(off < 0.05, "{codec:?}: still off by {off}");
            }
        }
    }

    /// Pushes to two shards equal the push to one shard, and the unsent part stays in the worker's
    /// residual.
    #[test]
    fn pushes_and_their_feedback_add_up_to_the_gradients() {
        let blocks = blocks(&[70_000, 50, 3_000]);
        let len = 73_050;
        let held = reassign(len, &[Vec::new(), Vec::new(), Vec::new()]);
        let codecs = codecs(CodecConfig::OneBit {});
        let mut feedback = ShardCodec::feedback(&codecs, &blocks).unwrap();
        let gradients = values(len, 5);
        let mut sum = vec![0.0f32; len];
        for pieces in &held {
            let shard_codec = ShardCodec::new(&codecs, &blocks, pieces).unwrap();
            let mut bytes = Vec::new();
            let salt = Salt { seed: 9, step: 0 };
            shard_codec.encode_push(salt, &gradients, &mut feedback, &mut bytes);
            assert!(bytes.len() < load(pieces) / 6);
            let mut decoded = vec![0.0; load(pieces)];
            shard_codec.decode_push(&bytes, &mut decoded).unwrap();
            let mut at = 0;
            for piece in pieces {
                sum[piece.range()].copy_from_slice(&decoded[at..at + piece.len]);
                at += piece.len;
            }
            assert!(shard_codec.decode_push(&bytes[1..], &mut decoded).is_err());
        }
        let (_, residual) = feedback.planes().next().unwrap();
        for i in 0..len {
            assert!((sum[i] + residual[i] - gradients[i]).abs() < 1e-5, "{i}");
        }
    }
}
