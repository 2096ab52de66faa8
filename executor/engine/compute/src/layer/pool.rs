//! Bias, ReLU and 2×2 max pooling in one pass over the raw output of a convolution while it is in
//! the cache.
//!
//! Adding the channel's bias and ReLU both preserve order, so they are applied only to the largest
//! of the four raw values. The index of that value is kept as one byte, from which the backward
//! pass reconstructs the whole raw gradient.

use crate::simd::vectorised;

/// Value in place of a winner's index 0 to 3: ReLU cut the value off, and no gradient passes.
const CUT: u8 = 4;

/// Returns the two image rows of window row `row`, each cut to the `2 · (width / 2)` columns that
/// windows cover.
#[inline(always)]
fn rows(raw: &[f32], row: usize, width: usize, channels: usize) -> (&[f32], &[f32]) {
    let covered = width / 2 * 2 * channels;
    let stride = width * channels;
    (
        &raw[2 * row * stride..][..covered],
        &raw[(2 * row + 1) * stride..][..covered],
    )
}

vectorised! {
    /// `raw` is height × width × channels; `pooled` and `winners` are (height / 2) × (width / 2) ×
    /// channels. An odd last row or column is dropped. A tie selects the first position in reading
    /// order. A NaN at the first position of a window wins, so that divergence shows.
    pub(crate) fn forward(raw: &[f32], height: usize, width: usize, bias: &[f32], pooled: &mut [f32], winners: &mut [u8]) {
        let channels = bias.len();
        let line = width / 2 * channels;
        for row in 0..height / 2 {
            let (upper, lower) = rows(raw, row, width, channels);
            let pooled = pooled[row * line..][..line].chunks_exact_mut(channels);
            let winners = winners[row * line..][..line].chunks_exact_mut(channels);
            let windows = upper.chunks_exact(2 * channels).zip(lower.chunks_exact(2 * channels));
            for ((pooled, winners), (upper, lower)) in pooled.zip(winners).zip(windows) {
                let (a, b) = upper.split_at(channels);
                let (c, d) = lower.split_at(channels);
                let (pooled, winners, bias) = (&mut pooled[..channels], &mut winners[..channels], &bias[..channels]);
                let (a, b, c, d) = (&a[..channels], &b[..channels], &c[..channels], &d[..channels]);
                for i in 0..channels {
                    let mut best = a[i];
                    let mut winner = 0u8;
                    winner = if b[i] > best { 1 } else { winner };
                    best = if b[i] > best { b[i] } else { best };
                    winner = if c[i] > best { 2 } else { winner };
                    best = if c[i] > best { c[i] } else { best };
                    winner = if d[i] > best { 3 } else { winner };
                    best = if d[i] > best { d[i] } else { best };
                    let value = best + bias[i];
                    pooled[i] = if value < 0.0 { 0.0 } else { value };
                    winners[i] = if value > 0.0 { winner } else { CUT };
                }
            }
        }
    }

    /// Overwrites `d_raw` with the gradient of the raw output, and adds to `d_bias`.
    pub(crate) fn backward(
        d_pooled: &[f32], winners: &[u8], height: usize, width: usize, d_raw: &mut [f32], d_bias: &mut [f32],
    ) {
        let channels = d_bias.len();
        let (line, stride) = (width / 2 * channels, width * channels);
        if !height.is_multiple_of(2) || !width.is_multiple_of(2) {
            d_raw.fill(0.0);
        }
        for row in 0..height / 2 {
            let (upper, lower) = d_raw[2 * row * stride..][..2 * stride].split_at_mut(stride);
            let windows = upper.chunks_exact_mut(2 * channels).zip(lower.chunks_exact_mut(2 * channels));
            let d_pooled = d_pooled[row * line..][..line].chunks_exact(channels);
            let winners = winners[row * line..][..line].chunks_exact(channels);
            for ((d_pooled, winners), (upper, lower)) in d_pooled.zip(winners).zip(windows) {
                let (a, b) = upper.split_at_mut(channels);
                let (c, d) = lower.split_at_mut(channels);
                let (d_pooled, winners) = (&d_pooled[..channels], &winners[..channels]);
                let (a, b, c, d) = (&mut a[..channels], &mut b[..channels], &mut c[..channels], &mut d[..channels]);
                let d_bias = &mut d_bias[..channels];
                for i in 0..channels {
                    let (winner, gradient) = (winners[i], d_pooled[i]);
                    a[i] = if winner == 0 { gradient } else { 0.0 };
                    b[i] = if winner == 1 { gradient } else { 0.0 };
                    c[i] = if winner == 2 { gradient } else { 0.0 };
                    d[i] = if winner == 3 { gradient } else { 0.0 };
                    d_bias[i] += if winner == CUT { 0.0 } else { gradient };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_takes_the_largest_then_bias_then_relu() {
        // 3×5, two channels: the last row and column are dropped although they hold the largest
        // values.
        let mut raw = vec![-1.0; 3 * 5 * 2];
        for (row, column, channel, value) in [
            (0, 1, 0, 3.0),
            (1, 0, 1, 2.0),
            (1, 3, 0, 0.25),
            (2, 2, 0, 90.0),
            (0, 4, 1, 90.0),
        ] {
            raw[(row * 5 + column) * 2 + channel] = value;
        }
        let (mut pooled, mut winners) = (vec![f32::NAN; 4], vec![9; 4]);
        forward(&raw, 3, 5, &[-0.5, 1.0], &mut pooled, &mut winners);
        assert_eq!(pooled, [2.5, 3.0, 0.0, 0.0]);
        assert_eq!(winners, [1, 2, CUT, CUT]);

        let (mut d_raw, mut d_bias) = (vec![f32::NAN; raw.len()], vec![1.0, 1.0]);
        backward(
            &[10.0, 20.0, 30.0, 40.0],
            &winners,
            3,
            5,
            &mut d_raw,
            &mut d_bias,
        );
        assert_eq!(d_bias, [11.0, 21.0]);
        let passed: Vec<(usize, f32)> = d_raw
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, d)| *d != 0.0)
            .collect();
        assert_eq!(passed, [(2, 10.0), (11, 20.0)]);
    }

    #[test]
    fn nan_is_propagated() {
        let (mut pooled, mut winners) = (vec![0.0; 1], vec![0; 1]);
        forward(&[f32::NAN; 4], 2, 2, &[0.0], &mut pooled, &mut winners);
        assert!(pooled[0].is_nan());
    }
}
