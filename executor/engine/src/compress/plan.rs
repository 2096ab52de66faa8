//! A codec for each block of an arena, and buckets of blocks.

use super::chunks::{self, Encoding};
use super::config::{CodecConfig, Codecs, ConfigError, build};
use super::feedback::Feedback;
use super::momentum::WithMomentum;
use super::{Codec, DecodeError, Key, Mode, Plane};
use crate::model::Role;
use std::ops::Range;
use std::sync::Arc;

/// A block of the arena and what it is encoded with.
#[derive(Debug, Clone)]
pub struct PlannedBlock {
    pub name: String,
    /// In the arena.
    pub range: Range<usize>,
    pub config: CodecConfig,
    codec: Arc<dyn Codec>,
}

/// The codecs of a whole block table. Both ends make it from the same configuration and table, so nothing of it is ever sent.
#[derive(Debug, Clone)]
pub struct Plan {
    blocks: Vec<PlannedBlock>,
    len: usize,
}

/// Why a plan cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    #[error("no codec for block {name}")]
    Codec {
        name: String,
        #[source]
        source: ConfigError,
    },
    #[error("block {name} begins before the one in front of it ends")]
    Order { name: String },
}

impl Plan {
    /// `blocks` gives names, ranges and roles, ascending; an arena's gaps are never touched. For a PS shard these are the pieces of the
    /// blocks that live on it, with offsets of the worker's arena on the worker and of its own on the shard: a codec sees a block's
    /// length and its place in the table only.
    ///
    /// Statistics go as they are whatever the configuration says. Their gradients are the steps of a mean that runs along: what a codec
    /// held back of them would be of other parameters by the time it came, and with momentum a variance runs past 0.
    ///
    /// # Errors
    /// [`PlanError`] when a setting lies outside its range or blocks overlap.
    pub fn new<'a>(
        config: &Codecs,
        blocks: impl IntoIterator<Item = (&'a str, Range<usize>, Role)>,
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
            let is_followed = role == Role::Statistic;
            let config = match is_followed {
                true => CodecConfig::None {},
                false => config.codec_of(&name, range.len()),
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

    /// The arenas that the codecs carry from step to step.
    #[must_use]
    pub fn planes(&self) -> Vec<Plane> {
        let all = [Plane::Residual, Plane::Velocity];
        let is_used = |plane: &Plane| {
            let mut codecs = self.blocks.iter().map(|block| &block.codec);
            codecs.any(|codec| codec.planes().contains(plane))
        };
        all.into_iter().filter(is_used).collect()
    }

    /// The most bytes that a bucket of blocks takes.
    #[must_use]
    pub fn max_bytes(&self, bucket: Range<usize>) -> usize {
        self.blocks[bucket]
            .iter()
            .map(|block| chunks::max_encoded_bytes(&*block.codec, block.range.len()))
            .sum()
    }

    /// Begins to encode one block of `gradients`, the whole arena; its chunks can be sent as they come.
    ///
    /// # Panics
    /// When the gradients or the feedback have another length than the plan.
    pub fn begin<'a>(
        &'a self,
        seed: u64,
        step: u64,
        block: usize,
        gradients: &'a [f32],
        feedback: &'a mut Feedback,
    ) -> Encoding<'a> {
        let planned = &self.blocks[block];
        let key = Key {
            seed,
            step,
            block: u32::try_from(block).expect("fewer than 2^32 blocks"),
        };
        let range = planned.range.clone();
        let state = feedback.state(range.clone());
        Encoding::begin(&*planned.codec, key, &gradients[range], state)
    }

    /// Encodes a bucket of blocks, one after the other, into the front of `out` and returns the bytes written.
    ///
    /// # Panics
    /// When `out` is shorter than [`Self::max_bytes`].
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

    /// Decodes a bucket of blocks, which must be all of `bytes`, into `arena` or onto it.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are no such bucket; the bucket's numbers may then be changed in part.
    pub fn decode(
        &self,
        bucket: Range<usize>,
        mut bytes: &[u8],
        arena: &mut [f32],
        mode: Mode,
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
