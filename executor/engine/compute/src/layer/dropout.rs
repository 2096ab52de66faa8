//! Dropout (Srivastava et al., 2014). Training scales the remaining elements, so that evaluation is
//! the identity.
//!
//! A hash decides whether an element is dropped. It covers the step's key, the operation, the
//! example's place in the global batch and the element's place in the example. The result is the
//! same for any number of workers and threads, and the backward pass recomputes it without a mask.

use super::operands::{BackwardOperands, CpuKernel, ForwardOperands, PassContext, PassMode};
use super::parallel::each;
use crate::simd::vectorised;

/// Dropout of each element independently.
#[derive(Debug, Clone)]
pub(crate) struct Dropout {
    /// Elements per example.
    pub(crate) numbers: usize,
    /// Number of this operation in the network, which separates its draws from other operations'.
    pub(crate) operation: u64,
    /// Share of elements that are dropped, at least 0 and less than 1.
    pub(crate) share: f32,
}

impl CpuKernel for Dropout {
    fn forward(&self, pass: ForwardOperands<'_>) {
        self.apply(pass.at, pass.inputs.get(0), pass.output);
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        if let Some(d_input) = pass.d_inputs.get(0) {
            self.apply(pass.at, pass.d_output, d_input);
        }
    }
}

impl Dropout {
    fn apply(&self, at: PassContext, x: &[f32], y: &mut [f32]) {
        let PassMode::Train { key, first } = at.mode else {
            y.copy_from_slice(x);
            return;
        };
        // Of 2^32 hash values, those from `limit` on keep the element.
        let limit = (f64::from(self.share) * (1_u64 << 32) as f64) as u32;
        let factor = 1.0 / (1.0 - self.share);
        let examples = x
            .chunks_exact(self.numbers)
            .zip(y.chunks_exact_mut(self.numbers));
        each(at.threads, examples.enumerate(), |(place, (x, y))| {
            let example = mix(mix(key ^ mix(self.operation)) ^ (first + place as u64));
            drop(
                x,
                y,
                [example as u32, (example >> 32) as u32],
                limit,
                factor,
            );
        });
    }
}

/// Step of SplitMix64 (Steele, Lea and Flood, 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

vectorised! {
    /// The hash is Wellons' lowbias32, with the example's key mixed in at two places.
    fn drop(x: &[f32], y: &mut [f32], key: [u32; 2], limit: u32, factor: f32) {
        for (index, (y, x)) in y.iter_mut().zip(x).enumerate() {
            let mut hash = (index as u32).wrapping_add(key[0]);
            hash = (hash ^ (hash >> 16)).wrapping_mul(0x7feb_352d);
            hash = (hash ^ (hash >> 15) ^ key[1]).wrapping_mul(0x846c_a68b);
            hash ^= hash >> 16;
            *y = if hash >= limit { x * factor } else { 0.0 };
        }
    }
}
