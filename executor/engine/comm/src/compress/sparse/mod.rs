//! Sparse codecs: only the largest values are sent, with their positions; the others accumulate in
//! the residual until they are large enough.
//!
//! The largest values are selected exactly (Aji and Heafield, "Sparse Communication for Distributed
//! Gradient Descent", EMNLP 2017) by radix selection on the bits of the magnitudes, by a threshold
//! from a sample, or by a fixed threshold (Strom, "Scalable Distributed DNN Training Using
//! Commodity GPU Cloud Computing", Interspeech 2015). With momentum this is Deep Gradient
//! Compression (Lin et al., ICLR 2018). The worker applies the momentum before it accumulates
//! (momentum correction), and may clear the momentum of the values that it sends (momentum factor
//! masking). The optimizer that updates the parameters must then have no momentum. In the warm-up
//! the sparsity rises from three quarters.
//!
//! A value that is sent after `t` steps with momentum `m` has moved by `t / (1 - m)` gradients if
//! the momentum is kept. If it is cleared at each send, it has moved by only
//! `(t - m (1 - m^t) / (1 - m)) / (1 - m)` gradients. For `m = 0.9` this is a tenth if the value is
//! sent in every step, and nine tenths if it is sent in every hundredth step. Masking thus slows
//! down the most important values most, and more so in the warm-up.

mod pass;
mod select;
mod sum;
mod wire;

pub use sum::SparseSum;

use super::lanes::{Isa, dispatch};
use super::{
    CHUNK, Codec, DecodeError, DecodeMode, EncodingKey, FeedbackPlane, FeedbackState, Prepared,
};
use pass::{Accumulate, MarkKernel};
use wire::{Marks, SparseEncodeKernel};

/// Selection of the values of a block that are sent. Densities are fractions of its values, above 0
/// and at most 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Selection {
    /// The largest `ceil(density · len)` values, or all non-zero ones if there are fewer. Of equal
    /// values the first ones are sent.
    Exact { density: f64 },
    /// Values that reach a threshold, which a sample of the block estimates for `density` with an
    /// error of about a twentieth.
    Sampled { density: f64 },
    /// Values with at least this magnitude, which is above 0.
    Threshold { magnitude: f32 },
}

/// Momentum in the worker, and the density of its first steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correction {
    /// From 0 to below 1.
    pub momentum: f32,
    /// Number of warm-up steps. In its four quarters the density is 1/4, 1/16, 1/64 and 1/256, or
    /// the final density if that is larger.
    pub warm_up_steps: u64,
    /// Whether the momentum of sent values is cleared.
    pub masking: bool,
}

/// Sparse codec. It needs the residual, and with a [`Correction`] the velocity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sparse {
    selection: Selection,
    correction: Option<Correction>,
    isa: Isa,
}

impl Sparse {
    /// Creates the codec. `None` if a density, magnitude or momentum is out of range.
    #[must_use]
    pub fn new(selection: Selection, correction: Option<Correction>) -> Option<Self> {
        let selection_right = match selection {
            Selection::Exact { density } | Selection::Sampled { density } => {
                density > 0.0 && density <= 1.0
            }
            Selection::Threshold { magnitude } => magnitude > 0.0 && magnitude.is_finite(),
        };
        let momentum = correction.map_or(0.0, |correction| correction.momentum);
        (selection_right && (0.0..1.0).contains(&momentum)).then(|| Self {
            selection,
            correction,
            isa: Isa::detect(),
        })
    }

    /// The same codec in plain Rust, which produces the same bytes.
    #[must_use]
    pub fn portable(self) -> Self {
        Self {
            isa: Isa::Portable,
            ..self
        }
    }

    fn accumulate(&self) -> Accumulate {
        match self.correction {
            Some(Correction { momentum, .. }) => Accumulate::Momentum(momentum),
            None => Accumulate::Plain,
        }
    }

    fn density_at(&self, density: f64, step: u64) -> f64 {
        match self.correction {
            Some(Correction { warm_up_steps, .. }) if step < warm_up_steps => {
                let part = u128::from(step) * 4 / u128::from(warm_up_steps);
                density.max(0.25f64.powi(part as i32 + 1))
            }
            _ => density,
        }
    }
}

impl Codec for Sparse {
    fn planes(&self) -> &'static [FeedbackPlane] {
        match self.correction {
            Some(_) => &[FeedbackPlane::Residual, FeedbackPlane::Velocity],
            None => &[FeedbackPlane::Residual],
        }
    }

    fn max_chunk_bytes(&self, len: usize) -> usize {
        wire::max_bytes(len)
    }

    fn prepare(
        &self,
        key: EncodingKey,
        gradients: &[f32],
        state: &mut FeedbackState<'_>,
    ) -> Prepared {
        self.check(gradients, state);
        match self.selection {
            Selection::Exact { density } => {
                let density = self.density_at(density, key.step);
                let count = (density * gradients.len() as f64).ceil() as usize;
                let accumulate = self.accumulate();
                let count = count.min(gradients.len());
                Prepared::Picked(select::exact(
                    self.isa, key, accumulate, gradients, state, count,
                ))
            }
            Selection::Sampled { density } => {
                let density = self.density_at(density, key.step);
                let accumulate = self.accumulate();
                let bits = select::sampled(key, accumulate, gradients, state, density);
                Prepared::Threshold(f32::from_bits(bits))
            }
            Selection::Threshold { magnitude } => Prepared::Threshold(magnitude),
        }
    }

    fn encode_chunk(
        &self,
        _: EncodingKey,
        prepared: &Prepared,
        chunk: usize,
        gradients: &[f32],
        state: FeedbackState<'_>,
        out: &mut [u8],
    ) -> usize {
        self.check(gradients, &state);
        let mut marks: Marks = [0; CHUNK / 64];
        let FeedbackState { residual, velocity } = state;
        let velocity = match self.correction {
            Some(_) => velocity,
            None => &mut [],
        };
        match prepared {
            Prepared::Picked(picked) => {
                let start = chunk * CHUNK;
                let from = picked.partition_point(|index| (*index as usize) < start);
                let of_chunk = picked[from..]
                    .iter()
                    .map(|index| *index as usize - start)
                    .take_while(|offset| *offset < gradients.len());
                for offset in of_chunk {
                    marks[offset / 64] |= 1 << (offset % 64);
                }
            }
            Prepared::Threshold(magnitude) => {
                let pass = MarkKernel {
                    accumulate: self.accumulate(),
                    threshold: magnitude.to_bits().max(1),
                    gradients,
                    velocity: &mut *velocity,
                    residual: &mut *residual,
                    marks: &mut marks,
                };
                dispatch(self.isa, pass);
            }
            _ => panic!("a sparse block was prepared by another codec"),
        }
        let write = SparseEncodeKernel {
            marks: &marks,
            values: residual,
            also: match self.correction {
                Some(Correction { masking: true, .. }) => velocity,
                _ => &mut [],
            },
            out,
        };
        dispatch(self.isa, write)
    }

    fn decode_chunk(
        &self,
        bytes: &[u8],
        out: &mut [f32],
        mode: DecodeMode,
    ) -> Result<usize, DecodeError> {
        match mode {
            DecodeMode::Overwrite => {
                out.fill(0.0);
                wire::read(bytes, out.len(), |offset, value| out[offset] = value)
            }
            DecodeMode::Add => wire::read(bytes, out.len(), |offset, value| out[offset] += value),
        }
    }
}

impl Sparse {
    fn check(&self, gradients: &[f32], state: &FeedbackState<'_>) {
        assert_eq!(gradients.len(), state.residual.len(), "a residual a number");
        if self.correction.is_some() {
            assert_eq!(gradients.len(), state.velocity.len(), "a velocity a number");
        }
    }
}
