//! Depthwise convolution as loops over channels, which are adjacent in memory.

use super::window::ImageWindows;
use crate::simd::vectorised;

/// Number of channels whose sums are held in registers at the same time.
const BLOCK: usize = 32;

/// Returns the sums of one output position for channels `at..at + LEN`, over the taps on the image.
#[inline(always)]
fn position<const LEN: usize>(
    window: &ImageWindows,
    channels: usize,
    [y, x]: [usize; 2],
    at: usize,
    weight: &[f32],
    image: &[f32],
) -> [f32; LEN] {
    let (rows, columns) = (window.span(0, y), window.span(1, x));
    let mut sums = [0.0; LEN];
    for row in 0..rows.len {
        for column in 0..columns.len {
            let tap = (rows.tap + row) * window.kernel[1] + columns.tap + column;
            let pixel = (rows.at + row) * window.image[1] + columns.at + column;
            let weight = &weight[tap * channels + at..][..LEN];
            let pixel = &image[pixel * channels + at..][..LEN];
            for (sum, (weight, pixel)) in sums.iter_mut().zip(weight.iter().zip(pixel)) {
                *sum += weight * pixel;
            }
        }
    }
    sums
}

vectorised! {
    /// Overwrites `output`, without bias. `weight` is taps × channels.
    pub(crate) fn forward(
        window: &ImageWindows,
        channels: usize,
        weight: &[f32],
        image: &[f32],
        output: &mut [f32],
    ) {
        let width = window.output()[1];
        for (index, output) in output.chunks_exact_mut(channels).enumerate() {
            let place = [index / width, index % width];
            let mut at = 0;
            while at + BLOCK <= channels {
                let sums = position::<BLOCK>(window, channels, place, at, weight, image);
                output[at..at + BLOCK].copy_from_slice(&sums);
                at += BLOCK;
            }
            while at + 8 <= channels {
                let sums = position::<8>(window, channels, place, at, weight, image);
                output[at..at + 8].copy_from_slice(&sums);
                at += 8;
            }
            while at < channels {
                [output[at]] = position::<1>(window, channels, place, at, weight, image);
                at += 1;
            }
        }
    }

    /// Adds to `d_weight` and, if it is given, to the gradient with respect to the image.
    fn backward(
        window: &ImageWindows, channels: usize, weight: &[f32], image: &[f32], d_output: &[f32],
        d_weight: &mut [f32], d_image: Option<&mut [f32]>,
    ) {
        let (width, mut d_image) = (window.output()[1], d_image);
        for (index, d) in d_output.chunks_exact(channels).enumerate() {
            let (rows, columns) = (window.span(0, index / width), window.span(1, index % width));
            for row in 0..rows.len {
                for column in 0..columns.len {
                    let tap = (rows.tap + row) * window.kernel[1] + columns.tap + column;
                    let pixel = (rows.at + row) * window.image[1] + columns.at + column;
                    let d_weight = &mut d_weight[tap * channels..][..channels];
                    add_product(d_weight, d, &image[pixel * channels..][..channels]);
                    if let Some(d_image) = &mut d_image {
                        let d_image = &mut d_image[pixel * channels..][..channels];
                        add_product(d_image, d, &weight[tap * channels..][..channels]);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn add_product(sum: &mut [f32], a: &[f32], b: &[f32]) {
    for (sum, (a, b)) in sum.iter_mut().zip(a.iter().zip(b)) {
        *sum += a * b;
    }
}

/// Backward pass of several images. Overwrites `d_weight` and `d_inputs`.
pub(crate) fn backward_all(
    window: &ImageWindows,
    [channels, input_len, output_len]: [usize; 3],
    weight: &[f32],
    (inputs, d_outputs): (&[f32], &[f32]),
    d_weight: &mut [f32],
    d_inputs: Option<&mut [f32]>,
) {
    d_weight.fill(0.0);
    let mut d_inputs = d_inputs.map(|d_inputs| {
        d_inputs.fill(0.0);
        d_inputs.chunks_exact_mut(input_len)
    });
    let images = inputs
        .chunks_exact(input_len)
        .zip(d_outputs.chunks_exact(output_len));
    for (image, d_output) in images {
        let d_image = d_inputs.as_mut().and_then(Iterator::next);
        backward(window, channels, weight, image, d_output, d_weight, d_image);
    }
}
