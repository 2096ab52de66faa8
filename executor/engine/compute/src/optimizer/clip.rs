//! Norm of a whole gradient, and the factor that clips it.
//!
//! Squares are added in f64 within pieces of a fixed length, and the pieces are added in order. The
//! bits of a norm depend only on the values and not on the number of threads or the caller.

use super::update::square_sum;
use std::thread;

/// Number of elements of a piece: 256 KiB.
const PIECE: usize = 64 << 10;

/// Minimum number of pieces per thread.
const PIECES_PER_THREAD: usize = 8;

/// Returns the factor that limits a gradient of Euclidean norm `norm` to `limit` (Pascanu, Mikolov
/// and Bengio, ICML 2013). It is `limit / (norm + 1e-6)`, as in PyTorch's `clip_grad_norm_`, and at
/// most 1. A NaN norm yields NaN, so that divergence is not hidden.
#[must_use]
pub fn clip_factor(limit: f64, norm: f64) -> f64 {
    let factor = limit / (norm + 1e-6);
    if factor >= 1.0 { 1.0 } else { factor }
}

/// Returns the sum over `parts` of the squares of a part's scaled values. A part is its values and
/// their scale. Uses up to `threads` threads, with the same bits for any number of them.
#[must_use]
pub fn square_norm(parts: &[(&[f32], f32)], threads: usize) -> f64 {
    let pieces: Vec<(&[f32], f32)> = parts
        .iter()
        .flat_map(|(values, scale)| values.chunks(PIECE).map(|piece| (piece, *scale)))
        .collect();
    let threads = threads.min(pieces.len() / PIECES_PER_THREAD).max(1);
    let share = pieces.len().div_ceil(threads).max(1);
    let mut squares = vec![0.0; pieces.len()];
    thread::scope(|scope| {
        let mut shares = squares.chunks_mut(share).zip(pieces.chunks(share));
        let own = shares.next();
        for (out, pieces) in shares {
            scope.spawn(move || write_squares(out, pieces));
        }
        if let Some((out, pieces)) = own {
            write_squares(out, pieces);
        }
    });
    squares.iter().sum()
}

/// Writes the sum of squares of each piece, a slice and its scale.
fn write_squares(out: &mut [f64], pieces: &[(&[f32], f32)]) {
    for (out, (values, scale)) in out.iter_mut().zip(pieces) {
        *out = f64::from(*scale).powi(2) * square_sum(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norm_bits_do_not_depend_on_threads() {
        let values: Vec<f32> = (0..40 * PIECE + 77)
            .map(|i| ((i * 7_919) % 1_003) as f32 / 501.5 - 1.0)
            .collect();
        let (a, b) = values.split_at(11 * PIECE + 5);
        let [one, others @ ..] =
            [1, 2, 3, 5].map(|threads| square_norm(&[(a, 0.5), (b, 3.0)], threads));
        let plain: f64 = [(a, 0.25), (b, 9.0)]
            .iter()
            .map(|(part, scale)| scale * part.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>())
            .sum();
        assert!((one / plain - 1.0).abs() < 1e-9);
        assert_eq!(others.map(f64::to_bits), [one.to_bits(); 3]);
    }

    #[test]
    fn nan_norm_gives_a_nan_factor() {
        assert!(clip_factor(1.0, f64::NAN).is_nan());
        assert_eq!(clip_factor(1.0, f64::INFINITY), 0.0);
        assert_eq!(clip_factor(1.0, 0.0), 1.0);
    }
}
