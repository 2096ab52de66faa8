//! One bit a number: its sign, and per column the mean of the positive and of the negative numbers (Seide et al., "1-Bit
//! Stochastic Gradient Descent", Interspeech 2014).
//!
//! A column here is a run of [`COLUMN`] numbers rather than a column of the weight matrix: it stays in the first-level cache
//! between the pass that sums and the pass that subtracts, and the codec need not know shapes.
//!
//! Bytes of a column: mean of the numbers without sign bit (f32), mean of those with it (f32), one bit a number, lowest first, set
//! when the sign is.

use super::lanes::{Isa, Kernel, Lanes, dispatch};
use super::{Codec, DecodeError, Key, Mode, Plane, Prepared, State, front};

/// Numbers that share their two means; costs 1/32 bit a number.
pub const COLUMN: usize = 2048;

const HEADER: usize = 8;

/// The codec. It needs the residual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OneBit {
    isa: Isa,
}

impl OneBit {
    #[must_use]
    pub fn new() -> Self {
        Self { isa: Isa::detect() }
    }

    /// The same in plain Rust, which gives the same bytes: to be compared with.
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
    fn planes(&self) -> &'static [Plane] {
        &[Plane::Residual]
    }

    fn max_chunk_bytes(&self, len: usize) -> usize {
        // A column's bits are whole bytes, so only the last one rounds up.
        len.div_ceil(COLUMN) * HEADER + len.div_ceil(8)
    }

    fn prepare(&self, _: Key, _: &[f32], _: &mut State<'_>) -> Prepared {
        Prepared::Nothing
    }

    fn encode_chunk(
        &self,
        _: Key,
        _: &Prepared,
        _: usize,
        gradients: &[f32],
        state: State<'_>,
        out: &mut [u8],
    ) -> usize {
        let bytes = self.max_chunk_bytes(gradients.len());
        assert_eq!(gradients.len(), state.residual.len(), "a residual a number");
        let kernel = Encode {
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
        mode: Mode,
    ) -> Result<usize, DecodeError> {
        let bytes = front(bytes, self.max_chunk_bytes(out.len()))?;
        match mode {
            Mode::Overwrite => dispatch(self.isa, Decode::<false> { bytes, out }),
            Mode::Add => dispatch(self.isa, Decode::<true> { bytes, out }),
        }
        Ok(bytes.len())
    }
}

struct Encode<'a> {
    gradients: &'a [f32],
    residual: &'a mut [f32],
    out: &'a mut [u8],
}

impl Kernel for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let columns = self.gradients.chunks(COLUMN);
        let residuals = self.residual.chunks_mut(COLUMN);
        let outs = self.out.chunks_mut(HEADER + COLUMN / 8);
        for ((gradients, residual), out) in columns.zip(residuals).zip(outs) {
            encode_column(l, gradients, residual, out);
        }
    }
}

/// Sums of the numbers without and with sign bit, and how many have it.
struct Sums<F> {
    positive: [F; 2],
    negative: [F; 2],
    negatives: u32,
}

#[inline(always)]
fn encode_column<L: Lanes>(l: L, gradients: &[f32], residual: &mut [f32], out: &mut [u8]) {
    let (means, bits) = out.split_at_mut(HEADER);
    let zero = l.splat(0.0);
    let mut sums = Sums {
        positive: [zero; 2],
        negative: [zero; 2],
        negatives: 0,
    };
    let (pairs, tail) = gradients.as_chunks::<16>();
    let (residual_pairs, residual_tail) = residual.as_chunks_mut::<16>();
    let (bit_pairs, bit_tail) = bits.as_chunks_mut::<2>();
    for ((gradient, residual), bits) in pairs
        .iter()
        .zip(residual_pairs.iter_mut())
        .zip(bit_pairs.iter_mut())
    {
        *bits = take_signs(l, gradient, residual, &mut sums);
    }
    if !tail.is_empty() {
        // Filled up with +0, which adds nothing to either sum and has no sign.
        let (mut gradient, mut carried) = ([0.0; 16], [0.0; 16]);
        gradient[..tail.len()].copy_from_slice(tail);
        carried[..tail.len()].copy_from_slice(residual_tail);
        let signs = take_signs(l, &gradient, &mut carried, &mut sums);
        residual_tail.copy_from_slice(&carried[..tail.len()]);
        // After 15 numbers or fewer of the last pair at most two bytes are left over.
        match bit_pairs.get_mut(pairs.len()) {
            Some(bits) => *bits = signs,
            None => bit_tail.copy_from_slice(&signs[..bit_tail.len()]),
        }
    }
    let positives = gradients.len() - sums.negatives as usize;
    let positive = mean(total(l, sums.positive), positives);
    let negative = mean(total(l, sums.negative), sums.negatives as usize);
    means[..4].copy_from_slice(&positive.to_le_bytes());
    means[4..].copy_from_slice(&negative.to_le_bytes());
    subtract(l, residual, positive, negative);
}

/// Adds 16 gradients to their residuals and the sums, and returns the sign bits.
#[inline(always)]
fn take_signs<L: Lanes>(
    l: L,
    gradient: &[f32; 16],
    residual: &mut [f32; 16],
    sums: &mut Sums<L::F>,
) -> [u8; 2] {
    let mut signs = [0; 2];
    let (gradient, _) = gradient.as_chunks::<8>();
    let (residual, _) = residual.as_chunks_mut::<8>();
    let zero = l.splat(0.0);
    for half in 0..2 {
        let value = l.add(l.load(&gradient[half]), l.load(&residual[half]));
        l.store(value, &mut residual[half]);
        // In this order what is not a number gets into the sums: it is sent, not kept for ever.
        sums.positive[half] = l.add(sums.positive[half], l.max(zero, value));
        sums.negative[half] = l.add(sums.negative[half], l.min(zero, value));
        signs[half] = l.signs(l.bits(value)) as u8;
    }
    sums.negatives += u16::from_le_bytes(signs).count_ones();
    signs
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

/// Takes from each number the mean that is sent for it.
#[inline(always)]
fn subtract<L: Lanes>(l: L, residual: &mut [f32], positive: f32, negative: f32) {
    let means = (l.splat(positive), l.splat(negative));
    let (octets, tail) = residual.as_chunks_mut::<8>();
    for octet in octets {
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

struct Decode<'a, const ADD: bool> {
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl<const ADD: bool> Kernel for Decode<'_, ADD> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let columns = self.out.chunks_mut(COLUMN);
        for (out, bytes) in columns.zip(self.bytes.chunks(HEADER + COLUMN / 8)) {
            let (means, bits) = bytes.split_at(HEADER);
            let positive = f32::from_le_bytes([means[0], means[1], means[2], means[3]]);
            let negative = f32::from_le_bytes([means[4], means[5], means[6], means[7]]);
            decode_column::<L, ADD>(l, bits, positive, negative, out);
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
) {
    let means = (l.splat(positive), l.splat(negative));
    let lane_bits = l.load_u(&[1, 2, 4, 8, 16, 32, 64, 128]);
    let zero = l.splat_u(0);
    let (octets, tail) = out.as_chunks_mut::<8>();
    for (octet, byte) in octets.iter_mut().zip(bits) {
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
