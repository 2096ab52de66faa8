//! One bit per value: its sign, and per column the mean of the positive and of the negative values
//! (Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014).
//!
//! A column is a run of [`COLUMN`] values and not a column of the weight matrix. It stays in the
//! first-level cache between the pass that sums and the pass that subtracts, and the codec does not
//! depend on shapes.
//!
//! Bytes of a column: mean of the values without sign bit (f32), mean of those with sign bit (f32),
//! then the sign bit of each value, lowest first.

use super::lanes::{Isa, Lanes, SimdKernel, dispatch};
use super::{
    Codec, DecodeError, DecodeMode, EncodingKey, FeedbackPlane, FeedbackState, Prepared, front,
};
use muster_compute::prefetch::{LINE, prefetch};

/// Values that share their two means; the means cost 1/32 bit per value.
pub const COLUMN: usize = 2048;

const HEADER: usize = 8;

/// Codec of one bit per value. It needs the residual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OneBit {
    isa: Isa,
}

impl OneBit {
    #[must_use]
    pub fn new() -> Self {
        Self { isa: Isa::detect() }
    }

    /// The same codec in plain Rust, which produces the same bytes; for comparisons.
    #[must_use]
    pub fn portable() -> Self {
        Self { isa: Isa::Portable }
    }
}

impl Default for OneBit {
    fn default() -> Self {
        Self::new()
    }
}

impl Codec for OneBit {
    fn planes(&self) -> &'static [FeedbackPlane] {
        &[FeedbackPlane::Residual]
    }

    fn max_chunk_bytes(&self, len: usize) -> usize {
        // The bits of a column are whole bytes, so only the last column is rounded up.
        len.div_ceil(COLUMN) * HEADER + len.div_ceil(8)
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
        state: FeedbackState<'_>,
        out: &mut [u8],
    ) -> usize {
        let bytes = self.max_chunk_bytes(gradients.len());
        assert_eq!(gradients.len(), state.residual.len(), "a residual a number");
        let kernel = OneBitEncodeKernel {
            gradients,
            residual: state.residual,
            out: &mut out[..bytes],
        };
        dispatch(self.isa, kernel);
        bytes
    }

    fn decode_chunk(
        &self,
        bytes: &[u8],
        out: &mut [f32],
        mode: DecodeMode,
    ) -> Result<usize, DecodeError> {
        let bytes = front(bytes, self.max_chunk_bytes(out.len()))?;
        match mode {
            DecodeMode::Overwrite => dispatch(self.isa, OneBitDecodeKernel::<false> { bytes, out }),
            DecodeMode::Add => dispatch(self.isa, OneBitDecodeKernel::<true> { bytes, out }),
        }
        Ok(bytes.len())
    }

    fn is_fixed(&self) -> bool {
        true
    }

    fn grain(&self) -> usize {
        COLUMN
    }

    fn catch_up(
        &self,
        _: EncodingKey,
        wanted: &[f32],
        known: &mut [f32],
        _: &mut Vec<f32>,
        out: &mut [u8],
    ) -> usize {
        let bytes = self.max_chunk_bytes(wanted.len());
        assert_eq!(wanted.len(), known.len(), "a number each");
        let kernel = OneBitDifferenceKernel {
            wanted,
            known,
            out: &mut out[..bytes],
        };
        dispatch(self.isa, kernel);
        bytes
    }
}

struct OneBitEncodeKernel<'a> {
    gradients: &'a [f32],
    residual: &'a mut [f32],
    out: &'a mut [u8],
}

impl SimdKernel for OneBitEncodeKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let outs = self.out.chunks_mut(HEADER + COLUMN / 8);
        let (mut gradients, mut residual) = (self.gradients, self.residual);
        for out in outs {
            let here = COLUMN.min(gradients.len());
            let (column, later) = gradients.split_at(here);
            let (residuals, residuals_later) = residual.split_at_mut(here);
            encode_column(l, column, residuals, out, [later, residuals_later]);
            (gradients, residual) = (later, residuals_later);
        }
    }
}

/// Sums of the values without and with sign bit, and the number of values with sign bit.
struct SignSums<F> {
    positive: [F; 2],
    negative: [F; 2],
    negatives: u32,
}

impl<F: Copy> SignSums<F> {
    #[inline(always)]
    fn new(zero: F) -> Self {
        Self {
            positive: [zero; 2],
            negative: [zero; 2],
            negatives: 0,
        }
    }

    /// Means of the values without and with sign bit, out of `count` values.
    #[inline(always)]
    fn means<L: Lanes<F = F>>(self, l: L, count: usize) -> (f32, f32) {
        let negatives = self.negatives as usize;
        let positive = mean(total(l, self.positive), count - negatives);
        (positive, mean(total(l, self.negative), negatives))
    }
}

/// Combination of two numbers into the value that is encoded.
trait EncodedValue: Copy {
    fn of<L: Lanes>(self, l: L, a: L::F, b: L::F) -> L::F;

    /// Stores the value over the second number, if it is needed again.
    fn keep<L: Lanes>(self, l: L, value: L::F, second: &mut [f32; 8]);
}

/// Gradient plus its residual.
#[derive(Clone, Copy)]
struct GradientPlusResidual;

impl EncodedValue for GradientPlusResidual {
    #[inline(always)]
    fn of<L: Lanes>(self, l: L, gradient: L::F, residual: L::F) -> L::F {
        l.add(gradient, residual)
    }

    #[inline(always)]
    fn keep<L: Lanes>(self, l: L, value: L::F, residual: &mut [f32; 8]) {
        l.store(value, residual);
    }
}

/// Difference between a wanted and a known number. Zero is added, as a residual would be, which
/// removes the sign of a zero.
#[derive(Clone, Copy)]
struct WantedMinusKnown;

impl EncodedValue for WantedMinusKnown {
    #[inline(always)]
    fn of<L: Lanes>(self, l: L, wanted: L::F, known: L::F) -> L::F {
        l.add(l.sub(wanted, known), l.splat(0.0))
    }

    #[inline(always)]
    fn keep<L: Lanes>(self, _: L, _: L::F, _: &mut [f32; 8]) {}
}

#[inline(always)]
fn encode_column<L: Lanes>(
    l: L,
    gradients: &[f32],
    residual: &mut [f32],
    out: &mut [u8],
    soon: [&[f32]; 2],
) {
    let (means, bits) = out.split_at_mut(HEADER);
    let sums = take_column(l, GradientPlusResidual, gradients, residual, bits);
    let (positive, negative) = sums.means(l, gradients.len());
    put_means(means, positive, negative);
    subtract(l, residual, positive, negative, soon);
}

/// Prefetches one line of the next column at octet `at` of this column. During the pass over cached
/// data the memory would be idle otherwise, because the hardware prefetcher sees no sequence.
#[inline(always)]
fn read_ahead(soon: [&[f32]; 2], at: usize) {
    let (soon, index) = (soon[at % 2], at / 2 * LINE);
    // The check is needed for speed, although a prefetch out of range would be harmless.
    if index < soon.len() {
        prefetch(soon.as_ptr(), index);
    }
}

fn put_means(to: &mut [u8], positive: f32, negative: f32) {
    to[..4].copy_from_slice(&positive.to_le_bytes());
    to[4..].copy_from_slice(&negative.to_le_bytes());
}

/// Computes the encoded value of each pair and writes its sign to `bits`.
#[inline(always)]
fn take_column<L: Lanes, P: EncodedValue>(
    l: L,
    pair: P,
    first: &[f32],
    second: &mut [f32],
    bits: &mut [u8],
) -> SignSums<L::F> {
    let mut sums = SignSums::new(l.splat(0.0));
    let (pairs, tail) = first.as_chunks::<16>();
    let (second_pairs, second_tail) = second.as_chunks_mut::<16>();
    let (bit_pairs, bit_tail) = bits.as_chunks_mut::<2>();
    for ((first, second), bits) in pairs
        .iter()
        .zip(second_pairs.iter_mut())
        .zip(bit_pairs.iter_mut())
    {
        *bits = take_signs(l, pair, first, second, &mut sums);
    }
    if !tail.is_empty() {
        // Padded with +0, which adds nothing to either sum and has no sign.
        let (mut first, mut carried) = ([0.0; 16], [0.0; 16]);
        first[..tail.len()].copy_from_slice(tail);
        carried[..tail.len()].copy_from_slice(second_tail);
        let signs = take_signs(l, pair, &first, &mut carried, &mut sums);
        second_tail.copy_from_slice(&carried[..tail.len()]);
        // After at most 15 values of the last pair, at most two bytes are left.
        match bit_pairs.get_mut(pairs.len()) {
            Some(bits) => *bits = signs,
            None => bit_tail.copy_from_slice(&signs[..bit_tail.len()]),
        }
    }
    sums
}

/// Computes the encoded values of 16 pairs, adds them to the sums, and returns their sign bits.
#[inline(always)]
fn take_signs<L: Lanes, P: EncodedValue>(
    l: L,
    pair: P,
    first: &[f32; 16],
    second: &mut [f32; 16],
    sums: &mut SignSums<L::F>,
) -> [u8; 2] {
    let mut signs = [0; 2];
    let (first, _) = first.as_chunks::<8>();
    let (second, _) = second.as_chunks_mut::<8>();
    let zero = l.splat(0.0);
    for half in 0..2 {
        let value = pair.of(l, l.load(&first[half]), l.load(&second[half]));
        pair.keep(l, value, &mut second[half]);
        // This order of operands puts a NaN into the sums, so that it is sent and does not stay in
        // the residual.
        sums.positive[half] = l.add(sums.positive[half], l.max(zero, value));
        sums.negative[half] = l.add(sums.negative[half], l.min(zero, value));
        signs[half] = l.signs(l.bits(value)) as u8;
    }
    sums.negatives += u16::from_le_bytes(signs).count_ones();
    signs
}

struct OneBitDifferenceKernel<'a> {
    wanted: &'a [f32],
    known: &'a mut [f32],
    out: &'a mut [u8],
}

impl SimdKernel for OneBitDifferenceKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let outs = self.out.chunks_mut(HEADER + COLUMN / 8);
        let (mut wanted, mut known) = (self.wanted, self.known);
        for out in outs {
            let here = COLUMN.min(wanted.len());
            let (column, wanted_later) = wanted.split_at(here);
            let (knowns, known_later) = known.split_at_mut(here);
            let (means, bits) = out.split_at_mut(HEADER);
            let sums = take_column(l, WantedMinusKnown, column, knowns, bits);
            let (positive, negative) = sums.means(l, here);
            put_means(means, positive, negative);
            let soon: [&[f32]; 2] = [wanted_later, known_later];
            decode_column::<L, true>(l, bits, positive, negative, knowns, Some(soon));
            (wanted, known) = (wanted_later, known_later);
        }
    }
}

#[inline(always)]
fn total<L: Lanes>(l: L, sums: [L::F; 2]) -> f32 {
    let mut lanes = [0.0; 8];
    l.store(l.add(sums[0], sums[1]), &mut lanes);
    lanes.iter().sum()
}

fn mean(sum: f32, count: usize) -> f32 {
    if count == 0 { 0.0 } else { sum / count as f32 }
}

/// Subtracts from each value the mean that is sent for it, while `soon` is prefetched.
#[inline(always)]
fn subtract<L: Lanes>(l: L, residual: &mut [f32], positive: f32, negative: f32, soon: [&[f32]; 2]) {
    let means = (l.splat(positive), l.splat(negative));
    let (octets, tail) = residual.as_chunks_mut::<8>();
    for (at, octet) in octets.iter_mut().enumerate() {
        read_ahead(soon, at);
        let value = l.load(octet);
        let sent = l.select(l.bits(value), means.1, means.0);
        l.store(l.sub(value, sent), octet);
    }
    for value in tail {
        *value -= if value.is_sign_negative() {
            negative
        } else {
            positive
        };
    }
}

struct OneBitDecodeKernel<'a, const ADD: bool> {
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl<const ADD: bool> SimdKernel for OneBitDecodeKernel<'_, ADD> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let columns = self.out.chunks_mut(COLUMN);
        for (out, bytes) in columns.zip(self.bytes.chunks(HEADER + COLUMN / 8)) {
            let (means, bits) = bytes.split_at(HEADER);
            let positive = f32::from_le_bytes([means[0], means[1], means[2], means[3]]);
            let negative = f32::from_le_bytes([means[4], means[5], means[6], means[7]]);
            decode_column::<L, ADD>(l, bits, positive, negative, out, None);
        }
    }
}

#[inline(always)]
fn decode_column<L: Lanes, const ADD: bool>(
    l: L,
    bits: &[u8],
    positive: f32,
    negative: f32,
    out: &mut [f32],
    soon: Option<[&[f32]; 2]>,
) {
    let means = (l.splat(positive), l.splat(negative));
    let lane_bits = l.load_u(&[1, 2, 4, 8, 16, 32, 64, 128]);
    let zero = l.splat_u(0);
    let (octets, tail) = out.as_chunks_mut::<8>();
    for (at, (octet, byte)) in octets.iter_mut().zip(bits).enumerate() {
        if let Some(soon) = soon {
            read_ahead(soon, at);
        }
        let set = l.gt_i(l.and(l.splat_u(u32::from(*byte)), lane_bits), zero);
        let value = l.select(set, means.1, means.0);
        let value = if ADD {
            l.add(l.load(octet), value)
        } else {
            value
        };
        l.store(value, octet);
    }
    for (lane, to) in tail.iter_mut().enumerate() {
        let set = bits[octets.len()] >> lane & 1 == 1;
        let value = if set { negative } else { positive };
        *to = if ADD { *to + value } else { value };
    }
}
