//! Conversion between the 3×3 neighbourhoods of an image and rows of a matrix (im2col and col2im).
//!
//! A row holds the patch of one output position: 3 × 3 × channels elements, in the order of the
//! convolution's weight block. Positions outside of the image count as 0 (padding 1). In NHWC order
//! the three columns of a patch's row are adjacent, so both directions move runs of 3 × channels
//! elements.

use crate::simd::vectorised;

/// Side of the square window.
pub(crate) const WINDOW: usize = 3;

/// Returns the run of image columns that position `x` of `width` covers: (first image column, first
/// patch column, number of columns).
#[inline(always)]
fn run(x: usize, width: usize) -> (usize, usize, usize) {
    let first = x.saturating_sub(1);
    let end = (x + 2).min(width);
    (first, usize::from(x == 0), end - first)
}

/// Copies the patches of one image. `LINE` is 3 × channels, or 0 if this is unknown at compile
/// time. A constant turns each copy into a few instructions instead of a call, which matters for
/// short runs: with one channel a run has three elements.
#[inline(always)]
fn gather_lines<const LINE: usize>(
    image: &[f32],
    height: usize,
    width: usize,
    channels: usize,
    patches: &mut [f32],
) {
    let line = if LINE == 0 { WINDOW * channels } else { LINE };
    let rows = patches.chunks_exact_mut(width * WINDOW * line);
    for (y, patches) in rows.take(height).enumerate() {
        for ky in 0..WINDOW {
            let targets = patches
                .chunks_exact_mut(WINDOW * line)
                .map(|patch| &mut patch[ky * line..][..line]);
            if y + ky == 0 || y + ky > height {
                targets.for_each(|target| target.fill(0.0));
                continue;
            }
            let source = &image[(y + ky - 1) * width * channels..][..width * channels];
            for (x, target) in targets.enumerate() {
                if x > 0 && x + 1 < width {
                    target.copy_from_slice(&source[(x - 1) * channels..][..line]);
                } else {
                    let (first, skipped, columns) = run(x, width);
                    target.fill(0.0);
                    target[skipped * channels..][..columns * channels]
                        .copy_from_slice(&source[first * channels..][..columns * channels]);
                }
            }
        }
    }
}

vectorised! {
    /// `image` is height × width × channels; `patches`, (height · width) × (9 · channels), is
    /// overwritten.
    pub(crate) fn gather(image: &[f32], height: usize, width: usize, channels: usize, patches: &mut [f32]) {
        match channels {
            1 => gather_lines::<3>(image, height, width, channels, patches),
            3 => gather_lines::<9>(image, height, width, channels, patches),
            8 => gather_lines::<24>(image, height, width, channels, patches),
            16 => gather_lines::<48>(image, height, width, channels, patches),
            32 => gather_lines::<96>(image, height, width, channels, patches),
            _ => gather_lines::<0>(image, height, width, channels, patches),
        }
    }

    /// Transpose of [`gather`]: overwrites each element of `image` with the sum of its occurrences
    /// in the patches.
    pub(crate) fn scatter(patches: &[f32], height: usize, width: usize, channels: usize, image: &mut [f32]) {
        let line = WINDOW * channels;
        image.fill(0.0);
        for (position, patch) in patches.chunks_exact(WINDOW * line).enumerate() {
            let (y, x) = (position / width, position % width);
            let (first, skipped, columns) = run(x, width);
            for (ky, part) in patch.chunks_exact(line).enumerate() {
                let row = y + ky;
                if row == 0 || row > height {
                    continue;
                }
                let target = &mut image[((row - 1) * width + first) * channels..][..columns * channels];
                for (sum, value) in target.iter_mut().zip(&part[skipped * channels..]) {
                    *sum += value;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::math::dot;

    /// Direct implementation of the definition.
    fn expected(image: &[f32], height: usize, width: usize, channels: usize) -> Vec<f32> {
        let mut out = Vec::new();
        for y in 0..height as isize {
            for x in 0..width as isize {
                for (ky, kx) in (0..9).map(|tap| (tap / 3 - 1, tap % 3 - 1)) {
                    for c in 0..channels {
                        let (row, column) = (y + ky, x + kx);
                        let inside = (0..height as isize).contains(&row)
                            && (0..width as isize).contains(&column);
                        let at = (row * width as isize + column) * channels as isize;
                        out.push(if inside { image[at as usize + c] } else { 0.0 });
                    }
                }
            }
        }
        out
    }

    const SHAPES: [(usize, usize, usize); 10] = [
        (1, 1, 1),
        (1, 4, 2),
        (4, 1, 3),
        (2, 2, 1),
        (5, 3, 2),
        (6, 7, 4),
        (5, 6, 1),
        (4, 5, 3),
        (3, 4, 8),
        (4, 3, 16),
    ];

    #[test]
    fn gather_equals_definition() {
        for (height, width, channels) in SHAPES {
            let image: Vec<f32> = (1..=height * width * channels).map(|i| i as f32).collect();
            let mut patches = vec![f32::NAN; image.len() * 9];
            gather(&image, height, width, channels, &mut patches);
            assert_eq!(
                patches,
                expected(&image, height, width, channels),
                "{height}×{width}×{channels}"
            );
        }
    }

    /// ⟨gather(a), b⟩ = ⟨a, scatter(b)⟩; with small whole numbers both sides are exact.
    #[test]
    fn scatter_is_the_transpose_of_gather() {
        for (height, width, channels) in SHAPES {
            let len = height * width * channels;
            let a: Vec<f32> = (0..len).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
            let b: Vec<f32> = (0..len * 9).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
            let (mut gathered, mut scattered) = (vec![0.0; len * 9], vec![f32::NAN; len]);
            gather(&a, height, width, channels, &mut gathered);
            scatter(&b, height, width, channels, &mut scattered);
            assert_eq!(dot(&gathered, &b), dot(&a, &scattered));
        }
    }
}
