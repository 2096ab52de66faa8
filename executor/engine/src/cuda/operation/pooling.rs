//! Max and average pooling.

use super::DeviceKernel;
use super::pass::Pass;
use crate::cuda::queue::int;
use crate::layer::average_pool::AveragePool;
use crate::layer::max_pool::MaxPool;
use crate::layer::window::Window;

fn outputs(window: &Window, channels: usize) -> usize {
    let [height, width] = window.output();
    height * width * channels
}

impl DeviceKernel for MaxPool {
    /// Which position of each window was the largest.
    fn kept(&self, examples: usize, _size: usize) -> usize {
        examples * outputs(&self.window, self.channels)
    }

    fn forward(&self, pass: &mut Pass<'_>) {
        let total = pass.examples * outputs(&self.window, self.channels);
        let arguments = [
            pass.inputs[0].into(),
            pass.output.into(),
            pass.kept.into(),
            (&self.window).into(),
            int(self.channels),
            int(total),
        ];
        pass.each("max_pool", total, &arguments);
    }

    fn backward(&self, pass: &mut Pass<'_>) {
        let Some(d_input) = pass.d_inputs[0] else {
            return;
        };
        let total = pass.input_len(0);
        let arguments = [
            pass.d_output.into(),
            pass.kept.into(),
            d_input.into(),
            (&self.window).into(),
            int(self.channels),
            int(total),
        ];
        pass.each("d_max_pool", total, &arguments);
    }
}

impl DeviceKernel for AveragePool {
    fn forward(&self, pass: &mut Pass<'_>) {
        let total = pass.examples * outputs(&self.window, self.channels);
        let arguments = [
            pass.inputs[0].into(),
            pass.output.into(),
            (&self.window).into(),
            int(self.channels),
            int(total),
        ];
        pass.each("average_pool", total, &arguments);
    }

    fn backward(&self, pass: &mut Pass<'_>) {
        let Some(d_input) = pass.d_inputs[0] else {
            return;
        };
        let total = pass.input_len(0);
        let arguments = [
            pass.d_output.into(),
            d_input.into(),
            (&self.window).into(),
            int(self.channels),
            int(total),
        ];
        pass.each("d_average_pool", total, &arguments);
    }
}
