//! Max pooling over any window. Positions in the padding never win.

use super::operands::{BackwardOperands, CpuKernel, ForwardOperands, SavedSize};
use super::parallel::{each, examples_per_item};
use super::window::ImageWindows;
use crate::simd::vectorised;

/// Maximum number of positions in a window, so that the winner's index fits into a byte.
pub(crate) const MAX_TAPS: usize = 256;

/// Shape of the pooling. Each window holds at least one position of the image.
#[derive(Debug, Clone)]
pub(crate) struct MaxPool {
    pub(crate) window: ImageWindows,
    pub(crate) channels: usize,
}

impl CpuKernel for MaxPool {
    /// Index in the window of the largest position of each window.
    fn saved_size(&self) -> SavedSize {
        let bytes = self.output_len();
        SavedSize { numbers: 0, bytes }
    }

    fn forward(&self, pass: ForwardOperands<'_>) {
        let examples = examples_per_item(self.input_len());
        let (input_len, output_len) = (examples * self.input_len(), examples * self.output_len());
        let outputs = pass.output.chunks_mut(output_len);
        let outputs = outputs.zip(pass.bytes.chunks_mut(output_len));
        let items = pass.inputs.get(0).chunks(input_len).zip(outputs);
        each(pass.at.threads, items, |(images, (outputs, winners))| {
            let outputs = outputs.chunks_exact_mut(self.output_len());
            let outputs = outputs.zip(winners.chunks_exact_mut(self.output_len()));
            for (image, (output, winners)) in images.chunks_exact(self.input_len()).zip(outputs) {
                forward(&self.window, self.channels, image, output, winners);
            }
        });
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        let examples = examples_per_item(self.input_len());
        let (input_len, output_len) = (examples * self.input_len(), examples * self.output_len());
        let Some(d_input) = pass.d_inputs.get(0) else {
            return;
        };
        let outputs = pass.d_output.chunks(output_len);
        let outputs = outputs.zip(pass.bytes.chunks(output_len));
        let items = d_input.chunks_mut(input_len).zip(outputs);
        each(
            pass.at.threads,
            items,
            |(d_images, (d_outputs, winners))| {
                let outputs = d_outputs.chunks_exact(self.output_len());
                let outputs = outputs.zip(winners.chunks_exact(self.output_len()));
                let images = d_images.chunks_exact_mut(self.input_len());
                for (d_image, (d_output, winners)) in images.zip(outputs) {
                    backward(&self.window, self.channels, d_output, winners, d_image);
                }
            },
        );
    }
}

impl MaxPool {
    fn input_len(&self) -> usize {
        self.window.image[0] * self.window.image[1] * self.channels
    }

    fn output_len(&self) -> usize {
        let [height, width] = self.window.output();
        height * width * self.channels
    }
}

vectorised! {
    /// A tie selects the first position in reading order. A NaN wins, so that divergence shows.
    fn forward(
        window: &ImageWindows,
        channels: usize,
        image: &[f32],
        output: &mut [f32],
        winners: &mut [u8],
    ) {
        let width = window.output()[1];
        let windows = output.chunks_exact_mut(channels).zip(winners.chunks_exact_mut(channels));
        for (index, (best, winner)) in windows.enumerate() {
            let (rows, columns) = (window.span(0, index / width), window.span(1, index % width));
            best.fill(f32::NEG_INFINITY);
            winner.fill((rows.tap * window.kernel[1] + columns.tap) as u8);
            for row in 0..rows.len {
                for column in 0..columns.len {
                    let tap = ((rows.tap + row) * window.kernel[1] + columns.tap + column) as u8;
                    let pixel = (rows.at + row) * window.image[1] + columns.at + column;
                    let pixel = &image[pixel * channels..][..channels];
                    for ((best, winner), x) in best.iter_mut().zip(winner.iter_mut()).zip(pixel) {
                        let wins = *x > *best || x.is_nan();
                        *best = if wins { *x } else { *best };
                        *winner = if wins { tap } else { *winner };
                    }
                }
            }
        }
    }
}

/// Overwrites `d_image`.
fn backward(
    window: &ImageWindows,
    channels: usize,
    d_output: &[f32],
    winners: &[u8],
    d_image: &mut [f32],
) {
    let width = window.output()[1];
    d_image.fill(0.0);
    let windows = d_output
        .chunks_exact(channels)
        .zip(winners.chunks_exact(channels));
    for (index, (d_output, winners)) in windows.enumerate() {
        let (rows, columns) = (window.span(0, index / width), window.span(1, index % width));
        for (channel, (d, winner)) in d_output.iter().zip(winners).enumerate() {
            let tap = usize::from(*winner);
            let (row, column) = (tap / window.kernel[1], tap % window.kernel[1]);
            let (y, x) = (rows.at + row - rows.tap, columns.at + column - columns.tap);
            d_image[(y * window.image[1] + x) * channels + channel] += d;
        }
    }
}
