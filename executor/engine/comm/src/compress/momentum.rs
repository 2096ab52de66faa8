//! Momentum in the worker, for blocks whose codec is not Deep Gradient Compression.
//!
//! Deep Gradient Compression contains the momentum, so the optimizer that updates the parameters
//! has none. Blocks with another codec, such as small blocks, would then be without momentum. The
//! worker therefore applies it before the block's own codec, as the method's authors do for
//! uncompressed blocks. Momentum is linear: the sum of the workers' velocities is the velocity of
//! their sum.

use super::{Codec, DecodeError, DecodeMode, EncodingKey, FeedbackPlane, FeedbackState, Prepared};
use std::sync::Arc;

/// Computes `velocity = momentum velocity + gradient` and encodes the velocity with another codec.
#[derive(Debug, Clone)]
pub(super) struct WithMomentum {
    momentum: f32,
    codec: Arc<dyn Codec>,
}

impl WithMomentum {
    pub(super) fn new(momentum: f32, codec: Arc<dyn Codec>) -> Self {
        Self { momentum, codec }
    }
}

impl Codec for WithMomentum {
    fn planes(&self) -> &'static [FeedbackPlane] {
        if self.codec.planes().contains(&FeedbackPlane::Residual) {
            &[FeedbackPlane::Residual, FeedbackPlane::Velocity]
        } else {
            &[FeedbackPlane::Velocity]
        }
    }

    fn max_chunk_bytes(&self, len: usize) -> usize {
        self.codec.max_chunk_bytes(len)
    }

    fn prepare(
        &self,
        key: EncodingKey,
        gradients: &[f32],
        state: &mut FeedbackState<'_>,
    ) -> Prepared {
        assert_eq!(gradients.len(), state.velocity.len(), "a velocity a number");
        for (velocity, gradient) in state.velocity.iter_mut().zip(gradients) {
            *velocity = self.momentum * *velocity + gradient;
        }
        let mut rest = FeedbackState {
            residual: state.residual,
            velocity: &mut [],
        };
        self.codec.prepare(key, state.velocity, &mut rest)
    }

    fn encode_chunk(
        &self,
        key: EncodingKey,
        prepared: &Prepared,
        chunk: usize,
        _: &[f32],
        state: FeedbackState<'_>,
        out: &mut [u8],
    ) -> usize {
        let rest = FeedbackState {
            residual: state.residual,
            velocity: &mut [],
        };
        self.codec
            .encode_chunk(key, prepared, chunk, state.velocity, rest, out)
    }

    fn decode_chunk(
        &self,
        bytes: &[u8],
        out: &mut [f32],
        mode: DecodeMode,
    ) -> Result<usize, DecodeError> {
        self.codec.decode_chunk(bytes, out, mode)
    }

    fn is_fixed(&self) -> bool {
        self.codec.is_fixed()
    }

    fn grain(&self) -> usize {
        self.codec.grain()
    }

    fn catch_up(
        &self,
        key: EncodingKey,
        wanted: &[f32],
        known: &mut [f32],
        scratch: &mut Vec<f32>,
        out: &mut [u8],
    ) -> usize {
        self.codec.catch_up(key, wanted, known, scratch, out)
    }
}
