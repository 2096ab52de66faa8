//! Single pass over a chunk that accumulates gradients and marks the values that are large enough.

use super::super::lanes::{Lanes, SimdKernel};
use super::wire::Marks;

/// How gradients are added to the residual.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Accumulate {
    /// They are already in the residual.
    Done,
    /// `residual += gradient`.
    Plain,
    /// `velocity = momentum velocity + gradient; residual += velocity` (momentum correction of Deep
    /// Gradient Compression).
    Momentum(f32),
}

/// Marks the values of a chunk whose magnitude's bits are at least `threshold`, which must be
/// positive. Marks beyond the end of the chunk stay unset.
pub(super) struct MarkKernel<'a> {
    pub(super) accumulate: Accumulate,
    pub(super) threshold: u32,
    /// Empty if the gradients are already accumulated.
    pub(super) gradients: &'a [f32],
    /// Empty without momentum.
    pub(super) velocity: &'a mut [f32],
    pub(super) residual: &'a mut [f32],
    pub(super) marks: &'a mut Marks,
}

impl SimdKernel for MarkKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let least = l.splat_u(self.threshold - 1);
        let (residuals, residual_tail) = self.residual.as_chunks_mut::<64>();
        let (gradients, tail) = self.gradients.as_chunks::<64>();
        let (words, last) = self.marks.split_at_mut(residuals.len());
        // Padded with zeros, which no threshold marks.
        let mut residual = padded(residual_tail);
        match self.accumulate {
            Accumulate::Done => {
                for (residual, word) in residuals.iter().zip(words) {
                    *word = marks(l, least, residual);
                }
            }
            Accumulate::Plain => {
                for ((residual, gradient), word) in residuals.iter_mut().zip(gradients).zip(words) {
                    *word = plain(l, least, gradient, residual);
                }
                plain(l, least, &padded(tail), &mut residual);
            }
            Accumulate::Momentum(momentum) => {
                let (velocities, velocity_tail) = self.velocity.as_chunks_mut::<64>();
                let inputs = gradients.iter().zip(velocities);
                for ((residual, (gradient, velocity)), word) in
                    residuals.iter_mut().zip(inputs).zip(words)
                {
                    *word = with_momentum(l, least, momentum, gradient, velocity, residual);
                }
                let mut velocity = padded(velocity_tail);
                with_momentum(
                    l,
                    least,
                    momentum,
                    &padded(tail),
                    &mut velocity,
                    &mut residual,
                );
                velocity_tail.copy_from_slice(&velocity[..velocity_tail.len()]);
            }
        }
        if !residual_tail.is_empty() {
            last[0] = marks(l, least, &residual);
            residual_tail.copy_from_slice(&residual[..residual_tail.len()]);
        }
    }
}

fn padded(tail: &[f32]) -> [f32; 64] {
    let mut whole = [0.0; 64];
    whole[..tail.len()].copy_from_slice(tail);
    whole
}

#[inline(always)]
fn plain<L: Lanes>(l: L, least: L::U, gradient: &[f32; 64], residual: &mut [f32; 64]) -> u64 {
    let mut word = 0;
    let (gradients, _) = gradient.as_chunks::<8>();
    let (residuals, _) = residual.as_chunks_mut::<8>();
    for octet in 0..8 {
        let value = l.add(l.load(&gradients[octet]), l.load(&residuals[octet]));
        l.store(value, &mut residuals[octet]);
        word |= u64::from(large(l, least, value)) << (8 * octet);
    }
    word
}

#[inline(always)]
fn with_momentum<L: Lanes>(
    l: L,
    least: L::U,
    momentum: f32,
    gradient: &[f32; 64],
    velocity: &mut [f32; 64],
    residual: &mut [f32; 64],
) -> u64 {
    let momentum = l.splat(momentum);
    let (gradients, _) = gradient.as_chunks::<8>();
    let (velocities, _) = velocity.as_chunks_mut::<8>();
    for octet in 0..8 {
        let kept = l.mul(momentum, l.load(&velocities[octet]));
        l.store(
            l.add(kept, l.load(&gradients[octet])),
            &mut velocities[octet],
        );
    }
    plain(l, least, velocity, residual)
}

#[inline(always)]
fn marks<L: Lanes>(l: L, least: L::U, residual: &[f32; 64]) -> u64 {
    let mut word = 0;
    let (residuals, _) = residual.as_chunks::<8>();
    for (octet, residual) in residuals.iter().enumerate() {
        word |= u64::from(large(l, least, l.load(residual))) << (8 * octet);
    }
    word
}

/// Compares magnitudes as integers. A NaN is larger than all numbers, so it is sent and does not
/// stay in the residual.
#[inline(always)]
fn large<L: Lanes>(l: L, least: L::U, value: L::F) -> u32 {
    let magnitude = l.and(l.bits(value), l.splat_u(0x7fff_ffff));
    l.signs(l.gt_i(magnitude, least))
}
