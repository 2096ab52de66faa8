//! Encoding and decoding of a block chunk by chunk.

use super::{CHUNK, Codec, DecodeError, DecodeMode, EncodingKey, FeedbackState, Prepared};
use std::ops::Range;

/// A block in encoding: each call of [`Self::next_chunk`] returns the bytes of one chunk, ready to
/// be sent.
#[derive(Debug)]
pub struct Encoding<'a> {
    codec: &'a dyn Codec,
    key: EncodingKey,
    prepared: Prepared,
    gradients: &'a [f32],
    state: FeedbackState<'a>,
    next: usize,
}

impl<'a> Encoding<'a> {
    /// Prepares the block as a whole; no chunk is encoded yet. The encoding of a block must be
    /// continued to its end. Otherwise a part of its gradients is neither in the bytes nor in the
    /// residual.
    ///
    /// # Panics
    /// If a plane that the codec needs has another length than the gradients.
    #[must_use]
    pub fn begin(
        codec: &'a dyn Codec,
        key: EncodingKey,
        gradients: &'a [f32],
        mut state: FeedbackState<'a>,
    ) -> Self {
        let prepared = codec.prepare(key, gradients, &mut state);
        Self::resume(codec, key, prepared, gradients, state)
    }

    /// Like [`Self::begin`], for a block that the caller has prepared and possibly agreed on with
    /// other workers.
    #[must_use]
    pub fn resume(
        codec: &'a dyn Codec,
        key: EncodingKey,
        prepared: Prepared,
        gradients: &'a [f32],
        state: FeedbackState<'a>,
    ) -> Self {
        Self {
            codec,
            key,
            prepared,
            gradients,
            state,
            next: 0,
        }
    }

    /// Encodes the next chunk to the beginning of `out`. Returns its range of the block and the
    /// number of bytes written; `None` after the last chunk.
    ///
    /// # Panics
    /// If `out` is shorter than the codec's bound for a chunk.
    pub fn next_chunk(&mut self, out: &mut [u8]) -> Option<(Range<usize>, usize)> {
        let start = self.next * CHUNK;
        if start >= self.gradients.len() {
            return None;
        }
        let range = start..self.gradients.len().min(start + CHUNK);
        let state = FeedbackState {
            residual: part(self.state.residual, &range),
            velocity: part(self.state.velocity, &range),
        };
        let gradients = &self.gradients[range.clone()];
        let bytes =
            self.codec
                .encode_chunk(self.key, &self.prepared, self.next, gradients, state, out);
        self.next += 1;
        Some((range, bytes))
    }
}

/// Part of a plane that belongs to a chunk; empty for a plane that the codec does not have.
fn part<'a>(plane: &'a mut [f32], range: &Range<usize>) -> &'a mut [f32] {
    plane.get_mut(range.clone()).unwrap_or_default()
}

/// Maximum encoded length in bytes of a block of `len` values.
#[must_use]
pub fn max_encoded_bytes(codec: &dyn Codec, len: usize) -> usize {
    let last = match len % CHUNK {
        0 => 0,
        rest => codec.max_chunk_bytes(rest),
    };
    len / CHUNK * codec.max_chunk_bytes(CHUNK) + last
}

/// Encodes a whole block to the beginning of `out` and returns the number of bytes written.
///
/// # Panics
/// If `out` is shorter than [`max_encoded_bytes`], or a plane that the codec needs has another
/// length than the gradients.
pub fn encode(
    codec: &dyn Codec,
    key: EncodingKey,
    gradients: &[f32],
    state: FeedbackState<'_>,
    out: &mut [u8],
) -> usize {
    let mut encoding = Encoding::begin(codec, key, gradients, state);
    let mut written = 0;
    while let Some((_, bytes)) = encoding.next_chunk(&mut out[written..]) {
        written += bytes;
    }
    written
}

/// Decodes a whole block from all of `bytes` into `out`. To sum the encodings of several workers,
/// use [`DecodeMode::Overwrite`] for the first and [`DecodeMode::Add`] for the others.
///
/// # Errors
/// [`DecodeError`] if the bytes do not encode a block of the length of `out`; `out` may then be
/// partly written.
pub fn decode(
    codec: &dyn Codec,
    bytes: &[u8],
    out: &mut [f32],
    mode: DecodeMode,
) -> Result<(), DecodeError> {
    let read = decode_front(codec, bytes, out, mode)?;
    match bytes.len() - read {
        0 => Ok(()),
        rest => Err(DecodeError::Trailing(rest)),
    }
}

/// Like [`decode`], but further bytes may follow; returns the number of bytes read.
pub(super) fn decode_front(
    codec: &dyn Codec,
    bytes: &[u8],
    out: &mut [f32],
    mode: DecodeMode,
) -> Result<usize, DecodeError> {
    let mut read = 0;
    for chunk in out.chunks_mut(CHUNK) {
        read += codec.decode_chunk(&bytes[read..], chunk, mode)?;
    }
    Ok(read)
}
