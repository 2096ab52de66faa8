//! Vectors of eight `f32` or `u32` in two versions that compute the same bits: AVX2 intrinsics, and
//! plain Rust for all other processors.
//!
//! The approach of the layers (`simd`, which compiles a loop twice) is too slow here: bit
//! packing needs `movemask`, which the compiler does not generate by itself. A kernel is written
//! once over [`Lanes`]; [`dispatch`] runs it with the widest version of the processor. Every
//! operation below is exact or correctly rounded, and none is a fused multiply-add, so workers on
//! different processors produce the same bytes.

/// Kernel, generic over the version. `run` must be `#[inline(always)]`, so that the intrinsics are
/// inlined into a function that may use them. It must not call closures, which would not be
/// inlined.
pub(super) trait SimdKernel {
    type Output;

    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// Version that a codec runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
}

impl Isa {
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("f16c")
            && std::arch::is_x86_feature_detected!("popcnt")
            && std::arch::is_x86_feature_detected!("bmi1")
        {
            return Self::Avx2(Avx2(()));
        }
        Self::Portable
    }
}

pub(super) fn dispatch<K: SimdKernel>(isa: Isa, kernel: K) -> K::Output {
    match isa {
        Isa::Portable => kernel.run(Portable),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(lanes) => {
            #[target_feature(enable = "avx2,f16c,popcnt,bmi1")]
            fn wide<K: SimdKernel>(kernel: K, lanes: Avx2) -> K::Output {
                kernel.run(lanes)
            }
            // SAFETY: an `Avx2` exists only if `Isa::detect` has found all of these features.
            unsafe { wide(kernel, lanes) }
        }
    }
}

/// Operations on eight lanes. `F` holds floats, `U` bits. A mask is a `U` whose lanes are all ones
/// or all zeros.
pub(super) trait Lanes: Copy {
    type F: Copy;
    type U: Copy;

    fn load(self, from: &[f32; 8]) -> Self::F;
    fn store(self, value: Self::F, to: &mut [f32; 8]);
    fn splat(self, value: f32) -> Self::F;
    fn splat_u(self, value: u32) -> Self::U;
    fn load_u(self, from: &[u32; 8]) -> Self::U;
    fn bits(self, value: Self::F) -> Self::U;
    fn float(self, bits: Self::U) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a < b { a } else { b }`: the second operand if either is NaN, as in the processor's
    /// instruction.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a > b { a } else { b }`.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// Mask of `a < b`; false if either is NaN.
    fn lt(self, a: Self::F, b: Self::F) -> Self::U;
    fn and(self, a: Self::U, b: Self::U) -> Self::U;
    fn or(self, a: Self::U, b: Self::U) -> Self::U;
    fn xor(self, a: Self::U, b: Self::U) -> Self::U;
    fn shr<const N: i32>(self, a: Self::U) -> Self::U;
    fn shl<const N: i32>(self, a: Self::U) -> Self::U;
    fn add_u(self, a: Self::U, b: Self::U) -> Self::U;
    /// Low half of the product.
    fn mul_u(self, a: Self::U, b: Self::U) -> Self::U;
    /// Mask of `a > b` as signed integers.
    fn gt_i(self, a: Self::U, b: Self::U) -> Self::U;
    /// Maximum as signed integers. For bits of floats without sign, this is the largest float, or a
    /// NaN.
    fn max_i(self, a: Self::U, b: Self::U) -> Self::U;
    /// Converts the bits, as a signed integer, to the nearest float.
    fn int_to_float(self, a: Self::U) -> Self::F;
    /// `a` where the mask's sign bit is set, else `b`.
    fn select(self, mask: Self::U, a: Self::F, b: Self::F) -> Self::F;
    /// Sign bits, lane 0 lowest.
    fn signs(self, a: Self::U) -> u32;
    /// Lowest bytes of 32 lanes, in order.
    fn low_bytes(self, a: [Self::U; 4]) -> [u8; 32];
    /// Signed bytes, widened to integers.
    fn widen_bytes(self, a: &[u8; 8]) -> Self::U;
    /// Lowest 16 bits of each lane, in order, little endian.
    fn low_halves(self, a: Self::U) -> [u8; 16];
    fn widen_halves(self, a: &[u8; 16]) -> Self::U;
    /// Rounds to IEEE binary16 (nearest even) in the low half of each lane.
    fn to_f16(self, a: Self::F) -> Self::U;
    /// Converts IEEE binary16 in the low half of each lane.
    fn widen_f16(self, a: Self::U) -> Self::F;
}

/// Version in plain Rust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Portable;

#[inline(always)]
fn map<A: Copy, B: Copy + Default>(a: [A; 8], f: impl Fn(A) -> B) -> [B; 8] {
    let mut out = [B::default(); 8];
    for lane in 0..8 {
        out[lane] = f(a[lane]);
    }
    out
}

#[inline(always)]
fn zip<A: Copy, B: Copy + Default>(a: [A; 8], b: [A; 8], f: impl Fn(A, A) -> B) -> [B; 8] {
    let mut out = [B::default(); 8];
    for lane in 0..8 {
        out[lane] = f(a[lane], b[lane]);
    }
    out
}

#[inline(always)]
fn mask(yes: bool) -> u32 {
    0u32.wrapping_sub(u32::from(yes))
}

#[rustfmt::skip]
impl Lanes for Portable {
    type F = [f32; 8];
    type U = [u32; 8];

    #[inline(always)]
    fn load(self, from: &[f32; 8]) -> [f32; 8] { *from }
    #[inline(always)]
    fn store(self, value: [f32; 8], to: &mut [f32; 8]) { *to = value; }
    #[inline(always)]
    fn splat(self, value: f32) -> [f32; 8] { [value; 8] }
    #[inline(always)]
    fn splat_u(self, value: u32) -> [u32; 8] { [value; 8] }
    #[inline(always)]
    fn load_u(self, from: &[u32; 8]) -> [u32; 8] { *from }
    #[inline(always)]
    fn bits(self, value: [f32; 8]) -> [u32; 8] { map(value, f32::to_bits) }
    #[inline(always)]
    fn float(self, bits: [u32; 8]) -> [f32; 8] { map(bits, f32::from_bits) }
    #[inline(always)]
    fn add(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] { zip(a, b, |a, b| a + b) }
    #[inline(always)]
    fn sub(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] { zip(a, b, |a, b| a - b) }
    #[inline(always)]
    fn mul(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] { zip(a, b, |a, b| a * b) }
    #[inline(always)]
    fn min(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] { zip(a, b, |a, b| if a < b { a } else { b }) }
    #[inline(always)]
    fn max(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] { zip(a, b, |a, b| if a > b { a } else { b }) }
    #[inline(always)]
    fn lt(self, a: [f32; 8], b: [f32; 8]) -> [u32; 8] { zip(a, b, |a, b| mask(a < b)) }
    #[inline(always)]
    fn and(self, a: [u32; 8], b: [u32; 8]) -> [u32; 8] { zip(a, b, |a, b| a & b) }
    #[inline(always)]
    fn or(self, a: [u32; 8], b: [u32; 8]) -> [u32; 8] { zip(a, b, |a, b| a | b) }
    #[inline(always)]
    fn xor(self, a: [u32; 8], b: [u32; 8]) -> [u32; 8] { zip(a, b, |a, b| a ^ b) }
    #[inline(always)]
    fn shr<const N: i32>(self, a: [u32; 8]) -> [u32; 8] { map(a, |a| a >> N) }
    #[inline(always)]
    fn shl<const N: i32>(self, a: [u32; 8]) -> [u32; 8] { map(a, |a| a << N) }
    #[inline(always)]
    fn add_u(self, a: [u32; 8], b: [u32; 8]) -> [u32; 8] { zip(a, b, u32::wrapping_add) }
    #[inline(always)]
    fn mul_u(self, a: [u32; 8], b: [u32; 8]) -> [u32; 8] { zip(a, b, u32::wrapping_mul) }
    #[inline(always)]
    fn gt_i(self, a: [u32; 8], b: [u32; 8]) -> [u32; 8] { zip(a, b, |a, b| mask(a.cast_signed() > b.cast_signed())) }
    #[inline(always)]
    fn max_i(self, a: [u32; 8], b: [u32; 8]) -> [u32; 8] { zip(a, b, |a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned()) }
    #[inline(always)]
    fn int_to_float(self, a: [u32; 8]) -> [f32; 8] { map(a, |a| a.cast_signed() as f32) }
    #[inline(always)]
    fn select(self, mask: [u32; 8], a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        let mut out = b;
        for lane in 0..8 {
            if mask[lane] >> 31 == 1 { out[lane] = a[lane]; }
        }
        out
    }
    #[inline(always)]
    fn signs(self, a: [u32; 8]) -> u32 { (0..8).fold(0, |signs, lane| signs | (a[lane] >> 31) << lane) }
    #[inline(always)]
    fn low_bytes(self, a: [[u32; 8]; 4]) -> [u8; 32] {
        let mut out = [0; 32];
        for (to, from) in out.iter_mut().zip(a.as_flattened()) { *to = *from as u8; }
        out
    }
    #[inline(always)]
    fn widen_bytes(self, a: &[u8; 8]) -> [u32; 8] { map(*a, |a| i32::from(a.cast_signed()).cast_unsigned()) }
    #[inline(always)]
    fn low_halves(self, a: [u32; 8]) -> [u8; 16] {
        let mut out = [0; 16];
        for lane in 0..8 { [out[2 * lane], out[2 * lane + 1]] = (a[lane] as u16).to_le_bytes(); }
        out
    }
    #[inline(always)]
    fn widen_halves(self, a: &[u8; 16]) -> [u32; 8] {
        let mut out = [0; 8];
        for lane in 0..8 { out[lane] = u32::from(u16::from_le_bytes([a[2 * lane], a[2 * lane + 1]])); }
        out
    }
    #[inline(always)]
    fn to_f16(self, a: [f32; 8]) -> [u32; 8] { map(a, f32_to_f16) }
    #[inline(always)]
    fn widen_f16(self, a: [u32; 8]) -> [f32; 8] { map(a, f16_to_f32) }
}

/// Rounds a float to IEEE 754 binary16 (nearest even), with the same result as the processor's
/// conversion.
fn f32_to_f16(value: f32) -> u32 {
    let bits = value.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    sign | match magnitude {
        // NaN: quiet, with the upper part of the payload.
        0x7f80_0001.. => 0x7e00 | magnitude >> 13 & 0x3ff,
        // At least half a step above the largest finite value.
        0x477f_f000.. => 0x7c00,
        // Below the smallest normal value the step is 2^-24. Adding 0.5 leaves the rounded multiple
        // of it in the lowest bits.
        0..0x3880_0000 => (f32::from_bits(magnitude) + 0.5).to_bits() - 0x3f00_0000,
        _ => (magnitude - 0x3800_0000 + 0xfff + (magnitude >> 13 & 1)) >> 13,
    }
}

fn f16_to_f32(half: u32) -> f32 {
    let sign = (half & 0x8000) << 16;
    let magnitude = half & 0x7fff;
    let bits = match magnitude {
        0x7c01.. => 0x7fc0_0000 | magnitude << 13,
        0x7c00 => 0x7f80_0000,
        0..0x400 => (magnitude as f32 * (1.0 / 16_777_216.0)).to_bits(),
        _ => (magnitude << 13) + 0x3800_0000,
    };
    f32::from_bits(sign | bits)
}

/// Proof that the processor has AVX2, F16C, POPCNT and BMI1.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx2(());

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Avx2, Lanes};
    use std::arch::x86_64::*;

    /// Defines methods that consist of one intrinsic each.
    macro_rules! intrinsics {
        ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $body:expr;)*) => {$(
            #[inline(always)]
            fn $name(self, $($arg: $ty),*) -> $ret {
                // SAFETY: `self` proves the instruction set; pointers come from references of the
                // length that is read or written.
                unsafe { $body }
            }
        )*};
    }

    #[rustfmt::skip]
    impl Lanes for Avx2 {
        type F = __m256;
        type U = __m256i;

        intrinsics! {
            load(from: &[f32; 8]) -> __m256 = _mm256_loadu_ps(from.as_ptr());
            store(value: __m256, to: &mut [f32; 8]) -> () = _mm256_storeu_ps(to.as_mut_ptr(), value);
            splat(value: f32) -> __m256 = _mm256_set1_ps(value);
            splat_u(value: u32) -> __m256i = _mm256_set1_epi32(value.cast_signed());
            load_u(from: &[u32; 8]) -> __m256i = _mm256_loadu_si256(from.as_ptr().cast());
            bits(value: __m256) -> __m256i = _mm256_castps_si256(value);
            float(bits: __m256i) -> __m256 = _mm256_castsi256_ps(bits);
            add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
            sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
            mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
            min(a: __m256, b: __m256) -> __m256 = _mm256_min_ps(a, b);
            max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
            lt(a: __m256, b: __m256) -> __m256i = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b));
            and(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
            or(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b);
            xor(a: __m256i, b: __m256i) -> __m256i = _mm256_xor_si256(a, b);
            add_u(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
            mul_u(a: __m256i, b: __m256i) -> __m256i = _mm256_mullo_epi32(a, b);
            gt_i(a: __m256i, b: __m256i) -> __m256i = _mm256_cmpgt_epi32(a, b);
            max_i(a: __m256i, b: __m256i) -> __m256i = _mm256_max_epi32(a, b);
            int_to_float(a: __m256i) -> __m256 = _mm256_cvtepi32_ps(a);
            select(mask: __m256i, a: __m256, b: __m256) -> __m256 = _mm256_blendv_ps(b, a, _mm256_castsi256_ps(mask));
            signs(a: __m256i) -> u32 = _mm256_movemask_ps(_mm256_castsi256_ps(a)).cast_unsigned();
            widen_bytes(a: &[u8; 8]) -> __m256i = _mm256_cvtepi8_epi32(_mm_loadl_epi64(a.as_ptr().cast()));
            widen_halves(a: &[u8; 16]) -> __m256i = _mm256_cvtepu16_epi32(_mm_loadu_si128(a.as_ptr().cast()));
            to_f16(a: __m256) -> __m256i = _mm256_cvtepu16_epi32(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(a));
            widen_f16(a: __m256i) -> __m256 = _mm256_cvtph_ps(halves(a));
        }

        #[inline(always)]
        fn shr<const N: i32>(self, a: __m256i) -> __m256i {
            // SAFETY: `self` proves the instruction set.
            unsafe { _mm256_srli_epi32::<N>(a) }
        }

        #[inline(always)]
        fn shl<const N: i32>(self, a: __m256i) -> __m256i {
            // SAFETY: `self` proves the instruction set.
            unsafe { _mm256_slli_epi32::<N>(a) }
        }

        #[inline(always)]
        fn low_bytes(self, [a, b, c, d]: [__m256i; 4]) -> [u8; 32] {
            let mut out = [0; 32];
            // SAFETY: `self` proves the instruction set; `out` has the 32 bytes that are stored.
            unsafe {
                let low = _mm256_set1_epi32(0xff);
                let ab = _mm256_packus_epi32(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
                let cd = _mm256_packus_epi32(_mm256_and_si256(c, low), _mm256_and_si256(d, low));
                // The pack instructions work within each half of a register; the permutation
                // restores the order of the quarters.
                let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
                let packed = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(ab, cd), order);
                _mm256_storeu_si256(out.as_mut_ptr().cast(), packed);
            }
            out
        }

        #[inline(always)]
        fn low_halves(self, a: __m256i) -> [u8; 16] {
            let mut out = [0; 16];
            // SAFETY: `self` proves the instruction set; `out` has the 16 bytes that are stored.
            unsafe {
                let low = _mm256_and_si256(a, _mm256_set1_epi32(0xffff));
                _mm_storeu_si128(out.as_mut_ptr().cast(), halves(low));
            }
            out
        }
    }

    /// Lanes as 16-bit integers; no lane may exceed 65,535.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn halves(a: __m256i) -> __m128i {
        let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(a, a));
        _mm256_castsi256_si128(packed)
    }
}
