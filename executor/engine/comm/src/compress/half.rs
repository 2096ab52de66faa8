//! Sixteen bits per value: IEEE binary16 (11 bits of precision, up to 65,504) or bfloat16 (8 bits
//! of precision, the range of `f32`).
//!
//! Values are rounded to nearest even, or stochastically to one of both neighbours with
//! probabilities that make the mean exact (Gupta et al., "Deep Learning with Limited Numerical
//! Precision", ICML 2015). Values beyond the format's range become its largest value. NaN stays
//! NaN, and infinity becomes NaN. The error of rounding to nearest is exactly representable as
//! `f32`, so with feedback nothing is lost before the addition of the next step.

use super::lanes::{Isa, Lanes, SimdKernel, dispatch};
use super::noise::{ChunkSeed, ROUNDER, RandomLanes};
use super::{
    CHUNK, Codec, DecodeError, DecodeMode, EncodingKey, FeedbackPlane, FeedbackState, Prepared,
    front,
};
pub use muster_model::spec::{HalfFormat, Rounding};

/// Codec of half precision. With `feedback` it needs the residual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HalfCodec {
    format: HalfFormat,
    rounding: Rounding,
    feedback: bool,
    isa: Isa,
}

impl HalfCodec {
    #[must_use]
    pub fn new(format: HalfFormat, rounding: Rounding, feedback: bool) -> Self {
        Self {
            format,
            rounding,
            feedback,
            isa: Isa::detect(),
        }
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

impl Codec for HalfCodec {
    fn planes(&self) -> &'static [FeedbackPlane] {
        if self.feedback {
            &[FeedbackPlane::Residual]
        } else {
            &[]
        }
    }

    fn max_chunk_bytes(&self, len: usize) -> usize {
        2 * len
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
        state: FeedbackState<'_>,
        out: &mut [u8],
    ) -> usize {
        let bytes = 2 * gradients.len();
        let residual = if self.feedback {
            assert_eq!(gradients.len(), state.residual.len(), "a residual a number");
            state.residual
        } else {
            &mut []
        };
        let kernel = HalfEncodeKernel {
            bf16: self.format == HalfFormat::Bf16,
            seed: (self.rounding == Rounding::Stochastic).then(|| ChunkSeed::new(key, chunk)),
            gradients,
            residual,
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
        let bytes = front(bytes, 2 * out.len())?;
        let bf16 = self.format == HalfFormat::Bf16;
        match mode {
            DecodeMode::Overwrite => {
                dispatch(self.isa, HalfDecodeKernel::<false> { bf16, bytes, out })
            }
            DecodeMode::Add => dispatch(self.isa, HalfDecodeKernel::<true> { bf16, bytes, out }),
        }
        Ok(bytes.len())
    }
    fn is_fixed(&self) -> bool {
        true
    }

    fn grain(&self) -> usize {
        match self.rounding {
            Rounding::Nearest => 1,
            // The random number of a value depends on its position in the chunk.
            Rounding::Stochastic => CHUNK,
        }
    }
}

struct HalfEncodeKernel<'a> {
    bf16: bool,
    /// Seed of stochastic rounding.
    seed: Option<ChunkSeed>,
    gradients: &'a [f32],
    /// Empty without feedback.
    residual: &'a mut [f32],
    out: &'a mut [u8],
}

impl SimdKernel for HalfEncodeKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        match (self.bf16, self.seed) {
            (false, None) => self.with(l, Nearest16),
            (true, None) => self.with(l, NearestBf16),
            (false, Some(seed)) => self.with(l, Random16(RandomLanes::new(l, seed))),
            (true, Some(seed)) => self.with(l, RandomBf16(RandomLanes::new(l, seed))),
        }
    }
}

impl HalfEncodeKernel<'_> {
    #[inline(always)]
    fn with<L: Lanes, R: HalfConversion<L>>(self, l: L, mut round: R) {
        let (octets, tail) = self.gradients.as_chunks::<8>();
        let (outs, out_tail) = self.out.as_chunks_mut::<16>();
        if self.residual.is_empty() {
            for (gradient, out) in octets.iter().zip(outs) {
                *out = l.low_halves(round.round(l, l.load(gradient)));
            }
            if !tail.is_empty() {
                let bits = round.round(l, l.load(&padded(tail)));
                out_tail.copy_from_slice(&l.low_halves(bits)[..2 * tail.len()]);
            }
            return;
        }
        let (residuals, residual_tail) = self.residual.as_chunks_mut::<8>();
        for ((gradient, residual), out) in octets.iter().zip(residuals).zip(outs) {
            *out = carry(l, &mut round, gradient, residual);
        }
        if !tail.is_empty() {
            let mut residual = padded(residual_tail);
            let bytes = carry(l, &mut round, &padded(tail), &mut residual);
            residual_tail.copy_from_slice(&residual[..tail.len()]);
            out_tail.copy_from_slice(&bytes[..2 * tail.len()]);
        }
    }
}

#[inline(always)]
fn carry<L: Lanes, R: HalfConversion<L>>(
    l: L,
    round: &mut R,
    gradient: &[f32; 8],
    residual: &mut [f32; 8],
) -> [u8; 16] {
    let value = l.add(l.load(gradient), l.load(residual));
    let bits = round.round(l, value);
    l.store(l.sub(value, R::back(l, bits)), residual);
    l.low_halves(bits)
}

fn padded(tail: &[f32]) -> [f32; 8] {
    let mut octet = [0.0; 8];
    octet[..tail.len()].copy_from_slice(tail);
    octet
}

/// Conversion from floats to sixteen bits in the low half of each lane, and back.
trait HalfConversion<L: Lanes> {
    fn round(&mut self, l: L, value: L::F) -> L::U;
    fn back(l: L, bits: L::U) -> L::F;
}

struct Nearest16;
struct NearestBf16;
struct Random16<L: Lanes>(RandomLanes<L>);
struct RandomBf16<L: Lanes>(RandomLanes<L>);

const LARGEST_16: f32 = 65_504.0;
/// (2 - 2^-7) · 2^127.
const LARGEST_BF16: f32 = f32::from_bits(0x7f7f_0000);

impl<L: Lanes> HalfConversion<L> for Nearest16 {
    #[inline(always)]
    fn round(&mut self, l: L, value: L::F) -> L::U {
        l.to_f16(clamp(l, value, LARGEST_16))
    }

    #[inline(always)]
    fn back(l: L, bits: L::U) -> L::F {
        l.widen_f16(bits)
    }
}

impl<L: Lanes> HalfConversion<L> for NearestBf16 {
    #[inline(always)]
    fn round(&mut self, l: L, value: L::F) -> L::U {
        let bits = l.bits(clamp(l, value, LARGEST_BF16));
        let odd = l.and(l.shr::<16>(bits), l.splat_u(1));
        cut(l, bits, l.add_u(odd, l.splat_u(0x7fff)))
    }

    #[inline(always)]
    fn back(l: L, bits: L::U) -> L::F {
        l.float(l.shl::<16>(bits))
    }
}

impl<L: Lanes> HalfConversion<L> for Random16<L> {
    /// In units of the last place the magnitude is below 2,048. Adding noise and rounding to an
    /// integer therefore loses at most 2^-13 of a unit.
    #[inline(always)]
    fn round(&mut self, l: L, value: L::F) -> L::U {
        let bits = l.bits(clamp(l, value, LARGEST_16));
        let sign = l.and(bits, l.splat_u(0x8000_0000));
        let magnitude = l.xor(bits, sign);
        let exponent = l.and(magnitude, l.splat_u(0x7f80_0000));
        // The step is the same below 2^-14 as just above it.
        let binade = l.max_i(exponent, l.splat_u(0x3880_0000));
        let inverse = l.add_u(
            l.xor(binade, l.splat_u(0x7f80_0000)),
            l.splat_u(0xff80_0000),
        );
        let units = l.mul(l.mul(l.float(magnitude), l.float(inverse)), l.splat(1024.0));
        let noisy = l.add(units, self.0.centred());
        let whole = l.sub(l.add(noisy, l.splat(ROUNDER)), l.splat(ROUNDER));
        let rounded = l.mul(l.mul(whole, l.float(binade)), l.splat(1.0 / 1024.0));
        let signed = l.float(l.or(l.bits(clamp(l, rounded, LARGEST_16)), sign));
        l.to_f16(signed)
    }

    #[inline(always)]
    fn back(l: L, bits: L::U) -> L::F {
        l.widen_f16(bits)
    }
}

impl<L: Lanes> HalfConversion<L> for RandomBf16<L> {
    #[inline(always)]
    fn round(&mut self, l: L, value: L::F) -> L::U {
        let bits = l.bits(clamp(l, value, LARGEST_BF16));
        cut(l, bits, l.shr::<16>(self.0.bits()))
    }

    #[inline(always)]
    fn back(l: L, bits: L::U) -> L::F {
        l.float(l.shl::<16>(bits))
    }
}

/// Clamps to the format's range. Infinity becomes NaN, so that divergence is detected.
#[inline(always)]
fn clamp<L: Lanes>(l: L, value: L::F, largest: f32) -> L::F {
    let nothing = l.mul(value, l.splat(0.0));
    // `min` and `max` return their second argument if it is NaN.
    let inside = l.max(l.splat(-largest), l.min(l.splat(largest), value));
    l.add(inside, nothing)
}

/// Upper sixteen bits after the addition of `extra`; for a NaN its own upper bits.
#[inline(always)]
fn cut<L: Lanes>(l: L, bits: L::U, extra: L::U) -> L::U {
    let magnitude = l.and(bits, l.splat_u(0x7fff_ffff));
    let no_number = l.gt_i(magnitude, l.splat_u(0x7f80_0000));
    let quiet = l.or(bits, l.splat_u(0x0040_0000));
    let rounded = l.add_u(bits, extra);
    l.shr::<16>(l.bits(l.select(no_number, l.float(quiet), l.float(rounded))))
}

struct HalfDecodeKernel<'a, const ADD: bool> {
    bf16: bool,
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl<const ADD: bool> SimdKernel for HalfDecodeKernel<'_, ADD> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        if self.bf16 {
            read::<L, NearestBf16, ADD>(l, self.bytes, self.out);
        } else {
            read::<L, Nearest16, ADD>(l, self.bytes, self.out);
        }
    }
}

#[inline(always)]
fn read<L: Lanes, R: HalfConversion<L>, const ADD: bool>(l: L, bytes: &[u8], out: &mut [f32]) {
    let (octets, tail) = out.as_chunks_mut::<8>();
    let (words, word_tail) = bytes.as_chunks::<16>();
    for (octet, word) in octets.iter_mut().zip(words) {
        read_octet::<L, R, ADD>(l, word, octet);
    }
    if !tail.is_empty() {
        let (mut word, mut octet) = ([0; 16], padded(tail));
        word[..word_tail.len()].copy_from_slice(word_tail);
        read_octet::<L, R, ADD>(l, &word, &mut octet);
        tail.copy_from_slice(&octet[..tail.len()]);
    }
}

#[inline(always)]
fn read_octet<L: Lanes, R: HalfConversion<L>, const ADD: bool>(
    l: L,
    word: &[u8; 16],
    octet: &mut [f32; 8],
) {
    let value = R::back(l, l.widen_halves(word));
    let value = if ADD {
        l.add(l.load(octet), value)
    } else {
        value
    };
    l.store(value, octet);
}
