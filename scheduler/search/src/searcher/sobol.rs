//! Sobol points with Joe and Kuo's direction numbers and Owen scrambling by hashing (Burley,
//! Practical Hash-based Owen Scrambling, 2020). The seed shuffles each dimension's tree of bits and
//! keeps the points evenly spread.

use super::sobol_directions::DIRECTIONS;
use crate::random::{Purpose, StudyRng};
use muster_model::study::{Point, Space};

const BITS: u32 = 32;

/// Point `index` of the sequence in the space; constraints are ignored.
pub(super) fn point(space: &Space, seed: u64, index: u64) -> Point {
    let units = units(space.len(), seed, index);
    let pairs = space.dimensions.iter().zip(units);
    let mut point: Point = pairs.map(|(d, unit)| Some(d.domain.at(unit))).collect();
    space.prune(&mut point);
    point
}

/// Coordinates of point `index`, each 0 to below 1.
pub(super) fn units(dimensions: usize, seed: u64, index: u64) -> Vec<f64> {
    let mut rng = StudyRng::new(seed, Purpose::Scramble, 0);
    (0..dimensions)
        .map(|d| {
            let key = rng.bits() as u32;
            let bits = scramble(raw(d, index as u32), key);
            (f64::from(bits) + 0.5) / 2f64.powi(BITS as i32)
        })
        .collect()
}

/// Unscrambled coordinate as 32 fractional bits.
fn raw(dimension: usize, index: u32) -> u32 {
    if dimension == 0 {
        return index.reverse_bits();
    }
    let (polynomial, initial) = DIRECTIONS[dimension - 1];
    let degree = initial.len();
    let mut directions = [0u32; BITS as usize];
    for i in 0..BITS as usize {
        directions[i] = if i < degree {
            initial[i] << (BITS as usize - 1 - i)
        } else {
            let mut v = directions[i - degree] ^ (directions[i - degree] >> degree);
            for k in 1..degree {
                if polynomial >> (degree - k) & 1 == 1 {
                    v ^= directions[i - k];
                }
            }
            v
        };
    }
    let set = (0..BITS).filter(|bit| index >> bit & 1 == 1);
    set.fold(0, |sum, bit| sum ^ directions[bit as usize])
}

/// Owen's nested uniform scrambling by the hash of Laine and Karras, with Burley's constants.
fn scramble(bits: u32, key: u32) -> u32 {
    let mut x = bits.reverse_bits();
    x ^= x.wrapping_mul(0x3d20_adea);
    x = x.wrapping_add(key);
    x = x.wrapping_mul((key >> 16) | 1);
    x ^= x.wrapping_mul(0x0552_6c56);
    x ^= x.wrapping_mul(0x53a2_2864);
    x.reverse_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(index: u32, dims: std::ops::Range<usize>) -> Vec<f64> {
        dims.map(|d| f64::from(raw(d, index)) / 2f64.powi(32))
            .collect()
    }

    /// Rows 5 and 13 of SciPy's `qmc.Sobol(128, scramble=False)`, which are the Gray-coded numbers
    /// 5 ^ 2 and 13 ^ 6.
    #[test]
    fn unscrambled_points_equal_those_of_scipy() {
        let fifth = [0.875, 0.875, 0.125, 0.375, 0.875, 0.625, 0.875, 0.375];
        assert_eq!(row(5 ^ 2, 0..8), fifth);
        let last = [
            0.1875, 0.3125, 0.4375, 0.0625, 0.9375, 0.8125, 0.1875, 0.1875,
        ];
        assert_eq!(row(13 ^ 6, 120..128), last);
    }

    proptest! {
        /// Owen's scrambling preserves the even spread: each 64th of each axis has one of the first
        /// 64 points.
        #[test]
        fn every_64th_of_an_axis_has_one_of_64_points(seed: u64) {
            let points: Vec<Vec<f64>> = (0..64).map(|i| units(128, seed, i)).collect();
            for d in 0..128 {
                let mut seen = [false; 64];
                for point in &points {
                    seen[(point[d] * 64.0) as usize] = true;
                }
                prop_assert!(seen.iter().all(|s| *s), "dimension {}", d);
            }
        }
    }
}
