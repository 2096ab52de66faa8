//! Plan of the codecs of an arena's blocks, and buckets of blocks.

use super::chunks::{self, Encoding};
use super::config::{CodecConfig, CodecConfigError, Codecs, build};
use super::feedback::Feedback;
use super::momentum::WithMomentum;
use super::{Codec, DecodeError, DecodeMode, EncodingKey, FeedbackPlane};
use muster_compute::model::ParameterRole;
use std::ops::Range;
use std::sync::Arc;

/// Block of the arena with its codec.
#[derive(Debug, Clone)]
pub struct PlannedBlock {
    pub name: String,
    /// Range in the arena.
    pub range: Range<usize>,
    pub config: CodecConfig,
    codec: Arc<dyn Codec>,
}

/// Codecs of a whole block table. Both ends construct it from the same configuration and table, so
/// it is never sent.
#[derive(Debug, Clone)]
pub struct CodecPlan {
    blocks: Vec<PlannedBlock>,
    len: usize,
}

/// Why a plan cannot be constructed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    #[error("no codec for block {name}")]
    Codec {
        name: String,
        #[source]
        source: CodecConfigError,
    },
    #[error("block {name} begins before the one in front of it ends")]
    Order { name: String },
}

impl CodecPlan {
    /// Creates a plan. `blocks` contains names, ranges and roles, ascending; gaps in the arena are
    /// not touched. For a PS shard the blocks are the pieces on it, with offsets in the worker's
    /// arena on the worker and in its own arena on the shard. A codec sees only a block's length
    /// and its index in the table.
    ///
    /// Running statistics are always sent without a codec. Their gradients are the steps
    /// of a running mean. A residual of them would apply to other parameters when it is sent, and
    /// with momentum a variance would become negative.
    ///
    /// # Errors
    /// [`PlanError`] if a setting is out of range or blocks overlap.
    pub fn new<'a>(
        config: &Codecs,
        blocks: impl IntoIterator<Item = (&'a str, Range<usize>, ParameterRole)>,
    ) -> Result<Self, PlanError> {
        let momentum = config.momentum().filter(|momentum| *momentum > 0.0);
        let mut plan = Self {
            blocks: Vec::new(),
            len: 0,
        };
        for (name, range, role) in blocks {
            let name = name.to_owned();
            if range.start < plan.len || range.end < range.start {
                return Err(PlanError::Order { name });
            }
            let is_followed = role == ParameterRole::Statistic;
            let config = if is_followed {
                CodecConfig::None {}
            } else {
                config.codec_of(&name, range.len())
            };
            let codec = match build(&config) {
                Ok(codec) => codec,
                Err(source) => return Err(PlanError::Codec { name, source }),
            };
            let codec = match momentum {
                Some(momentum) if !is_followed && !matches!(config, CodecConfig::Dgc { .. }) => {
                    Arc::new(WithMomentum::new(momentum, codec))
                }
                _ => codec,
            };
            plan.len = range.end;
            plan.blocks.push(PlannedBlock {
                name,
                range,
                config,
                codec,
            });
        }
        Ok(plan)
    }

    #[must_use]
    pub fn blocks(&self) -> &[PlannedBlock] {
        &self.blocks
    }

    /// Length of the arena, up to the end of the last block.
    #[must_use]
    pub fn arena_len(&self) -> usize {
        self.len
    }

    /// Planes that the codecs keep from step to step.
    #[must_use]
    pub fn planes(&self) -> Vec<FeedbackPlane> {
        let all = [FeedbackPlane::Residual, FeedbackPlane::Velocity];
        all.into_iter()
            .filter(|plane| {
                let mut codecs = self.blocks.iter().map(|block| &block.codec);
                codecs.any(|codec| codec.planes().contains(plane))
            })
            .collect()
    }

    /// Maximum encoded length in bytes of a bucket of blocks.
    #[must_use]
    pub fn max_bytes(&self, bucket: Range<usize>) -> usize {
        self.blocks[bucket]
            .iter()
            .map(|block| chunks::max_encoded_bytes(&*block.codec, block.range.len()))
            .sum()
    }

    /// Begins the encoding of one block of `gradients`, which is the whole arena. Its chunks can be
    /// sent as they are encoded.
    ///
    /// # Panics
    /// If the gradients or the feedback have another length than the plan.
    pub fn begin<'a>(
        &'a self,
        seed: u64,
        step: u64,
        block: usize,
        gradients: &'a [f32],
        feedback: &'a mut Feedback,
    ) -> Encoding<'a> {
        let planned = &self.blocks[block];
        let key = EncodingKey {
            seed,
            step,
            block: u32::try_from(block).expect("fewer than 2^32 blocks"),
        };
        let range = planned.range.clone();
        let state = feedback.state(range.clone());
        Encoding::begin(&*planned.codec, key, &gradients[range], state)
    }

    /// Encodes a bucket of blocks in order to the beginning of `out` and returns the number of
    /// bytes written.
    ///
    /// # Panics
    /// If `out` is shorter than [`Self::max_bytes`].
    pub fn encode(
        &self,
        seed: u64,
        step: u64,
        bucket: Range<usize>,
        gradients: &[f32],
        feedback: &mut Feedback,
        out: &mut [u8],
    ) -> usize {
        let mut written = 0;
        for block in bucket {
            let mut encoding = self.begin(seed, step, block, gradients, feedback);
            while let Some((_, bytes)) = encoding.next_chunk(&mut out[written..]) {
                written += bytes;
            }
        }
        written
    }

    /// Decodes a bucket of blocks from all of `bytes` into `arena`, replacing or adding according
    /// to `mode`.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes do not encode this bucket; its values may then be partly
    /// changed.
    pub fn decode(
        &self,
        bucket: Range<usize>,
        mut bytes: &[u8],
        arena: &mut [f32],
        mode: DecodeMode,
    ) -> Result<(), DecodeError> {
        for block in &self.blocks[bucket] {
            let out = &mut arena[block.range.clone()];
            let read = chunks::decode_front(&*block.codec, bytes, out, mode)?;
            bytes = &bytes[read..];
        }
        match bytes.len() {
            0 => Ok(()),
            rest => Err(DecodeError::Trailing(rest)),
        }
    }
}

impl PlannedBlock {
    #[must_use]
    pub fn codec(&self) -> &dyn Codec {
        &*self.codec
    }
}
