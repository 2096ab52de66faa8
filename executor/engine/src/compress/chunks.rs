//! A block chunk by chunk.

use super::{CHUNK, Codec, DecodeError, Key, Mode, Prepared, State};
use std::ops::Range;

/// A block that is being encoded: each call of [`Self::next_chunk`] gives the bytes of one chunk, ready to be sent.
#[derive(Debug)]
pub struct Encoding<'a> {
    codec: &'a dyn Codec,
    key: Key,
    prepared: Prepared,
    gradients: &'a [f32],
    state: State<'a>,
    next: usize,
}

impl<'a> Encoding<'a> {
    /// Looks at the block as a whole; nothing is encoded yet. A block that is begun must be encoded to its end, or else a part of
    /// its gradients is in neither the bytes nor the residual.
    ///
    /// # Panics
    /// When a plane that the codec needs has another length than the gradients.
    #[must_use]
    pub fn begin(
        codec: &'a dyn Codec,
        key: Key,
        gradients: &'a [f32],
        mut state: State<'a>,
    ) -> Self {
        let prepared = codec.prepare(key, gradients, &mut state);
        Self::resume(codec, key, prepared, gradients, state)
    }

    /// As [`Self::begin`] for a block that the caller has prepared, and may have agreed on with the other workers.
    #[must_use]
    pub fn resume(
        codec: &'a dyn Codec,
        key: Key,
        prepared: Prepared,
        gradients: &'a [f32],
        state: State<'a>,
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

    /// Encodes the next chunk into the front of `out`. Returns the numbers it stands for, as a range of the block, and the bytes
    /// written; `None` when the block is done.
    ///
    /// # Panics
    /// When `out` is shorter than the codec's bound for a chunk.
    pub fn next_chunk(&mut self, out: &mut [u8]) -> Option<(Range<usize>, usize)> {
        let start = self.next * CHUNK;
        if start >= self.gradients.len() {
            return None;
        }
        let range = start..self.gradients.len().min(start + CHUNK);
        let state = State {
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

/// A chunk's part of a plane, or nothing of a plane that the codec does not have.
fn part<'a>(plane: &'a mut [f32], range: &Range<usize>) -> &'a mut [f32] {
    plane.get_mut(range.clone()).unwrap_or_default()
}

/// The most bytes that a block of `len` numbers takes.
#[must_use]
pub fn max_encoded_bytes(codec: &dyn Codec, len: usize) -> usize {
    let last = match len % CHUNK {
        0 => 0,
        rest => codec.max_chunk_bytes(rest),
    };
    len / CHUNK * codec.max_chunk_bytes(CHUNK) + last
}

/// Encodes a whole block into the front of `out` and returns the bytes written.
///
/// # Panics
/// When `out` is shorter than [`max_encoded_bytes`] or a plane that the codec needs has another length than the gradients.
pub fn encode(
    codec: &dyn Codec,
    key: Key,
    gradients: &[f32],
    state: State<'_>,
    out: &mut [u8],
) -> usize {
    let mut encoding = Encoding::begin(codec, key, gradients, state);
    let mut written = 0;
    while let Some((_, bytes)) = encoding.next_chunk(&mut out[written..]) {
        written += bytes;
    }
    written
}

/// Decodes a whole block, which must be all of `bytes`, into `out`. A sum of several workers' encodings is one
/// [`Mode::Overwrite`] followed by [`Mode::Add`]s.
///
/// # Errors
/// [`DecodeError`] when the bytes are no encoding of a block of `out`'s length; `out` may then hold a part of it.
pub fn decode(
    codec: &dyn Codec,
    bytes: &[u8],
    out: &mut [f32],
    mode: Mode,
) -> Result<(), DecodeError> {
    let read = decode_front(codec, bytes, out, mode)?;
    match bytes.len() - read {
        0 => Ok(()),
        rest => Err(DecodeError::Trailing(rest)),
    }
}

/// As [`decode`], with whatever may follow; returns the bytes read.
pub(super) fn decode_front(
    codec: &dyn Codec,
    bytes: &[u8],
    out: &mut [f32],
    mode: Mode,
) -> Result<usize, DecodeError> {
    let mut read = 0;
    for chunk in out.chunks_mut(CHUNK) {
        read += codec.decode_chunk(&bytes[read..], chunk, mode)?;
    }
    Ok(read)
}
