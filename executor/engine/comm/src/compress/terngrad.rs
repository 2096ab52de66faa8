//! TernGrad: three levels -scale, 0 and +scale, chosen stochastically so that the mean is the
//! gradient (Wen et al., "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep
//! Learning", NeurIPS 2017).
//!
//! A value is sent as ±scale with probability `|value| / scale`, and otherwise as 0. The scale is
//! the largest magnitude after clipping at `clip` standard deviations (2.5 in the paper). There is
//! one scale per group of [`GROUP`] values, or one per block as in the paper. A scale per block
//! costs one more pass over memory. It lets workers share the largest of their scales (the paper's
//! scaler sharing), so that sums of codes are sums of gradients.
//!
//! Encoding of a group: the scale (f32, little endian), then two bytes for each eight values. The
//! first byte has a set bit for each value that is not 0, the second has the sign bits. The lowest
//! bit belongs to the first value.

use super::lanes::{Isa, Lanes, SimdKernel, dispatch};
use super::noise::{ChunkSeed, RandomLanes};
use super::{
    Codec, DecodeError, DecodeMode, EncodingKey, FeedbackPlane, FeedbackState, Prepared, front,
};
pub use muster_model::spec::TernScale as Scale;

/// Maximum number of values that share a scale in the encoding. With a scale per block every group
/// repeats it.
pub const GROUP: usize = 2048;

/// Length in bytes of a group's scale.
const HEADER: usize = 4;

/// The codec. It keeps no state, and its mean is the gradient except for the clipping.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TernGrad {
    scale: Scale,
    clip: f32,
    isa: Isa,
}

impl TernGrad {
    /// Creates the codec. `clip` is in standard deviations of the gradients that share a scale;
    /// infinity disables clipping.
    #[must_use]
    pub fn new(scale: Scale, clip: f32) -> Self {
        Self {
            scale,
            clip,
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

    /// Returns the scale of `len` values with these moments. A NaN among the values gives NaN.
    fn scale_of(&self, moments: &Moments, len: usize) -> f32 {
        let mean = moments.sum / len as f64;
        let deviation = (moments.squares / len as f64 - mean * mean).max(0.0).sqrt();
        let limit = f64::from(self.clip) * deviation;
        // Not `min`, which would hide a NaN. Equal values have no deviation and are not clipped.
        if limit > 0.0 && limit < f64::from(moments.largest) {
            limit as f32
        } else {
            moments.largest
        }
    }
}

impl Codec for TernGrad {
    fn planes(&self) -> &'static [FeedbackPlane] {
        &[]
    }

    fn max_chunk_bytes(&self, len: usize) -> usize {
        len.div_ceil(GROUP) * HEADER + 2 * len.div_ceil(8)
    }

    fn prepare(&self, _: EncodingKey, gradients: &[f32], _: &mut FeedbackState<'_>) -> Prepared {
        match self.scale {
            Scale::Group => Prepared::Nothing,
            Scale::Block => {
                let moments = dispatch(self.isa, MomentsKernel { gradients });
                Prepared::Scale(self.scale_of(&moments, gradients.len()))
            }
        }
    }

    fn encode_chunk(
        &self,
        key: EncodingKey,
        prepared: &Prepared,
        chunk: usize,
        gradients: &[f32],
        _: FeedbackState<'_>,
        out: &mut [u8],
    ) -> usize {
        let bytes = self.max_chunk_bytes(gradients.len());
        let kernel = TernGradEncodeKernel {
            codec: self,
            scale: match prepared {
                Prepared::Scale(scale) => Some(*scale),
                _ => None,
            },
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
        match mode {
            DecodeMode::Overwrite => {
                dispatch(self.isa, TernGradDecodeKernel::<false> { bytes, out })
            }
            DecodeMode::Add => dispatch(self.isa, TernGradDecodeKernel::<true> { bytes, out }),
        }
        Ok(bytes.len())
    }
}

/// Statistics from which a scale is computed.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    sum: f64,
    /// Sum of squares.
    squares: f64,
    /// Largest magnitude; NaN if there is one.
    largest: f32,
}

/// Computes the moments of a block.
struct MomentsKernel<'a> {
    gradients: &'a [f32],
}

impl SimdKernel for MomentsKernel<'_> {
    type Output = Moments;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> Moments {
        let mut all = Moments::default();
        for group in self.gradients.chunks(GROUP) {
            let moments = measure(l, group);
            all.sum += moments.sum;
            all.squares += moments.squares;
            // Compares the bits of magnitudes as integers, so that NaN is the largest.
            let largest = all.largest.to_bits().max(moments.largest.to_bits());
            all.largest = f32::from_bits(largest);
        }
        all
    }
}

/// Returns the moments of a group. Two accumulators of eight lanes each shorten the chains of
/// dependent additions.
#[inline(always)]
fn measure<L: Lanes>(l: L, group: &[f32]) -> Moments {
    let mut sums = [l.splat(0.0); 2];
    let mut squares = [l.splat(0.0); 2];
    let mut largest = [l.splat_u(0); 2];
    let magnitude = l.splat_u(0x7fff_ffff);
    // The values after the last whole pair of lanes, padded with zeros.
    let mut last = [0.0; 16];
    let (pairs, tail) = group.as_chunks::<16>();
    last[..tail.len()].copy_from_slice(tail);
    for pair in pairs.iter().chain([&last]) {
        let (pair, _) = pair.as_chunks::<8>();
        for half in 0..2 {
            let value = l.load(&pair[half]);
            sums[half] = l.add(sums[half], value);
            squares[half] = l.add(squares[half], l.mul(value, value));
            largest[half] = l.max_i(largest[half], l.and(l.bits(value), magnitude));
        }
    }
    let mut lanes = [0.0; 8];
    l.store(l.add(sums[0], sums[1]), &mut lanes);
    let sum = lanes.iter().map(|lane| f64::from(*lane)).sum();
    l.store(l.add(squares[0], squares[1]), &mut lanes);
    let squares = lanes.iter().map(|lane| f64::from(*lane)).sum();
    l.store(l.float(l.max_i(largest[0], largest[1])), &mut lanes);
    let largest = lanes.iter().fold(0, |max, lane| lane.to_bits().max(max));
    Moments {
        sum,
        squares,
        largest: f32::from_bits(largest),
    }
}

/// Encodes a chunk.
struct TernGradEncodeKernel<'a> {
    codec: &'a TernGrad,
    /// Scale of the block; `None` if each group has its own.
    scale: Option<f32>,
    seed: ChunkSeed,
    gradients: &'a [f32],
    out: &'a mut [u8],
}

impl SimdKernel for TernGradEncodeKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let mut noise = RandomLanes::new(l, self.seed);
        let outs = self.out.chunks_mut(HEADER + GROUP / 4);
        for (group, out) in self.gradients.chunks(GROUP).zip(outs) {
            let scale = match self.scale {
                Some(scale) => scale,
                None => self.codec.scale_of(&measure(l, group), group.len()),
            };
            let (header, codes) = out.split_at_mut(HEADER);
            header.copy_from_slice(&scale.to_le_bytes());
            encode_group(l, &mut noise, group, scale, codes);
        }
    }
}

/// Writes the codes of a group.
#[inline(always)]
fn encode_group<L: Lanes>(
    l: L,
    noise: &mut RandomLanes<L>,
    group: &[f32],
    scale: f32,
    codes: &mut [u8],
) {
    // Random numbers have steps of 2^-24 of the scale.
    let step = l.splat(scale * (1.0 / 16_777_216.0));
    let magnitude = l.splat_u(0x7fff_ffff);
    let (octets, tail) = group.as_chunks::<8>();
    let (codes, _) = codes.as_chunks_mut::<2>();
    let mut last = [0.0; 8];
    last[..tail.len()].copy_from_slice(tail);
    for (octet, code) in octets.iter().chain([&last]).zip(codes) {
        let bits = l.bits(l.load(octet));
        let sent = l.lt(noise.below(step), l.float(l.and(bits, magnitude)));
        *code = [l.signs(sent) as u8, l.signs(bits) as u8];
    }
}

/// Decodes a chunk to `out`, or adds it with `ADD`.
struct TernGradDecodeKernel<'a, const ADD: bool> {
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl<const ADD: bool> SimdKernel for TernGradDecodeKernel<'_, ADD> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let groups = self.out.chunks_mut(GROUP);
        for (out, bytes) in groups.zip(self.bytes.chunks(HEADER + GROUP / 4)) {
            let (header, codes) = bytes.split_at(HEADER);
            let scale = f32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            decode_group::<L, ADD>(l, codes, scale, out);
        }
    }
}

/// Decodes the codes of a group.
#[inline(always)]
fn decode_group<L: Lanes, const ADD: bool>(l: L, codes: &[u8], scale: f32, out: &mut [f32]) {
    let lane_bits = l.load_u(&[1, 2, 4, 8, 16, 32, 64, 128]);
    let none = l.splat_u(0);
    let sign = l.splat_u(0x8000_0000);
    // NaN if the scale is NaN or infinite: an invalid gradient is passed on and not hidden.
    let zero = l.splat(scale * 0.0);
    let scale = l.bits(l.splat(scale));
    let (octets, tail) = out.as_chunks_mut::<8>();
    let mut last = [0.0; 8];
    last[..tail.len()].copy_from_slice(tail);
    let (codes, _) = codes.as_chunks::<2>();
    for (octet, code) in octets.iter_mut().chain([&mut last]).zip(codes) {
        let sent = l.gt_i(l.and(l.splat_u(u32::from(code[0])), lane_bits), none);
        let negative = l.gt_i(l.and(l.splat_u(u32::from(code[1])), lane_bits), none);
        let level = l.float(l.xor(scale, l.and(negative, sign)));
        let value = l.select(sent, level, zero);
        let value = if ADD {
            l.add(l.load(octet), value)
        } else {
            value
        };
        l.store(value, octet);
    }
    tail.copy_from_slice(&last[..tail.len()]);
}
