//! Uncompressed values, for blocks that are too small for compression.

use super::{
    Codec, DecodeError, DecodeMode, EncodingKey, FeedbackPlane, FeedbackState, Prepared, front,
};

/// Codec with four bytes per value, little endian, without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DenseCodec;

impl Codec for DenseCodec {
    fn planes(&self) -> &'static [FeedbackPlane] {
        &[]
    }

    fn max_chunk_bytes(&self, len: usize) -> usize {
        4 * len
    }

    fn prepare(&self, _: EncodingKey, _: &[f32], _: &mut FeedbackState<'_>) -> Prepared {
        Prepared::Nothing
    }

    fn encode_chunk(
        &self,
        _: EncodingKey,
        _: &Prepared,
        _: usize,
        gradients: &[f32],
        _: FeedbackState<'_>,
        out: &mut [u8],
    ) -> usize {
        let bytes = 4 * gradients.len();
        let (words, _) = out[..bytes].as_chunks_mut::<4>();
        for (word, value) in words.iter_mut().zip(gradients) {
            *word = value.to_le_bytes();
        }
        bytes
    }

    fn decode_chunk(
        &self,
        bytes: &[u8],
        out: &mut [f32],
        mode: DecodeMode,
    ) -> Result<usize, DecodeError> {
        let bytes = front(bytes, 4 * out.len())?;
        let (words, _) = bytes.as_chunks::<4>();
        let values = words.iter().map(|word| f32::from_le_bytes(*word));
        match mode {
            DecodeMode::Overwrite => out.iter_mut().zip(values).for_each(|(to, v)| *to = v),
            DecodeMode::Add => out.iter_mut().zip(values).for_each(|(to, v)| *to += v),
        }
        Ok(bytes.len())
    }
    fn is_fixed(&self) -> bool {
        true
    }

    fn grain(&self) -> usize {
        1
    }
}
