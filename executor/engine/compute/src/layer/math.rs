//! Exponential functions on `f32` as polynomials, which loops in `vectorised!` evaluate on whole
//! registers.
//!
//! They use only additions, multiplications, divisions and comparisons, which are never contracted.
//! The bits are therefore the same with and without AVX2. The functions of the standard library
//! cannot be vectorised and are much slower. A NaN yields a NaN, so that divergence shows.
//!
//! Largest errors in units in the last place (ulp), as the tests verify over the whole range: `exp`
//! 2, `sigmoid` 3, `tanh` 7, `erf` 7.

use crate::simd::vectorised;

/// 1.5 · 2^23. Adding it rounds to a whole number, which is then in the lowest bits.
const ROUND: f32 = 12_582_912.0;

/// e^x by Cephes' polynomial on [−ln 2 / 2, ln 2 / 2]. Results below 2^−126 are subnormal and lose
/// bits; the smallest become 0.
#[inline(always)]
#[allow(
    clippy::excessive_precision,
    reason = "the constants as they were published"
)]
pub(crate) fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    /// ln 2 in two parts. Products of the first part with small whole numbers are exact.
    const LN_2: (f32, f32) = (0.693_359_375, -2.121_944_4e-4);
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -105.0 { -105.0 } else { x };
    let rounded = x * LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = x - n * LN_2.0 - n * LN_2.1;
    let mut p = 1.987_569_15e-4;
    p = p * r + 1.398_199_950_7e-3;
    p = p * r + 8.333_451_907_3e-3;
    p = p * r + 4.166_579_589_4e-2;
    p = p * r + 1.666_666_545_9e-1;
    p = p * r + 5.000_000_120_1e-1;
    let y = p * (r * r) + r + 1.0;
    // Two factors, because 2^n itself may not be representable.
    let n = (rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    y * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// 1 / (1 + e^−x); returns 0 below x = −88.72, where the result is less than 2^−126.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Quotient of polynomials (Eigen's), cheaper than a formula with `exp`.
#[inline(always)]
#[allow(
    clippy::excessive_precision,
    reason = "the constants as they were published"
)]
pub(crate) fn tanh(x: f32) -> f32 {
    const LIMIT: f32 = 7.905_311_107_635_498_05;
    let tiny = x.abs() < 4e-4;
    let y = x;
    let x = if x > LIMIT { LIMIT } else { x };
    let x = if x < -LIMIT { -LIMIT } else { x };
    let z = x * x;
    let mut p = -2.760_768_477_423_55e-16;
    p = p * z + 2.000_187_904_824_77e-13;
    p = p * z - 8.604_671_522_137_35e-11;
    p = p * z + 5.122_297_090_371_14e-8;
    p = p * z + 1.485_722_357_179_79e-5;
    p = p * z + 6.372_619_288_754_36e-4;
    p = p * z + 4.893_524_558_917_86e-3;
    let mut q = 1.198_258_394_667_02e-6;
    q = q * z + 1.185_347_056_866_54e-4;
    q = q * z + 2.268_434_632_439_00e-3;
    q = q * z + 4.893_525_185_543_85e-3;
    let quotient = x * p / q;
    if tiny { y } else { quotient }
}

/// Error function as a quotient of polynomials (Eigen's).
#[inline(always)]
#[allow(
    clippy::excessive_precision,
    reason = "the constants as they were published"
)]
pub(crate) fn erf(x: f32) -> f32 {
    let tiny = x.abs() < 4e-4;
    let line = x * std::f32::consts::FRAC_2_SQRT_PI;
    let x = if x > 4.0 { 4.0 } else { x };
    let x = if x < -4.0 { -4.0 } else { x };
    let z = x * x;
    let mut p = -2.726_142_258_013_06e-10;
    p = p * z + 2.770_681_424_959_02e-8;
    p = p * z - 2.101_024_020_825_08e-6;
    p = p * z - 5.692_506_394_623_46e-5;
    p = p * z - 7.349_906_303_268_55e-4;
    p = p * z - 2.954_599_808_540_25e-3;
    p = p * z - 1.609_603_332_624_15e-2;
    let mut q = -1.456_607_184_649_96e-5;
    q = q * z - 2.133_740_552_789_05e-4;
    q = q * z - 1.682_826_974_382_03e-3;
    q = q * z - 7.373_329_167_204_68e-3;
    q = q * z - 1.426_473_905_141_89e-2;
    let quotient = x * p / q;
    if tiny { line } else { quotient }
}

/// Number of partial sums or maxima that a reduction keeps side by side.
const SIDE: usize = 16;

vectorised! {
    /// Largest element, ignoring NaN; −∞ for an empty slice.
    pub(crate) fn largest(x: &[f32]) -> f32 {
        let mut lanes = [f32::NEG_INFINITY; SIDE];
        let chunks = x.chunks_exact(SIDE);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (lane, x) in lanes.iter_mut().zip(chunk) {
                *lane = if *x > *lane { *x } else { *lane };
            }
        }
        let larger = |a: f32, b: &f32| if *b > a { *b } else { a };
        rest.iter().fold(lanes.iter().fold(f32::NEG_INFINITY, larger), larger)
    }

    /// Computes `out = e^(x − from)` and returns the sum of `out`.
    pub(crate) fn exp_sum(x: &[f32], from: f32, out: &mut [f32]) -> f64 {
        for (out, x) in out.iter_mut().zip(x) {
            *out = exp(*x - from);
        }
        let mut lanes = [0.0_f64; SIDE];
        let chunks = out.chunks_exact(SIDE);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (lane, x) in lanes.iter_mut().zip(chunk) {
                *lane += f64::from(*x);
            }
        }
        let mut sum = lanes.iter().sum::<f64>();
        for x in rest {
            sum += f64::from(*x);
        }
        sum
    }

    /// `x *= factor`.
    pub(crate) fn scale(x: &mut [f32], factor: f32) {
        for x in x {
            *x *= factor;
        }
    }

    /// `sum += part`.
    pub(crate) fn add(sum: &mut [f32], part: &[f32]) {
        for (sum, part) in sum.iter_mut().zip(part) {
            *sum += part;
        }
    }

    /// Dot product, added in an order that depends on the length alone.
    pub(crate) fn dot(x: &[f32], y: &[f32]) -> f32 {
        sum_of_two(x, y, |x, y| x * y)
    }
}

/// Sum of a function of each element, added in an order that depends on the length alone.
#[inline(always)]
pub(crate) fn sum_of(x: &[f32], function: impl Fn(f32) -> f32) -> f32 {
    sum_of_two(x, x, |x, _| function(x))
}

/// Sum of a function of each pair of elements, added in an order that depends on the length alone.
#[inline(always)]
pub(crate) fn sum_of_two(x: &[f32], y: &[f32], function: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0_f32; SIDE];
    let (xs, ys) = (x.chunks_exact(SIDE), y.chunks_exact(SIDE));
    let rest = (xs.remainder(), ys.remainder());
    for (x, y) in xs.zip(ys) {
        for (lane, (x, y)) in lanes.iter_mut().zip(x.iter().zip(y)) {
            *lane += function(*x, *y);
        }
    }
    let mut sum = fold(lanes);
    for (x, y) in rest.0.iter().zip(rest.1) {
        sum += function(*x, *y);
    }
    sum
}

/// Sum of the lanes, by repeated halving.
#[inline(always)]
fn fold(mut lanes: [f32; SIDE]) -> f32 {
    let mut width = SIDE / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 499th finite `f32`, of both signs.
    fn numbers() -> impl Iterator<Item = f32> {
        (0..=u32::MAX)
            .step_by(499)
            .map(f32::from_bits)
            .filter(|x| x.is_finite())
    }

    /// Distance from the exact value in units in the last place; below 2^−126 in those of 2^−126.
    fn ulps(actual: f32, exact: f64) -> f64 {
        let rounded = exact as f32;
        if rounded.is_infinite() || actual.is_infinite() {
            return if rounded == actual { 0.0 } else { f64::MAX };
        }
        let unit = f64::from(rounded.abs().max(f32::MIN_POSITIVE).next_up())
            - f64::from(rounded.abs().max(f32::MIN_POSITIVE));
        (f64::from(actual) - exact).abs() / unit
    }

    fn worst(
        actual: impl Fn(f32) -> f32,
        exact: impl Fn(f64) -> f64,
        limit: f64,
        numbers: impl Iterator<Item = f32>,
    ) {
        let (mut most, mut at) = (0.0, 0.0);
        for x in numbers {
            let found = ulps(actual(x), exact(f64::from(x)));
            if found > most {
                (most, at) = (found, x);
            }
        }
        assert!(most <= limit, "{most} ulp at {at:e}");
        assert!(
            most > limit / 3.0,
            "the limit is {limit} ulp, the most {most}"
        );
    }

    #[test]
    fn exp_is_within_2_ulp() {
        worst(exp, f64::exp, 2.0, numbers());
    }

    #[test]
    fn sigmoid_is_within_3_ulp() {
        let normal = numbers().filter(|x| *x > -88.72);
        worst(sigmoid, |x| 1.0 / (1.0 + (-x).exp()), 3.0, normal);
    }

    #[test]
    fn tanh_is_within_7_ulp() {
        worst(tanh, f64::tanh, 7.0, numbers());
    }

    #[test]
    fn erf_is_within_7_ulp() {
        worst(erf, exact_erf, 7.0, numbers().step_by(7));
    }

    /// Taylor series of erf where it converges fast, else the continued fraction of its complement.
    fn exact_erf(x: f64) -> f64 {
        let size = x.abs();
        if size > 6.0 {
            return x.signum();
        }
        let value = if size < 2.5 {
            let (mut term, mut sum) = (size, size);
            for n in 1..80 {
                term *= -size * size / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let fraction = (1..80)
                .rev()
                .fold(size, |rest, n| size + f64::from(n) / 2.0 / rest);
            1.0 - (-size * size).exp() / fraction / std::f64::consts::PI.sqrt()
        };
        value.copysign(x)
    }

    #[test]
    fn nan_and_limits_are_preserved() {
        for function in [exp, sigmoid, tanh, erf] {
            assert!(function(f32::NAN).is_nan());
        }
        assert_eq!(
            [exp(f32::INFINITY), exp(f32::NEG_INFINITY)],
            [f32::INFINITY, 0.0]
        );
        assert_eq!(
            [tanh(f32::INFINITY), sigmoid(f32::NEG_INFINITY)],
            [1.0, 0.0]
        );
        assert_eq!(tanh(-0.0).to_bits(), (-0.0_f32).to_bits());
    }

    vectorised! {
        fn each(x: &[f32], out: &mut [[f32; 4]]) {
            for (out, x) in out.iter_mut().zip(x) {
                *out = [exp(*x), sigmoid(*x), tanh(*x), erf(*x)];
            }
        }
    }

    /// `each` uses the widest registers of the processor; this test's own calls are compiled for
    /// the baseline.
    #[test]
    fn wide_registers_give_the_same_bits() {
        let x: Vec<f32> = numbers().step_by(97).collect();
        let mut wide = vec![[0.0; 4]; x.len()];
        each(&x, &mut wide);
        for (x, wide) in x.iter().zip(wide) {
            let narrow = [exp(*x), sigmoid(*x), tanh(*x), erf(*x)];
            assert_eq!(narrow.map(f32::to_bits), wide.map(f32::to_bits), "of {x:e}");
        }
    }

    #[test]
    fn sums_equal_definition() {
        for len in [0, 1, 15, 16, 17, 100] {
            let x: Vec<f32> = (0..len).map(|i| (i * 7 % 13) as f32 - 6.0).collect();
            let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(largest(&x), most);
            let mut out = vec![0.0; len];
            let sum = exp_sum(&x, 1.5, &mut out);
            let expected: f64 = x.iter().map(|x| (f64::from(*x) - 1.5).exp()).sum();
            assert!((sum - expected).abs() <= 2e-7 * expected);
            let squares: f32 = x.iter().map(|x| x * x).sum();
            assert_eq!(dot(&x, &x), squares);
        }
    }
}
