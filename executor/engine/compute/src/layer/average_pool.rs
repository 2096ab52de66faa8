//! Average pooling over any window. Padding does not count: a window's average covers only its
//! positions on the image.

use super::operands::{BackwardOperands, CpuKernel, ForwardOperands};
use super::parallel::{each, examples_per_item};
use super::window::ImageWindows;
use crate::simd::vectorised;

/// Shape of the pooling. Each window holds at least one position of the image. A window as large as
/// the image is global pooling.
#[derive(Debug, Clone)]
pub(crate) struct AveragePool {
    pub(crate) window: ImageWindows,
    pub(crate) channels: usize,
}

impl CpuKernel for AveragePool {
    fn forward(&self, pass: ForwardOperands<'_>) {
        let examples = examples_per_item(self.input_len());
        let inputs = pass.inputs.get(0).chunks(examples * self.input_len());
        let outputs = pass.output.chunks_mut(examples * self.output_len());
        each(pass.at.threads, inputs.zip(outputs), |(images, outputs)| {
            let outputs = outputs.chunks_exact_mut(self.output_len());
            for (image, output) in images.chunks_exact(self.input_len()).zip(outputs) {
                forward(&self.window, self.channels, image, output);
            }
        });
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        let examples = examples_per_item(self.input_len());
        let Some(d_input) = pass.d_inputs.get(0) else {
            return;
        };
        let d_inputs = d_input.chunks_mut(examples * self.input_len());
        let d_outputs = pass.d_output.chunks_mut(examples * self.output_len());
        each(
            pass.at.threads,
            d_inputs.zip(d_outputs),
            |(d_images, d_outputs)| {
                let d_outputs = d_outputs.chunks_exact_mut(self.output_len());
                for (d_image, d_output) in
                    d_images.chunks_exact_mut(self.input_len()).zip(d_outputs)
                {
                    backward(&self.window, self.channels, d_output, d_image);
                }
            },
        );
    }
}

impl AveragePool {
    fn input_len(&self) -> usize {
        self.window.image[0] * self.window.image[1] * self.channels
    }

    fn output_len(&self) -> usize {
        let [height, width] = self.window.output();
        height * width * self.channels
    }
}

vectorised! {
    fn forward(window: &ImageWindows, channels: usize, image: &[f32], output: &mut [f32]) {
        let width = window.output()[1];
        for (index, sum) in output.chunks_exact_mut(channels).enumerate() {
            let (rows, columns) = (window.span(0, index / width), window.span(1, index % width));
            sum.fill(0.0);
            for row in rows.at..rows.at + rows.len {
                let line = &image[(row * window.image[1] + columns.at) * channels..][..columns.len * channels];
                for pixel in line.chunks_exact(channels) {
                    for (sum, x) in sum.iter_mut().zip(pixel) {
                        *sum += x;
                    }
                }
            }
            let count = (rows.len * columns.len) as f32;
            for sum in sum {
                *sum /= count;
            }
        }
    }

    /// Overwrites `d_image` and divides `d_output` in place.
    fn backward(window: &ImageWindows, channels: usize, d_output: &mut [f32], d_image: &mut [f32]) {
        let width = window.output()[1];
        d_image.fill(0.0);
        for (index, d) in d_output.chunks_exact_mut(channels).enumerate() {
            let (rows, columns) = (window.span(0, index / width), window.span(1, index % width));
            let count = (rows.len * columns.len) as f32;
            for d in d.iter_mut() {
                *d /= count;
            }
            for row in rows.at..rows.at + rows.len {
                let line = &mut d_image[(row * window.image[1] + columns.at) * channels..][..columns.len * channels];
                for pixel in line.chunks_exact_mut(channels) {
                    for (sum, d) in pixel.iter_mut().zip(d.iter()) {
                        *sum += d;
                    }
                }
            }
        }
    }
}
