//! Random augmentation of training images, reproducible for each step.
//!
//! The augmentation of an image depends only on (seed, step, place in the global batch). A batch
//! has the same bits for any number of workers and after a restart.

use crate::model::{ImageShape, RandomKey};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::ops::Range;

/// Separates the use of a seed for augmentation from its other uses.
const DOMAIN: [u8; 16] = *b"muster image v1\0";

/// Augmentation of an image. Pixels from outside of the image are 0, the mean colour of a
/// normalised image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ImageAugmentation {
    /// Mirrors this share of the images horizontally.
    Flip { share: f32 },
    /// Crops the image at a random place after padding every side by `padding` pixels.
    Crop { padding: usize },
    /// Sets a square of side `size` to 0; its centre is a random position in the image (DeVries and
    /// Taylor, 2017).
    Cutout { size: usize },
    /// Multiplies all pixels by one factor between 1 − `by` and 1 + `by`.
    Contrast { by: f32 },
}

/// Augments `images` in the order of `kinds`. The first image is at place `draw.first` of the
/// global batch, and the others follow it.
pub(super) fn augment(
    kinds: &[ImageAugmentation],
    shape: ImageShape,
    images: &mut [f32],
    draw: RandomKey,
) {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&draw.seed.to_le_bytes());
    key[8..24].copy_from_slice(&DOMAIN);
    key[24..].copy_from_slice(&draw.step.to_le_bytes());
    let fresh = ChaCha12Rng::from_seed(key);
    let mut before = vec![0.0; shape.len()];
    for (place, image) in (draw.first..).zip(images.chunks_exact_mut(shape.len())) {
        let mut rng = fresh.clone();
        rng.set_stream(place);
        for kind in kinds {
            change(*kind, shape, image, &mut before, &mut rng);
        }
    }
}

fn change(
    kind: ImageAugmentation,
    shape: ImageShape,
    image: &mut [f32],
    before: &mut [f32],
    rng: &mut ChaCha12Rng,
) {
    let ImageShape {
        height,
        width,
        channels,
    } = shape;
    match kind {
        ImageAugmentation::Flip { share } => {
            if unit(rng) < share {
                for row in image.chunks_exact_mut(width * channels) {
                    for left in 0..width / 2 {
                        for channel in 0..channels {
                            let right = (width - 1 - left) * channels + channel;
                            row.swap(left * channels + channel, right);
                        }
                    }
                }
            }
        }
        ImageAugmentation::Crop { padding } => {
            let (down, right) = (below(rng, 2 * padding + 1), below(rng, 2 * padding + 1));
            before.copy_from_slice(image);
            image.fill(0.0);
            // Destination and source of the columns that remain inside after the shift.
            let (to_x, from_x) = (padding.saturating_sub(right), right.saturating_sub(padding));
            let kept = width.saturating_sub(to_x.max(from_x)) * channels;
            for y in 0..height {
                let Some(from_y) = (y + down).checked_sub(padding).filter(|&y| y < height) else {
                    continue;
                };
                let from = (from_y * width + from_x) * channels;
                let to = (y * width + to_x) * channels;
                image[to..to + kept].copy_from_slice(&before[from..from + kept]);
            }
        }
        ImageAugmentation::Cutout { size } => {
            let (y, x) = (below(rng, height), below(rng, width));
            for row in cut(y, size, height) {
                let columns = cut(x, size, width);
                image[(row * width + columns.start) * channels
                    ..(row * width + columns.end) * channels]
                    .fill(0.0);
            }
        }
        ImageAugmentation::Contrast { by } => {
            let factor = 1.0 + by * (2.0 * unit(rng) - 1.0);
            image.iter_mut().for_each(|x| *x *= factor);
        }
    }
}

/// Rows or columns of a square with side `size` around `middle`, within an image that has `end`.
fn cut(middle: usize, size: usize, end: usize) -> Range<usize> {
    let start = (middle + size.div_ceil(2)).saturating_sub(size);
    start..(middle + size.div_ceil(2)).min(end)
}

/// Uniform in [0, 1), with 24 bits.
fn unit(rng: &mut ChaCha12Rng) -> f32 {
    (rng.next_u32() >> 8) as f32 / (1 << 24) as f32
}

/// Uniform below `bound`, which is so small compared with 2³² that the bias is negligible.
fn below(rng: &mut ChaCha12Rng, bound: usize) -> usize {
    ((u64::from(rng.next_u32()) * bound as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHAPE: ImageShape = ImageShape {
        height: 5,
        width: 4,
        channels: 2,
    };

    fn images(count: usize) -> Vec<f32> {
        (0..count * SHAPE.len()).map(|i| i as f32 + 1.0).collect()
    }

    fn draw(step: u64, first: u64) -> RandomKey {
        RandomKey {
            seed: 7,
            step,
            first,
        }
    }

    const ALL: [ImageAugmentation; 4] = [
        ImageAugmentation::Flip { share: 0.5 },
        ImageAugmentation::Crop { padding: 2 },
        ImageAugmentation::Cutout { size: 2 },
        ImageAugmentation::Contrast { by: 0.3 },
    ];

    /// Returns the pixel of an image at row `y` and column `x`, 0 outside of the image.
    fn pixel(image: &[f32], y: i32, x: i32, channel: usize) -> f32 {
        let inside = (0..5).contains(&y) && (0..4).contains(&x);
        if inside {
            image[((y * 4 + x) as usize) * 2 + channel]
        } else {
            0.0
        }
    }

    /// Whether `after` is `before` shifted by `dy` rows and `dx` columns.
    fn is_shifted(before: &[f32], after: &[f32], (dy, dx): (i32, i32)) -> bool {
        let mut places = (0..5).flat_map(|y| (0..4).flat_map(move |x| [(y, x, 0), (y, x, 1)]));
        places.all(|(y, x, c)| pixel(after, y, x, c) == pixel(before, y + dy, x + dx, c))
    }

    fn augmented(
        mut images: Vec<f32>,
        kind: ImageAugmentation,
        (step, first): (u64, u64),
    ) -> Vec<f32> {
        augment(&[kind], SHAPE, &mut images, draw(step, first));
        images
    }

    proptest! {
        #[test]
        fn parts_are_augmented_like_the_whole_batch(cut in 0usize..=9, step: u64) {
            let mut whole = images(9);
            augment(&ALL, SHAPE, &mut whole, draw(step, 0));
            let mut parts = images(9);
            let (left, right) = parts.split_at_mut(cut * SHAPE.len());
            augment(&ALL, SHAPE, right, draw(step, cut as u64));
            augment(&ALL, SHAPE, left, draw(step, 0));
            prop_assert_eq!(whole, parts);
        }

        #[test]
        fn crop_shifts_and_fills_with_zero(step: u64) {
            let before = images(1);
            let mut after = before.clone();
            augment(&[ImageAugmentation::Crop { padding: 2 }], SHAPE, &mut after, draw(step, 3));
            let shifts = (-2..=2).flat_map(|dy| (-2..=2).map(move |dx| (dy, dx)));
            prop_assert_eq!(shifts.filter(|&by| is_shifted(&before, &after, by)).count(), 1);
        }
    }

    #[test]
    fn each_augmentation_changes_images_as_documented() {
        let before = images(200);
        let flip = ImageAugmentation::Flip { share: 0.25 };
        let count = augmented(before.clone(), flip, (1, 0))
            .chunks(SHAPE.len())
            .zip(before.chunks(SHAPE.len()))
            .filter(|(after, before)| {
                let mirrored = after[0] == before[6] && after[7] == before[1];
                assert!(mirrored || after == before);
                mirrored
            })
            .count();
        assert!((30..70).contains(&count), "{count} of 200 for a quarter");
        let cutout = ImageAugmentation::Cutout { size: 2 };
        for after in augmented(before.clone(), cutout, (1, 0)).chunks(SHAPE.len()) {
            let zeros = after.iter().filter(|x| **x == 0.0).count();
            assert!([2, 4, 8].contains(&zeros), "{zeros} zeros of a 2×2 square");
        }
        let contrast = ImageAugmentation::Contrast { by: 0.2 };
        let factors: Vec<f32> = augmented(before.clone(), contrast, (1, 0))
            .chunks(SHAPE.len())
            .zip(before.chunks(SHAPE.len()))
            .map(|(after, before)| after[0] / before[0])
            .collect();
        assert!(factors.iter().all(|f| (0.8..=1.2).contains(f)));
        let mean = factors.iter().sum::<f32>() / 200.0;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
    }

    #[test]
    fn draws_differ_between_steps_and_places() {
        let contrast = ImageAugmentation::Contrast { by: 0.5 };
        let drawn = [(0, 0), (0, 1), (1, 0), (1, 1)];
        let drawn = drawn.map(|(step, first)| augmented(images(1), contrast, (step, first))[0]);
        for (i, one) in drawn.iter().enumerate() {
            assert!(!drawn[..i].contains(one), "{drawn:?}");
        }
    }
}
