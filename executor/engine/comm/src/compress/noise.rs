//! Random bits for rounding, by counter: value `i` of a chunk always gets the same bits,
//! independent of the processor and the order.
//!
//! Two rounds of multiply and xor-shift over a Weyl sequence: the finaliser of MurmurHash3 with the
//! constants of Wellons' "hash prospector", without its last shift because only upper bits are
//! used. One key moves the sequence, and a second key is mixed into its numbers, so that two chunks
//! never share a shifted sequence. This takes eight operations for eight values; Philox takes
//! several times as many, and the rest of an encoding about a dozen. Rounding needs random numbers
//! that are uniform and uncorrelated with the gradients and each other. They need not be
//! unpredictable.

use super::EncodingKey;
use super::lanes::Lanes;

/// 2^32 divided by the golden ratio, odd.
const WEYL: u32 = 0x9e37_79b9;

/// Start of a chunk's sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkSeed {
    start: u32,
    key: u32,
}

impl ChunkSeed {
    pub(super) fn new(key: EncodingKey, chunk: usize) -> Self {
        let words = [key.step, u64::from(key.block) << 32 | chunk as u64];
        let mixed = words
            .into_iter()
            .fold(mix(key.seed), |state, word| mix(state ^ word));
        Self {
            start: mixed as u32,
            key: (mixed >> 32) as u32,
        }
    }
}

/// Random index number `draw` of a block, from 0 to below `bound`.
pub(super) fn index(key: EncodingKey, draw: usize, bound: usize) -> usize {
    let seed = mix(key.seed ^ mix(key.step));
    let bits = mix(seed ^ mix(u64::from(key.block) << 32 ^ draw as u64));
    ((u128::from(bits) * bound as u128) >> 64) as usize
}

/// Finaliser of SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators",
/// OOPSLA 2014).
fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

/// Random numbers of a chunk, eight at a time.
pub(super) struct RandomLanes<L: Lanes> {
    lanes: L,
    counter: L::U,
    stride: L::U,
    key: L::U,
}

impl<L: Lanes> RandomLanes<L> {
    #[inline(always)]
    pub(super) fn new(l: L, seed: ChunkSeed) -> Self {
        let lanes = l.load_u(&[0, 1, 2, 3, 4, 5, 6, 7]);
        Self {
            lanes: l,
            counter: l.add_u(l.splat_u(seed.start), l.mul_u(lanes, l.splat_u(WEYL))),
            stride: l.splat_u(WEYL.wrapping_mul(8)),
            key: l.splat_u(seed.key),
        }
    }

    /// 32 bits per lane, of which the upper 24 have good quality.
    #[inline(always)]
    pub(super) fn bits(&mut self) -> L::U {
        let l = self.lanes;
        let x = self.counter;
        self.counter = l.add_u(x, self.stride);
        let x = l.xor(l.xor(x, self.key), l.shr::<16>(x));
        let x = l.mul_u(x, l.splat_u(0x7feb_352d));
        let x = l.xor(x, l.shr::<15>(x));
        l.mul_u(x, l.splat_u(0x846c_a68b))
    }

    /// Uniform in [-0.5, 0.5]; both ends have half the weight of the numbers between them.
    #[inline(always)]
    pub(super) fn centred(&mut self) -> L::F {
        let bits = self.bits();
        self.lanes.mul(
            self.lanes.int_to_float(bits),
            self.lanes.splat(1.0 / 4_294_967_296.0),
        )
    }

    /// Uniform in [0, `scale`), in steps of 2^-24 of `scale`.
    #[inline(always)]
    pub(super) fn below(&mut self, scale_2_24: L::F) -> L::F {
        let bits = self.bits();
        let l = self.lanes;
        l.mul(l.int_to_float(l.shr::<8>(bits)), scale_2_24)
    }
}

/// Rounds to the nearest integer, ties to even. The integer is in the low bits of the result, in
/// two's complement, if it is below 2^21.
#[inline(always)]
pub(super) fn round_bits<L: Lanes>(l: L, value: L::F) -> L::U {
    l.bits(l.add(value, l.splat(ROUNDER)))
}

/// 1.5 · 2^23: floats of this size have a step of 1.
pub(super) const ROUNDER: f32 = 12_582_912.0;

#[cfg(test)]
mod tests {
    use super::super::lanes::{Portable, SimdKernel};
    use super::*;

    struct RandomDrawKernel {
        seed: ChunkSeed,
        count: usize,
    }

    impl SimdKernel for RandomDrawKernel {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run<L: Lanes>(self, l: L) -> Vec<u32> {
            let mut noise = RandomLanes::new(l, self.seed);
            let mut out = Vec::with_capacity(self.count);
            while out.len() < self.count {
                let mut lanes = [0.0; 8];
                l.store(l.float(noise.bits()), &mut lanes);
                out.extend(lanes.map(f32::to_bits));
            }
            out
        }
    }

    fn draws(seed: u64, step: u64, block: u32, chunk: usize, count: usize) -> Vec<u32> {
        let key = EncodingKey { seed, step, block };
        let seed = ChunkSeed::new(key, chunk);
        RandomDrawKernel { seed, count }.run(Portable)
    }

    /// Distance of the counts from equal counts, in standard deviations of the chi-square
    /// distribution.
    fn deviation(counts: &[u64]) -> f64 {
        let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let chi_square: f64 = counts
            .iter()
            .map(|count| (*count as f64 - expected).powi(2) / expected)
            .sum();
        let freedom = counts.len() as f64 - 1.0;
        (chi_square - freedom) / (2.0 * freedom).sqrt()
    }

    /// Correlation of two sequences, in standard deviations of that of independent sequences.
    fn correlation(a: &[u32], b: &[u32]) -> f64 {
        let sum: f64 = a
            .iter()
            .zip(b)
            .map(|(a, b)| {
                f64::from(a.cast_signed()) / 2f64.powi(31)
                    * (f64::from(b.cast_signed()) / 2f64.powi(31))
            })
            .sum();
        // Each product has mean 0 and variance 1/9.
        sum / (a.len() as f64 / 9.0).sqrt()
    }

    #[test]
    fn used_bytes_are_uniform_within_a_chunk_and_across_keys() {
        let count = 1 << 16;
        for shift in [8, 16, 24] {
            let mut within = vec![0; 256];
            for draw in draws(1, 2, 3, 4, count) {
                within[(draw >> shift & 0xff) as usize] += 1;
            }
            assert!(deviation(&within).abs() < 4.0, "{}", deviation(&within));
            let mut across = vec![0; 256];
            for step in 0..count as u64 {
                let draw = draws(1, step, 3, 4, 8)[5];
                across[(draw >> shift & 0xff) as usize] += 1;
            }
            assert!(deviation(&across).abs() < 4.0, "{}", deviation(&across));
        }
    }

    #[test]
    fn pairs_of_draws_are_uniform() {
        let draws = draws(9, 0, 0, 0, 1 << 18);
        for distance in [1, 2, 7, 8, 9, 16, 32, 512, 2048] {
            let mut cells = vec![0; 4096];
            for (a, b) in draws.iter().zip(&draws[distance..]) {
                cells[(a >> 26 << 6 | b >> 26) as usize] += 1;
            }
            let deviation = deviation(&cells);
            assert!(deviation.abs() < 4.5, "distance {distance}: {deviation}");
        }
    }

    #[test]
    fn neither_neighbours_nor_other_keys_are_correlated() {
        let count = 1 << 16;
        let base = draws(1, 1, 1, 1, count);
        for distance in [1, 3, 8, 64, 512, 4096] {
            let correlation = correlation(&base, &base[distance..]);
            assert!(correlation.abs() < 4.5, "{distance}: {correlation}");
        }
        let others = [
            draws(2, 1, 1, 1, count),
            draws(1, 2, 1, 1, count),
            draws(1, 1, 2, 1, count),
            draws(1, 1, 1, 2, count),
            draws(1 << 40, 1, 1, 1, count),
        ];
        for (index, other) in others.iter().enumerate() {
            let correlation = correlation(&base, other);
            assert!(correlation.abs() < 4.5, "key {index}: {correlation}");
        }
    }

    #[test]
    fn chunks_with_equal_starts_differ_by_their_second_key() {
        let count = 1 << 16;
        let draw = |start, key| {
            let seed = ChunkSeed { start, key };
            RandomDrawKernel { seed, count }.run(Portable)
        };
        let base = draw(7, mix(0) as u32);
        for key in (1..20).map(|key| mix(key) as u32) {
            let correlation = correlation(&base, &draw(7, key));
            assert!(correlation.abs() < 4.5, "key {key}: {correlation}");
        }
    }
}
