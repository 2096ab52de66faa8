//! Elementwise operations and operations that only move elements.

use super::DeviceKernel;
use super::pass::DevicePass;
use crate::cuda::queue::{KernelArgument, int};
use crate::layer::ActivationFunction;
use crate::layer::activate::ActivationLayer;
use crate::layer::concat::Concat;
use crate::layer::dropout::Dropout;
use crate::layer::reshape::Reshape;
use crate::layer::residual::Residual;
use crate::layer::upsample::Upsample;

/// Returns the number by which kernels identify a function, and its slope.
fn function(activation: ActivationFunction) -> [KernelArgument; 2] {
    let (number, slope) = match activation {
        ActivationFunction::Relu => (0, 0.0),
        ActivationFunction::LeakyRelu { slope } => (1, slope),
        ActivationFunction::Gelu => (2, 0.0),
        ActivationFunction::GeluTanh => (3, 0.0),
        ActivationFunction::Sigmoid => (4, 0.0),
        ActivationFunction::Tanh => (5, 0.0),
        ActivationFunction::Silu => (6, 0.0),
    };
    [int(number), slope.into()]
}

impl DeviceKernel for ActivationLayer {
    fn forward(&self, pass: &mut DevicePass<'_>) {
        let count = pass.examples * self.numbers;
        let [number, slope] = function(self.function);
        let (x, y) = (pass.inputs[0].into(), pass.output.into());
        pass.packs("activate", count, &[x, y, int(count), number, slope]);
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let Some(d_x) = pass.d_inputs[0] else { return };
        let count = pass.examples * self.numbers;
        let [number, slope] = function(self.function);
        let (x, d_y) = (pass.inputs[0].into(), pass.d_output.into());
        let arguments = [x, d_y, d_x.into(), int(count), number, slope];
        pass.packs("d_activate", count, &arguments);
    }
}

impl DeviceKernel for Residual {
    fn forward(&self, pass: &mut DevicePass<'_>) {
        let count = pass.examples * self.numbers;
        let (a, b) = (pass.inputs[0].into(), pass.inputs[1].into());
        let arguments = [a, b, pass.output.into(), int(count), self.relu.into()];
        pass.packs("sum_two", count, &arguments);
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let count = pass.examples * self.numbers;
        let y = if self.relu { pass.output } else { 0 };
        let [a, b] = [0, 1].map(|input| pass.d_inputs[input].unwrap_or(0));
        if [a, b] == [0, 0] {
            return;
        }
        let d = pass.d_output.into();
        let arguments = [d, y.into(), a.into(), b.into(), int(count)];
        pass.packs("d_sum_two", count, &arguments);
    }
}

impl DeviceKernel for Reshape {
    fn forward(&self, pass: &mut DevicePass<'_>) {
        let bytes = pass.bytes(pass.rows(1)) as usize;
        pass.queue.copy(pass.inputs[0], pass.output, bytes);
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        if let Some(d_input) = pass.d_inputs[0] {
            let bytes = pass.bytes(pass.rows(1)) as usize;
            pass.queue.copy(pass.d_output, d_input, bytes);
        }
    }
}

impl DeviceKernel for Concat {
    fn forward(&self, pass: &mut DevicePass<'_>) {
        let all: usize = self.parts.iter().sum();
        let mut first = 0;
        for (index, &part) in self.parts.iter().enumerate() {
            let count = pass.input_len(index);
            let to = pass.output + pass.bytes(first);
            let arguments = [
                pass.inputs[index].into(),
                int(part),
                to.into(),
                int(all),
                int(part),
                int(count),
            ];
            pass.each("copy_columns", count, &arguments);
            first += part;
        }
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let all: usize = self.parts.iter().sum();
        let mut first = 0;
        for (index, &part) in self.parts.iter().enumerate() {
            if let Some(d_input) = pass.d_inputs[index] {
                let count = pass.input_len(index);
                let from = pass.d_output + pass.bytes(first);
                let arguments = [
                    from.into(),
                    int(all),
                    d_input.into(),
                    int(part),
                    int(part),
                    int(count),
                ];
                pass.each("copy_columns", count, &arguments);
            }
            first += part;
        }
    }
}

impl DeviceKernel for Dropout {
    fn forward(&self, pass: &mut DevicePass<'_>) {
        self.drop_out(pass, pass.inputs[0], pass.output);
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        if let Some(d_input) = pass.d_inputs[0] {
            self.drop_out(pass, pass.d_output, d_input);
        }
    }
}

impl Dropout {
    fn drop_out(&self, pass: &mut DevicePass<'_>, from: u64, to: u64) {
        let count = pass.examples * self.numbers;
        if !pass.is_training {
            let bytes = pass.bytes(count) as usize;
            return pass.queue.copy(from, to, bytes);
        }
        let limit = (f64::from(self.share) * (1_u64 << 32) as f64) as u32;
        let arguments = [
            from.into(),
            to.into(),
            int(count),
            int(self.numbers),
            pass.draw.into(),
            self.operation.into(),
            u64::from(limit).into(),
            (1.0 / (1.0 - self.share)).into(),
        ];
        pass.packs("dropout", count, &arguments);
    }
}

impl DeviceKernel for Upsample {
    fn forward(&self, pass: &mut DevicePass<'_>) {
        let count = pass.input_len(0) * self.factor * self.factor;
        let (x, y) = (pass.inputs[0].into(), pass.output.into());
        let shape = [int(self.width), int(self.channels), int(self.factor)];
        let arguments = [x, y, int(count), shape[0], shape[1], shape[2]];
        pass.each("upsample", count, &arguments);
    }

    fn backward(&self, pass: &mut DevicePass<'_>) {
        let Some(d_x) = pass.d_inputs[0] else { return };
        let count = pass.input_len(0);
        let shape = [int(self.width), int(self.channels), int(self.factor)];
        let (d_y, d_x) = (pass.d_output.into(), d_x.into());
        let arguments = [d_y, d_x, int(count), shape[0], shape[1], shape[2]];
        pass.each("d_upsample", count, &arguments);
    }
}
