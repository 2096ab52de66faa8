//! QSGD: few levels per value, rounded stochastically so that the mean is the gradient (Alistarh et
//! al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NeurIPS 2017).
//!
//! There are `bits` bits per value and `s = 2^(bits - 1) - 1` levels of either sign. A gradient `g`
//! of a bucket with norm `n` becomes the integer `floor(g s / n + u)` in two's complement, with `u`
//! uniform in [0, 1). The paper's proofs use the Euclidean norm; its experiments use the largest
//! magnitude, which has the smaller error at these numbers of bits. Bits are packed without Elias
//! codes, which gain little from four bits on and take much time.
//!
//! Bytes of a bucket: the unit `n / s` (f32), then the integers, lowest bits first.

use super::lanes::{Isa, Lanes, SimdKernel, dispatch};
use super::noise::{ChunkSeed, RandomLanes, round_bits};
use super::packing::{pack, unpack_word};
use super::{
    CHUNK, Codec, DecodeError, DecodeMode, EncodingKey, FeedbackPlane, FeedbackState, Prepared,
    front,
};
pub use muster_model::spec::Norm;

const HEADER: usize = 4;

/// Subtracted from the number of levels, so that noise never rounds above the last level.
const MARGIN: f32 = 1.0 / 256.0;

/// Buckets with a smaller norm are sent as zeros, because the inverse of their unit would be
/// infinite.
const SMALLEST_NORM: f32 = 1e-36;

/// Unbiased codec without state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Qsgd {
    bits: u8,
    bucket: usize,
    norm: Norm,
    isa: Isa,
}

impl Qsgd {
    /// Creates the codec. `None` unless `bits` is 4 to 8 and `bucket`, in values, is a power of two
    /// from 64 to [`CHUNK`]. The paper's bucket is 512.
    #[must_use]
    pub fn new(bits: u8, bucket: usize, norm: Norm) -> Option<Self> {
        let right = (4..=8).contains(&bits) && (64..=CHUNK).contains(&bucket);
        (right && bucket.is_power_of_two()).then(|| Self {
            bits,
            bucket,
            norm,
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
}

impl Codec for Qsgd {
    fn planes(&self) -> &'static [FeedbackPlane] {
        &[]
    }

    fn max_chunk_bytes(&self, len: usize) -> usize {
        len.div_ceil(self.bucket) * HEADER + (len * usize::from(self.bits)).div_ceil(8)
    }

    fn prepare(&self, _: EncodingKey, _: &[f32], _: &mut FeedbackState<'_>) -> Prepared {
        Prepared::Nothing
    }

    fn encode_chunk(
        &self,
        key: EncodingKey,
        _: &Prepared,
        chunk: usize,
        gradients: &[f32],
        _: FeedbackState<'_>,
        out: &mut [u8],
    ) -> usize {
        let bytes = self.max_chunk_bytes(gradients.len());
        let kernel = QsgdEncodeKernel {
            codec: self,
            seed: ChunkSeed::new(key, chunk),
            gradients,
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
        let kernel = QsgdDecodeKernel {
            codec: self,
            add: mode == DecodeMode::Add,
            bytes,
            out,
        };
        dispatch(self.isa, kernel);
        Ok(bytes.len())
    }
}

struct QsgdEncodeKernel<'a> {
    codec: &'a Qsgd,
    seed: ChunkSeed,
    gradients: &'a [f32],
    out: &'a mut [u8],
}

impl SimdKernel for QsgdEncodeKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        match self.codec.bits {
            4 => self.with::<L, 4>(l),
            5 => self.with::<L, 5>(l),
            6 => self.with::<L, 6>(l),
            7 => self.with::<L, 7>(l),
            _ => self.with::<L, 8>(l),
        }
    }
}

impl QsgdEncodeKernel<'_> {
    #[inline(always)]
    fn with<L: Lanes, const B: usize>(self, l: L) {
        let levels = ((1 << (B - 1)) - 1) as f32 - MARGIN;
        let mut noise = RandomLanes::new(l, self.seed);
        let bucket = self.codec.bucket;
        let outs = self.out.chunks_mut(HEADER + bucket * B / 8);
        for (gradients, out) in self.gradients.chunks(bucket).zip(outs) {
            let (header, codes) = out.split_at_mut(HEADER);
            let norm = match self.codec.norm {
                Norm::Largest => largest(l, gradients),
                Norm::Euclidean => euclidean(l, gradients),
            };
            let (unit, inverse) = if norm < SMALLEST_NORM {
                (0.0, 0.0)
            } else {
                (norm / levels, levels / norm)
            };
            header.copy_from_slice(&unit.to_le_bytes());
            quantise::<L, B>(l, &mut noise, gradients, inverse, codes);
        }
    }
}

/// Largest magnitude; NaN if one of the values is.
#[inline(always)]
fn largest<L: Lanes>(l: L, values: &[f32]) -> f32 {
    let mut largest = [l.splat_u(0); 4];
    let magnitude = l.splat_u(0x7fff_ffff);
    let (quads, tail) = values.as_chunks::<32>();
    let mut last = [0.0; 32];
    last[..tail.len()].copy_from_slice(tail);
    for quad in quads.iter().chain((!tail.is_empty()).then_some(&last)) {
        let (quad, _) = quad.as_chunks::<8>();
        for part in 0..4 {
            let bits = l.and(l.bits(l.load(&quad[part])), magnitude);
            largest[part] = l.max_i(largest[part], bits);
        }
    }
    let pairs = (
        l.max_i(largest[0], largest[1]),
        l.max_i(largest[2], largest[3]),
    );
    let mut lanes = [0.0; 8];
    l.store(l.float(l.max_i(pairs.0, pairs.1)), &mut lanes);
    f32::from_bits(lanes.iter().fold(0, |max, lane| lane.to_bits().max(max)))
}

/// Euclidean norm, or the largest magnitude if squares exceed the range of `f32`; any bound on the
/// magnitudes is valid.
#[inline(always)]
fn euclidean<L: Lanes>(l: L, values: &[f32]) -> f32 {
    let mut sums = [l.splat(0.0); 4];
    let (quads, tail) = values.as_chunks::<32>();
    let mut last = [0.0; 32];
    last[..tail.len()].copy_from_slice(tail);
    for quad in quads.iter().chain((!tail.is_empty()).then_some(&last)) {
        let (quad, _) = quad.as_chunks::<8>();
        for part in 0..4 {
            let value = l.load(&quad[part]);
            sums[part] = l.add(sums[part], l.mul(value, value));
        }
    }
    let mut lanes = [0.0; 8];
    l.store(
        l.add(l.add(sums[0], sums[1]), l.add(sums[2], sums[3])),
        &mut lanes,
    );
    let squares: f32 = lanes.iter().sum();
    if squares > 1e-28 && squares < f32::INFINITY {
        squares.sqrt()
    } else {
        largest(l, values)
    }
}

#[inline(always)]
fn quantise<L: Lanes, const B: usize>(
    l: L,
    noise: &mut RandomLanes<L>,
    gradients: &[f32],
    inverse: f32,
    codes: &mut [u8],
) {
    let inverse = l.splat(inverse);
    let (quads, tail) = gradients.as_chunks::<32>();
    let mut outs = codes.chunks_exact_mut(4 * B);
    for (quad, out) in quads.iter().zip(&mut outs) {
        let packed = pack::<B>(codes_of(l, noise, quad, inverse));
        for (to, from) in out.chunks_exact_mut(B).zip(&packed) {
            to.copy_from_slice(&from[..B]);
        }
    }
    if !tail.is_empty() {
        let mut last = [0.0; 32];
        last[..tail.len()].copy_from_slice(tail);
        let packed = pack::<B>(codes_of(l, noise, &last, inverse));
        let packed = packed.iter().flat_map(|word| &word[..B]);
        for (to, from) in outs.into_remainder().iter_mut().zip(packed) {
            *to = *from;
        }
    }
}

/// Integers of 32 values; their lowest bits are the codes.
#[inline(always)]
fn codes_of<L: Lanes>(
    l: L,
    noise: &mut RandomLanes<L>,
    quad: &[f32; 32],
    inverse: L::F,
) -> [u8; 32] {
    let (quad, _) = quad.as_chunks::<8>();
    let mut codes = [l.splat_u(0); 4];
    for part in 0..4 {
        let level = l.mul(l.load(&quad[part]), inverse);
        // Rounding to nearest with noise in [-1/2, 1/2] equals rounding down with noise in [0, 1].
        codes[part] = round_bits(l, l.add(level, noise.centred()));
    }
    l.low_bytes(codes)
}

struct QsgdDecodeKernel<'a> {
    codec: &'a Qsgd,
    add: bool,
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl SimdKernel for QsgdDecodeKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        match (self.codec.bits, self.add) {
            (4, false) => self.with::<L, 4, false>(l),
            (5, false) => self.with::<L, 5, false>(l),
            (6, false) => self.with::<L, 6, false>(l),
            (7, false) => self.with::<L, 7, false>(l),
            (_, false) => self.with::<L, 8, false>(l),
            (4, true) => self.with::<L, 4, true>(l),
            (5, true) => self.with::<L, 5, true>(l),
            (6, true) => self.with::<L, 6, true>(l),
            (7, true) => self.with::<L, 7, true>(l),
            (_, true) => self.with::<L, 8, true>(l),
        }
    }
}

impl QsgdDecodeKernel<'_> {
    #[inline(always)]
    fn with<L: Lanes, const B: usize, const ADD: bool>(self, l: L) {
        let bucket = self.codec.bucket;
        let buckets = self.out.chunks_mut(bucket);
        for (out, bytes) in buckets.zip(self.bytes.chunks(HEADER + bucket * B / 8)) {
            let (header, codes) = bytes.split_at(HEADER);
            let unit = f32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            expand::<L, B, ADD>(l, codes, unit, out);
        }
    }
}

#[inline(always)]
fn expand<L: Lanes, const B: usize, const ADD: bool>(
    l: L,
    codes: &[u8],
    unit: f32,
    out: &mut [f32],
) {
    let unit = l.splat(unit);
    let (octets, tail) = out.as_chunks_mut::<8>();
    let (words, word_tail) = codes.as_chunks::<B>();
    for (octet, word) in octets.iter_mut().zip(words) {
        expand_octet::<L, B, ADD>(l, word, unit, octet);
    }
    if !tail.is_empty() {
        let (mut last, mut word) = ([0.0; 8], [0; B]);
        last[..tail.len()].copy_from_slice(tail);
        match words.get(octets.len()) {
            Some(whole) => word = *whole,
            None => word[..word_tail.len()].copy_from_slice(word_tail),
        }
        expand_octet::<L, B, ADD>(l, &word, unit, &mut last);
        tail.copy_from_slice(&last[..tail.len()]);
    }
}

#[inline(always)]
fn expand_octet<L: Lanes, const B: usize, const ADD: bool>(
    l: L,
    word: &[u8; B],
    unit: L::F,
    octet: &mut [f32; 8],
) {
    let mut packed = [0; 8];
    packed[..B].copy_from_slice(word);
    let codes = unpack_word::<B>(u64::from_le_bytes(packed)).to_le_bytes();
    let integers = l.widen_bytes(&codes);
    let level = if B == 8 {
        l.int_to_float(integers)
    } else {
        // Two's complement with fewer bits: flip the sign bit, then subtract its value.
        let flipped = l.xor(integers, l.splat_u(1 << (B - 1)));
        l.sub(l.int_to_float(flipped), l.splat((1 << (B - 1)) as f32))
    };
    let value = l.mul(level, unit);
    let value = if ADD {
        l.add(l.load(octet), value)
    } else {
        value
    };
    l.store(value, octet);
}
