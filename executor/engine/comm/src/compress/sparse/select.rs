//! Selection of the largest magnitudes by sample, candidates and radix.

use super::super::EncodingKey;
use super::super::lanes::{Isa, dispatch};
use super::super::noise;
use super::super::{CHUNK, FeedbackState};
use super::pass::{Accumulate, MarkKernel};
use super::wire::{MAX_OFFSETS, MarkOffsetsKernel, Marks, for_each_mark};
use muster_compute::prefetch::{LINE, prefetch};

/// Number of sampled values that should lie above the threshold; the rank is then accurate to some
/// 5 %.
const HITS: f64 = 400.0;

/// Number of cache lines that are prefetched ahead; each misses all caches.
const SOON: usize = 12;

/// Maximum number of lines of a sample, for any density. Each line can cause two or three cache
/// misses.
const MOST_LINES: usize = 1 << 13;

/// Blocks up to this length are inspected completely and not sampled.
const WHOLE: usize = 1 << 15;

const MAGNITUDE: u32 = 0x7fff_ffff;

/// Estimates the bits of a magnitude that about `density` of the values reach after accumulation.
/// At least 1, so that zeros do not reach it.
pub(super) fn sampled(
    key: EncodingKey,
    accumulate: Accumulate,
    gradients: &[f32],
    state: &FeedbackState<'_>,
    density: f64,
) -> u32 {
    let len = gradients.len();
    let lines = len.div_ceil(LINE);
    let wanted = if lines <= WHOLE / LINE {
        lines
    } else {
        let hits = (HITS / density / LINE as f64) as usize;
        hits.clamp(WHOLE / LINE, MOST_LINES)
    };
    // One line from each of `wanted` equal parts, at a random position: a fixed stride would always
    // hit the same columns of a matrix.
    let starts: Vec<usize> = (0..wanted)
        .map(|index| {
            let (from, to) = (lines * index / wanted, lines * (index + 1) / wanted);
            LINE * (from + noise::index(key, index, to - from))
        })
        .collect();
    let mut sample = Vec::with_capacity(wanted * LINE);
    for (index, start) in starts.iter().enumerate() {
        if let Some(soon) = starts.get(index + SOON) {
            for plane in [gradients, &*state.residual, &*state.velocity] {
                prefetch(plane.as_ptr(), *soon);
                prefetch(plane.as_ptr(), *soon + LINE - 1);
            }
        }
        let range = *start..len.min(start + LINE);
        sample.extend(range.map(|i| accumulated(accumulate, gradients, state, i) & MAGNITUDE));
    }
    if sample.is_empty() {
        return 1;
    }
    let rank = (density * sample.len() as f64).ceil() as usize;
    let rank = rank.clamp(1, sample.len());
    nth_largest(&mut sample, rank).0.max(1)
}

/// Bits of value `i` as it will be after the gradients are accumulated.
fn accumulated(
    accumulate: Accumulate,
    gradients: &[f32],
    state: &FeedbackState<'_>,
    i: usize,
) -> u32 {
    let value = match accumulate {
        Accumulate::Done => state.residual[i],
        Accumulate::Plain => gradients[i] + state.residual[i],
        Accumulate::Momentum(momentum) => {
            state.residual[i] + (momentum * state.velocity[i] + gradients[i])
        }
    };
    value.to_bits()
}

/// Returns the `rank`th largest value (from 1), and how many values equal to it are among the
/// `rank` largest. Radix selection from the highest bits; values that cannot be the result are
/// dropped after each digit.
pub(super) fn nth_largest(bits: &mut Vec<u32>, rank: usize) -> (u32, usize) {
    assert!(
        (1..=bits.len()).contains(&rank),
        "a rank within the numbers"
    );
    let mut left = rank;
    let mut prefix = 0;
    for (shift, width) in [(21, 11), (10, 11), (0, 10)] {
        let mut counts = vec![0usize; 1 << width];
        let digit = |value: u32| (value >> shift) as usize & ((1 << width) - 1);
        for value in &*bits {
            counts[digit(*value)] += 1;
        }
        let mut chosen = counts.len() - 1;
        while counts[chosen] < left {
            left -= counts[chosen];
            chosen -= 1;
        }
        prefix |= (chosen as u32) << shift;
        bits.retain(|value| digit(*value) == chosen);
    }
    (prefix, left)
}

/// Accumulates a block and returns the ascending indices of its `count` largest magnitudes. Of
/// equal magnitudes the first ones are selected; zeros never are.
pub(super) fn exact(
    isa: Isa,
    key: EncodingKey,
    accumulate: Accumulate,
    gradients: &[f32],
    state: &mut FeedbackState<'_>,
    count: usize,
) -> Vec<u32> {
    let len = gradients.len();
    assert!(
        u32::try_from(len).is_ok(),
        "a block has fewer than 2^32 numbers"
    );
    if count == 0 {
        return Vec::new();
    }
    // A sample selects a quarter more candidates than needed. The radix selection then sees only
    // these, and memory is read once.
    let density = (1.25 * count as f64 / len as f64).min(1.0);
    let threshold = sampled(key, accumulate, gradients, state, density);
    let mut found = candidates(isa, accumulate, threshold, gradients, state, count);
    if found.bits.len() < count && threshold > 1 {
        let threshold = coarse(state.residual, count);
        found = candidates(isa, Accumulate::Done, threshold, gradients, state, count);
    }
    let count = count.min(found.bits.len());
    if count == 0 {
        return Vec::new();
    }
    let (least, mut ties) = nth_largest(&mut found.bits.clone(), count);
    let mut picked = Vec::with_capacity(count);
    for (index, bits) in found.indices.iter().zip(&found.bits) {
        if *bits > least {
            picked.push(*index);
        } else if *bits == least && ties > 0 {
            ties -= 1;
            picked.push(*index);
        }
    }
    picked
}

/// Values that may be among the largest.
struct Candidates {
    indices: Vec<u32>,
    /// Bits of their magnitudes.
    bits: Vec<u32>,
}

fn candidates(
    isa: Isa,
    accumulate: Accumulate,
    threshold: u32,
    gradients: &[f32],
    state: &mut FeedbackState<'_>,
    expected: usize,
) -> Candidates {
    let mut found = Candidates {
        indices: Vec::with_capacity(2 * expected),
        bits: Vec::with_capacity(2 * expected),
    };
    let mut marks: Marks = [0; CHUNK / 64];
    let mut offsets = [0; MAX_OFFSETS + 4];
    for (index, residual) in state.residual.chunks_mut(CHUNK).enumerate() {
        let start = index * CHUNK;
        let end = start + residual.len();
        let velocity = state.velocity.get_mut(start..end).unwrap_or_default();
        let pass = MarkKernel {
            accumulate,
            threshold,
            gradients: &gradients[start..end],
            velocity,
            residual,
            marks: &mut marks,
        };
        dispatch(isa, pass);
        let words = &marks[..residual.len().div_ceil(64)];
        let mut take = |offset: usize| {
            found.indices.push((start + offset) as u32);
            found.bits.push(residual[offset].to_bits() & MAGNITUDE);
        };
        let flattened = MarkOffsetsKernel {
            words,
            offsets: &mut offsets,
        };
        match dispatch(isa, flattened) {
            Some(count) => {
                for offset in &offsets[..count] {
                    take(usize::from(*offset));
                }
            }
            None => for_each_mark(words, take),
        }
    }
    found
}

/// Threshold that at least `count` values reach, if that many are not zero, and few more: the first
/// digit (16 bits) of a radix selection over the whole block.
fn coarse(values: &[f32], count: usize) -> u32 {
    let mut counts = vec![0usize; 1 << 16];
    for value in values {
        counts[((value.to_bits() & MAGNITUDE) >> 15) as usize] += 1;
    }
    let mut found = 0;
    for (digit, numbers) in counts.iter().enumerate().rev() {
        found += numbers;
        if found >= count {
            return ((digit as u32) << 15).max(1);
        }
    }
    1
}
