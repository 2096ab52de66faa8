//! Only the largest numbers are sent, with their places; the rest waits in the residual until it is large enough.
//!
//! The largest are found exactly (Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017, by radix on
//! the magnitudes' bits), by a threshold from a sample, or by a fixed threshold (Strom, "Scalable Distributed DNN Training Using
//! Commodity GPU Cloud Computing", Interspeech 2015). With momentum, Deep Gradient Compression (Lin et al., ICLR 2018): the worker
//! applies the momentum before it accumulates (momentum correction), and may clear it for the numbers that it sends (momentum factor
//! masking); the optimizer that updates the parameters must then have none. Sparsity rises from three quarters in the warm-up.
//!
//! A number that is sent after `t` steps has gone `t / (1 - m)` gradients far with its momentum `m` kept, and with it cleared each time
//! only `(t - m (1 - m^t) / (1 - m)) / (1 - m)` of them: a tenth at `m = 0.9` where it is sent in every step, nine tenths where in
//! every hundredth. So masking slows down the very numbers that matter most, and more so in the warm-up.

mod pass;
mod select;
mod sum;
mod wire;

pub use sum::SparseSum;

use super::lanes::{Isa, dispatch};
use super::{CHUNK, Codec, DecodeError, Key, Mode, Plane, Prepared, State};
use pass::{Accumulate, Pass};
use wire::{Marks, Write};

/// What is sent of a block. Densities are shares of its numbers, above 0 and at most 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Selection {
    /// The largest `ceil(density · len)`, or as many as are not zero; of equal ones the first.
    Exact { density: f64 },
    /// Those that reach a threshold which a sample of the block puts at `density`, give or take a twentieth.
    Sampled { density: f64 },
    /// Those of at least this magnitude, above 0.
    Threshold { magnitude: f32 },
}

/// Momentum at the worker, and the density of its first steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correction {
    /// From 0 to below 1.
    pub momentum: f32,
    /// In four equal parts of these steps the density is 1/4, 1/16, 1/64 and 1/256, or the final one where that is larger.
    pub warm_up_steps: u64,
    /// Whether the momentum of what is sent is forgotten.
    pub masking: bool,
}

/// The codec. It needs the residual, and with a [`Correction`] the velocity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sparse {
    selection: Selection,
    correction: Option<Correction>,
    isa: Isa,
}

impl Sparse {
    /// `None` when a density, magnitude or momentum lies outside its range.
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

    /// The same in plain Rust, which gives the same bytes.
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
    fn planes(&self) -> &'static [Plane] {
        match self.correction {
            Some(_) => &[Plane::Residual, Plane::Velocity],
            None => &[Plane::Residual],
        }
    }

    fn max_chunk_bytes(&self, len: usize) -> usize {
        wire::max_bytes(len)
    }

    fn prepare(&self, key: Key, gradients: &[f32], state: &mut State<'_>) -> Prepared {
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
        _: Key,
        prepared: &Prepared,
        chunk: usize,
        gradients: &[f32],
        state: State<'_>,
        out: &mut [u8],
    ) -> usize {
        self.check(gradients, &state);
        let mut marks: Marks = [0; CHUNK / 64];
        let State { residual, velocity } = state;
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
                let pass = Pass {
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
        let write = Write {
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
        mode: Mode,
    ) -> Result<usize, DecodeError> {
        match mode {
            Mode::Overwrite => {
                out.fill(0.0);
                wire::read(bytes, out.len(), |offset, value| out[offset] = value)
            }
            Mode::Add => wire::read(bytes, out.len(), |offset, value| out[offset] += value),
        }
    }
}

impl Sparse {
    fn check(&self, gradients: &[f32], state: &State<'_>) {
        assert_eq!(gradients.len(), state.residual.len(), "a residual a number");
        if self.correction.is_some() {
            assert_eq!(gradients.len(), state.velocity.len(), "a velocity a number");
        }
    }
}
