//! Gradient compression: codecs that encode ranges of gradients in few bytes, with error feedback
//! into the next step.
//!
//! A [`Codec`] encodes one block (a parameter tensor, or the piece of a tensor on a shard) in
//! chunks of [`CHUNK`] values. Chunks are independent: a chunk can be sent while the next one is
//! encoded, and decoded when it arrives. A codec keeps its loss as error feedback
//! ([`FeedbackState`], arenas with the layout of the gradients) and adds it to the gradients of the
//! next step. Nothing is lost over time (Seide et al., "1-Bit Stochastic Gradient Descent and its
//! Application to Data-Parallel Distributed Training of Speech DNNs", Interspeech 2014; Karimireddy
//! et al., "Error Feedback Fixes SignSGD", ICML 2019). Unbiased codecs need no error feedback.
//!
//! The same gradients, state, configuration and [`EncodingKey`] give the same bytes on every
//! processor, independent of the order of chunks. Bytes from the network are not trusted: a decoder
//! knows the number of values to fill, allocates nothing, and returns a [`DecodeError`] for any
//! other input.
//!
//! This module must not depend on sockets, workers or shards.

mod chunks;
mod config;
mod dense;
mod feedback;
mod half;
mod lanes;
mod momentum;
mod noise;
mod one_bit;
mod packing;
mod plan;
mod qsgd;
mod sparse;
mod terngrad;

pub use chunks::{Encoding, decode, encode, max_encoded_bytes};
pub use config::{CodecConfig, CodecConfigError, Codecs, LayerCodec, build};
pub use dense::DenseCodec;
pub use feedback::{Feedback, FeedbackError};
pub use half::{HalfCodec, HalfFormat, Rounding};
pub use one_bit::OneBit;
pub use plan::{CodecPlan, PlanError, PlannedBlock};
pub use qsgd::{Norm, Qsgd};
pub use sparse::{Correction, Selection, Sparse, SparseSum};
pub use terngrad::{Scale, TernGrad};

use std::fmt::Debug;

/// Values per chunk. 256 KiB of gradients and the same amount of residual fit into a core's
/// second-level cache, and an offset in a chunk takes 16 bits. The last chunk of a block may be
/// shorter.
pub const CHUNK: usize = 1 << 16;

/// All inputs of an encoding's random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodingKey {
    /// Seed of the job and the worker's rank together. Workers with equal rounding would add up
    /// their errors.
    pub seed: u64,
    /// Number of updates applied before this one.
    pub step: u64,
    /// Index into the block table.
    pub block: u32,
}

/// Arena that a codec keeps from step to step, as long as the gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FeedbackPlane {
    /// Part of the gradients that has not been sent yet.
    Residual,
    /// Momentum that a worker applies before it sends (Deep Gradient Compression).
    Velocity,
}

impl FeedbackPlane {
    /// Name in checkpoints.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Residual => "compress.residual",
            Self::Velocity => "compress.velocity",
        }
    }
}

/// Error feedback of one block or one chunk. A plane that is not in [`Codec::planes`] may be empty.
#[derive(Debug, Default)]
pub struct FeedbackState<'a> {
    pub residual: &'a mut [f32],
    pub velocity: &'a mut [f32],
}

/// Result of a codec's pass over a whole block before the first chunk is encoded.
#[derive(Debug, Clone, PartialEq)]
pub enum Prepared {
    /// No result: chunks are independent.
    Nothing,
    /// One scale for all chunks ([`TernGrad`] by block). Workers that use the largest of their
    /// scales send codes that can be summed.
    Scale(f32),
    /// Minimum magnitude of values that are sent.
    Threshold(f32),
    /// Ascending indices of the values that are sent; the gradients are already in the residual.
    Picked(Vec<u32>),
}

/// Whether decoded values replace the present ones or are added to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeMode {
    Overwrite,
    Add,
}

/// Why bytes do not encode a block of this length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("an encoding ends after {got} bytes where {needed} belong")]
    Truncated { needed: usize, got: usize },
    #[error("{0} bytes follow a complete encoding")]
    Trailing(usize),
    #[error("a chunk of {len} numbers announces {got}")]
    Count { got: usize, len: usize },
    #[error("a chunk of {len} numbers names number {got}, or names numbers out of order")]
    Index { got: usize, len: usize },
}

/// Encoding of gradients. Lengths are numbers of values unless bytes are stated.
pub trait Codec: Debug + Send + Sync {
    /// Arenas that the codec keeps from step to step.
    fn planes(&self) -> &'static [FeedbackPlane];

    /// Maximum encoded length in bytes of a chunk of `len` values, where `len` is at most
    /// [`CHUNK`].
    fn max_chunk_bytes(&self, len: usize) -> usize;

    /// Inspects a whole block, once per step, before its first chunk is encoded. May update the
    /// state.
    fn prepare(
        &self,
        key: EncodingKey,
        gradients: &[f32],
        state: &mut FeedbackState<'_>,
    ) -> Prepared;

    /// Encodes chunk number `chunk` of a block to the beginning of `out`, updates its part of the
    /// state, and returns the number of bytes written.
    ///
    /// `gradients` and the used planes of `state` contain the values of the chunk only, at most
    /// [`CHUNK`]. The chunks of a block may be encoded in any order, each once per step.
    ///
    /// # Panics
    /// If `out` is shorter than [`Self::max_chunk_bytes`], or a used plane has another length than
    /// the gradients.
    fn encode_chunk(
        &self,
        key: EncodingKey,
        prepared: &Prepared,
        chunk: usize,
        gradients: &[f32],
        state: FeedbackState<'_>,
        out: &mut [u8],
    ) -> usize;

    /// Decodes the chunk at the beginning of `bytes` into `out`, which has exactly the chunk's
    /// length, and returns the number of bytes read.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not a chunk of that length. `out` may then be partly
    /// written.
    fn decode_chunk(
        &self,
        bytes: &[u8],
        out: &mut [f32],
        mode: DecodeMode,
    ) -> Result<usize, DecodeError>;

    /// Whether a chunk always takes [`Self::max_chunk_bytes`], and any bytes of that length are a
    /// valid chunk.
    fn is_fixed(&self) -> bool {
        false
    }

    /// Number of values of a run: the bytes of a chunk are those of its runs in order, as if each
    /// run were a chunk.
    fn grain(&self) -> usize {
        CHUNK
    }

    /// Encodes the difference between the chunks `wanted` and `known` to the beginning of `out`,
    /// and adds the decoded difference to `known`. Returns the number of bytes written. There is no
    /// residual: the loss is part of the next difference. `scratch` is working memory.
    ///
    /// # Panics
    /// As [`Self::encode_chunk`].
    fn catch_up(
        &self,
        key: EncodingKey,
        wanted: &[f32],
        known: &mut [f32],
        scratch: &mut Vec<f32>,
        out: &mut [u8],
    ) -> usize {
        let len = wanted.len();
        scratch.clear();
        scratch.extend(wanted.iter().zip(&*known).map(|(new, known)| new - known));
        scratch.resize(2 * len, 0.0);
        let (lacking, lost) = scratch.split_at_mut(len);
        let mut state = FeedbackState {
            residual: lost,
            velocity: &mut [],
        };
        let prepared = self.prepare(key, lacking, &mut state);
        let bytes = self.encode_chunk(key, &prepared, 0, lacking, state, out);
        let decoded = self.decode_chunk(&out[..bytes], known, DecodeMode::Add);
        decoded.expect("its own encoding");
        bytes
    }
}

/// The first `needed` bytes.
fn front(bytes: &[u8], needed: usize) -> Result<&[u8], DecodeError> {
    bytes.get(..needed).ok_or(DecodeError::Truncated {
        needed,
        got: bytes.len(),
    })
}
