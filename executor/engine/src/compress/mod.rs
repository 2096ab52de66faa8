//! Gradient compression: ranges of gradients into few bytes and back, with what was lost fed back into the next step.
//!
//! A [`Codec`] encodes one block (a parameter tensor, or the piece of one that lives on a shard) in chunks of [`CHUNK`] numbers.
//! A chunk's bytes stand for themselves: they can be sent while the next chunk is encoded, and decoded as they arrive. What a
//! codec loses it keeps in its error feedback ([`State`], arenas laid out like the gradients) and adds to the next step's
//! gradients, so that nothing is lost over time (Seide et al., "1-Bit Stochastic Gradient Descent and its Application to
//! Data-Parallel Distributed Training of Speech DNNs", Interspeech 2014; Karimireddy et al., "Error Feedback Fixes SignSGD", ICML
//! 2019). Unbiased codecs need none.
//!
//! The same gradients, state, configuration and [`Key`] give the same bytes on every processor, whatever the chunks are
//! interleaved with. Bytes from the network are never trusted: a decoder knows how many numbers it must fill, allocates nothing,
//! and answers anything else with a [`DecodeError`].
//!
//! This module must never know sockets, workers or shards.

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
pub use config::{CodecConfig, Codecs, ConfigError, LayerCodec, build};
pub use dense::Dense;
pub use feedback::{Feedback, FeedbackError};
pub use half::{Half, HalfFormat, Rounding};
pub use one_bit::OneBit;
pub use plan::{Plan, PlanError, PlannedBlock};
pub use qsgd::{Norm, Qsgd};
pub use sparse::{Correction, Selection, Sparse, SparseSum};
pub use terngrad::{Scale, TernGrad};

use std::fmt::Debug;

/// Numbers in a chunk: 256 KiB of gradients and as much residual lie in a core's second-level cache, and an offset into a chunk
/// takes 16 bits. The last chunk of a block may be shorter.
pub const CHUNK: usize = 1 << 16;

/// What the randomness of an encoding depends on, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Of the job and the worker's rank together: workers that round alike would add up their errors.
    pub seed: u64,
    /// Updates applied before this one.
    pub step: u64,
    /// Index into the block table.
    pub block: u32,
}

/// An arena that a codec carries from step to step, as long as the gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Plane {
    /// What was not sent yet.
    Residual,
    /// The momentum that a worker applies before it sends (Deep Gradient Compression).
    Velocity,
}

impl Plane {
    /// In checkpoints.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Residual => "compress.residual",
            Self::Velocity => "compress.velocity",
        }
    }
}

/// The error feedback of one block, or of one chunk of it. A plane that the codec does not name in [`Codec::planes`] may be empty.
#[derive(Debug, Default)]
pub struct State<'a> {
    pub residual: &'a mut [f32],
    pub velocity: &'a mut [f32],
}

/// What a codec found out about a whole block before it encodes the first chunk.
#[derive(Debug, Clone, PartialEq)]
pub enum Prepared {
    /// Nothing: chunks are independent.
    Nothing,
    /// One scale for all chunks ([`TernGrad`] by block). Workers that share the largest of theirs send codes that can be summed.
    Scale(f32),
    /// The magnitude from which on numbers are sent.
    Threshold(f32),
    /// The indices of the numbers that are sent, ascending; the gradients are in the residual already.
    Picked(Vec<u32>),
}

/// Whether decoded numbers replace what is there or are added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Overwrite,
    Add,
}

/// Why bytes are no encoding of a block of this length.
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

/// A way to encode gradients. Every length below is in numbers unless it says bytes.
pub trait Codec: Debug + Send + Sync {
    /// The arenas it carries from step to step.
    fn planes(&self) -> &'static [Plane];

    /// The most bytes that a chunk of `len` numbers takes, at most [`CHUNK`].
    fn max_chunk_bytes(&self, len: usize) -> usize;

    /// Looks at a whole block, once per step, before its first chunk is encoded. May update the state.
    fn prepare(&self, key: Key, gradients: &[f32], state: &mut State<'_>) -> Prepared;

    /// Encodes chunk `chunk` of a block into the front of `out`, updates its part of the state, and returns the bytes written.
    ///
    /// `gradients` and the named planes of `state` are the chunk's own numbers, up to [`CHUNK`]; the chunks of a block may be
    /// encoded in any order, each once per step.
    ///
    /// # Panics
    /// When `out` is shorter than [`Self::max_chunk_bytes`] or a named plane has another length than the gradients.
    fn encode_chunk(
        &self,
        key: Key,
        prepared: &Prepared,
        chunk: usize,
        gradients: &[f32],
        state: State<'_>,
        out: &mut [u8],
    ) -> usize;

    /// Decodes the chunk at the front of `bytes` into `out`, which has exactly the chunk's length, and returns the bytes read.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are no chunk of that length. `out` may then hold a part of it.
    fn decode_chunk(&self, bytes: &[u8], out: &mut [f32], mode: Mode)
    -> Result<usize, DecodeError>;

    /// Whether a chunk always takes [`Self::max_chunk_bytes`], and any so many bytes are a chunk.
    fn is_fixed(&self) -> bool {
        false
    }

    /// A chunk's bytes are those of its runs of so many numbers one after the other, as if each were a chunk.
    fn grain(&self) -> usize {
        CHUNK
    }

    /// Encodes what `known` lacks of `wanted`, a chunk, into the front of `out`, and adds to `known` what these bytes stand for; returns the
    /// bytes written. Nothing is carried over: what the bytes lose is lacking the next time too. `scratch` is memory to work in.
    ///
    /// # Panics
    /// As [`Self::encode_chunk`].
    fn catch_up(
        &self,
        key: Key,
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
        let mut state = State {
            residual: lost,
            velocity: &mut [],
        };
        let prepared = self.prepare(key, lacking, &mut state);
        let bytes = self.encode_chunk(key, &prepared, 0, lacking, state, out);
        let decoded = self.decode_chunk(&out[..bytes], known, Mode::Add);
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
