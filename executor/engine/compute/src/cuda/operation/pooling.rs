//! Max and average pooling.

use super::DeviceKernel;
use super::pass::{DevicePass, PACK, is_wide};
use crate::cuda::queue::{DeviceAddress, KernelArgument, THREADS, int};
use crate::layer::average_pool::AveragePool;
use crate::layer::max_pool::MaxPool;
use crate::layer::window::ImageWindows;

/// Launches blocks for each line of images of `[lines, columns]`. A thread processes [`PACK`]
/// channels of a position, or one. `places` are the addresses that a kernel accesses by channels.
fn lines(
    pass: &mut DevicePass<'_>,
    kernel: &'static str,
    (window, channels): (&ImageWindows, usize),
    [lines, columns]: [usize; 2],
    places: &[DeviceAddress],
) {
    let wide = is_wide(channels, places);
    let items = columns * channels / if wide { PACK } else { 1 };
    let threads = items.next_multiple_of(32).min(THREADS);
    let blocks = pass.examples * lines * items.div_ceil(threads);
    let mut arguments: Vec<KernelArgument> = places.iter().map(|&at| at.into()).collect();
    arguments.extend([window.into(), int(channels), wide.into()]);
    pass.queue.launch(kernel, blocks, threads, &arguments);
}

impl DeviceKernel for MaxPool {
    /// Index of the largest position of each window.
    fn saved_bytes(&self, examples: usize, _size: usize) -> usize {
        let [height, width] = self.window.output();
        examples * height * width * self.channels
    }

    fn forward(&self, pass: &mut DevicePass<'_>) {
        let (shape, places) = (
            (&self.window, self.channels),
            [pass.inputs[0], pass.output, pass.saved],
        );
        lines(pass, "max_pool", shape, self.window.output(), &places);
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        if let Some(d_input) = pass.d_inputs[0] {
            let (shape, places) = (
                (&self.window, self.channels),
                [pass.d_output, pass.saved, d_input],
            );
            lines(pass, "d_max_pool", shape, self.window.image, &places);
        }
    }
}

impl DeviceKernel for AveragePool {
    fn forward(&self, pass: &mut DevicePass<'_>) {
        let (shape, places) = ((&self.window, self.channels), [pass.inputs[0], pass.output]);
        lines(pass, "average_pool", shape, self.window.output(), &places);
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        if let Some(d_input) = pass.d_inputs[0] {
            let (shape, places) = ((&self.window, self.channels), [pass.d_output, d_input]);
            lines(pass, "d_average_pool", shape, self.window.image, &places);
        }
    }
}
