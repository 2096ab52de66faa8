//! Element-wise functions over long values with software prefetch. These functions compute so long
//! per element that the hardware prefetcher does not read far enough ahead. For use in bodies of
//! `vectorised!`.

use crate::prefetch::{LINE, prefetch};

/// Prefetch distance in elements: 2 KiB.
const AHEAD: usize = 512;

/// `y = function(x)`.
#[inline(always)]
pub(crate) fn map(x: &[f32], y: &mut [f32], function: impl Fn(f32) -> f32) {
    let starts = [x.as_ptr(), y.as_ptr()];
    let (lines, rest) = x.as_chunks::<LINE>();
    let (y_lines, y_rest) = y.as_chunks_mut::<LINE>();
    for (at, (x, y)) in lines.iter().zip(y_lines).enumerate() {
        for start in starts {
            prefetch(start, at * LINE + AHEAD);
        }
        for (x, y) in x.iter().zip(y) {
            *y = function(*x);
        }
    }
    for (x, y) in rest.iter().zip(y_rest) {
        *y = function(*x);
    }
}

/// `d_x = d_y · slope(x)`.
#[inline(always)]
pub(crate) fn chain(x: &[f32], d_y: &[f32], d_x: &mut [f32], slope: impl Fn(f32) -> f32) {
    let starts = [x.as_ptr(), d_y.as_ptr(), d_x.as_ptr()];
    let (lines, rest) = x.as_chunks::<LINE>();
    let (d_y_lines, d_y_rest) = d_y.as_chunks::<LINE>();
    let (d_x_lines, d_x_rest) = d_x.as_chunks_mut::<LINE>();
    let gradients = d_y_lines.iter().zip(d_x_lines);
    for (at, (x, (d_y, d_x))) in lines.iter().zip(gradients).enumerate() {
        for start in starts {
            prefetch(start, at * LINE + AHEAD);
        }
        for (x, (d_y, d_x)) in x.iter().zip(d_y.iter().zip(d_x)) {
            *d_x = d_y * slope(*x);
        }
    }
    for (x, (d_y, d_x)) in rest.iter().zip(d_y_rest.iter().zip(d_x_rest)) {
        *d_x = d_y * slope(*x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_visits_every_element_once() {
        for len in [0, 1, LINE, LINE + 5, AHEAD + 3 * LINE - 1] {
            let x: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let mut y = vec![0.5; len];
            map(&x, &mut y, |x| x + 2.0);
            assert!(y.iter().zip(&x).all(|(y, x)| *y == x + 2.0), "{len}");
            let mut d_x = vec![0.5; len];
            chain(&x, &y, &mut d_x, |x| 3.0 * x);
            let expected = x.iter().map(|x| (x + 2.0) * (3.0 * x));
            assert!(d_x.iter().copied().eq(expected), "{len}");
        }
    }
}
