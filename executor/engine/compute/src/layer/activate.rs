//! Activation functions as separate operations, for places where no preceding layer can apply them
//! in its own pass.

use super::math::{erf, exp, sigmoid, tanh};
use super::operands::{BackwardOperands, CpuKernel, ForwardOperands};
use super::parallel::{each, examples_per_item};
use super::sweep::{chain, map};
use crate::simd::vectorised;

/// Element-wise activation function.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ActivationFunction {
    /// max(x, 0).
    Relu,
    /// x for positive x, else `slope` · x.
    LeakyRelu {
        slope: f32,
    },
    /// x · Φ(x), where Φ is the normal distribution function (Hendrycks and Gimpel, 2016).
    Gelu,
    /// x · (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2: the approximation of GELU in the same paper,
    /// which GPT-2 uses.
    GeluTanh,
    /// 1 / (1 + e^−x).
    Sigmoid,
    Tanh,
    /// x · sigmoid(x), also called swish.
    Silu,
}

/// Applies one activation function to every element of a value.
#[derive(Debug, Clone)]
pub(crate) struct ActivationLayer {
    pub(crate) function: ActivationFunction,
    /// Elements per example.
    pub(crate) numbers: usize,
}

impl CpuKernel for ActivationLayer {
    fn forward(&self, pass: ForwardOperands<'_>) {
        let item = self.item();
        let inputs = pass.inputs.get(0).chunks(item);
        let items = inputs.zip(pass.output.chunks_mut(item));
        each(pass.at.threads, items, |(x, y)| self.function.forward(x, y));
    }

    fn backward(&self, mut pass: BackwardOperands<'_>) {
        let (item, x) = (self.item(), pass.inputs.get(0));
        let Some(d_x) = pass.d_inputs.get(0) else {
            return;
        };
        let values = x.chunks(item).zip(pass.output.chunks(item));
        let gradients = pass.d_output.chunks(item).zip(d_x.chunks_mut(item));
        each(
            pass.at.threads,
            values.zip(gradients),
            |((x, y), (d_y, d_x))| {
                self.function.backward(x, y, d_y, d_x);
            },
        );
    }
}

impl ActivationLayer {
    fn item(&self) -> usize {
        examples_per_item(self.numbers) * self.numbers
    }
}

impl ActivationFunction {
    fn forward(self, x: &[f32], y: &mut [f32]) {
        match self {
            Self::Relu => leaky_relu(x, y, 0.0),
            Self::LeakyRelu { slope } => leaky_relu(x, y, slope),
            Self::Gelu => gelu(x, y),
            Self::GeluTanh => gelu_tanh(x, y),
            Self::Sigmoid => sigmoids(x, y),
            Self::Tanh => tanhs(x, y),
            Self::Silu => silu(x, y),
        }
    }

    fn backward(self, x: &[f32], y: &[f32], d_y: &[f32], d_x: &mut [f32]) {
        match self {
            Self::Relu => d_leaky_relu(x, d_y, d_x, 0.0),
            Self::LeakyRelu { slope } => d_leaky_relu(x, d_y, d_x, slope),
            Self::Gelu => d_gelu(x, d_y, d_x),
            Self::GeluTanh => d_gelu_tanh(x, d_y, d_x),
            Self::Sigmoid => d_sigmoids(y, d_y, d_x),
            Self::Tanh => d_tanhs(y, d_y, d_x),
            Self::Silu => d_silu(x, d_y, d_x),
        }
    }
}

/// √(2/π).
const ROOT: f32 = 0.797_884_6;
const CUBE: f32 = 0.044_715;

/// Distribution function of the standard normal distribution, Φ(x).
#[inline(always)]
fn normal(x: f32) -> f32 {
    0.5 + 0.5 * erf(x * std::f32::consts::FRAC_1_SQRT_2)
}

vectorised! {
    /// Applies ReLU in place. The comparison propagates a NaN, so that divergence shows in the
    /// loss; `f32::max` would hide it.
    pub(crate) fn relu(x: &mut [f32]) {
        for x in x {
            *x = if *x < 0.0 { 0.0 } else { *x };
        }
    }

    fn leaky_relu(x: &[f32], y: &mut [f32], slope: f32) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = if *x < 0.0 { slope * x } else { *x };
        }
    }

    fn d_leaky_relu(x: &[f32], d_y: &[f32], d_x: &mut [f32], slope: f32) {
        for (d_x, (x, d_y)) in d_x.iter_mut().zip(x.iter().zip(d_y)) {
            *d_x = if *x > 0.0 { *d_y } else { slope * d_y };
        }
    }

    fn gelu(x: &[f32], y: &mut [f32]) {
        map(x, y, |x| x * normal(x));
    }

    /// Derivative of GELU: Φ(x) + x · φ(x), where φ is the standard normal density.
    fn d_gelu(x: &[f32], d_y: &[f32], d_x: &mut [f32]) {
        chain(x, d_y, d_x, |x| {
            let density = 0.5 * ROOT * exp(-0.5 * x * x);
            normal(x) + x * density
        });
    }

    fn gelu_tanh(x: &[f32], y: &mut [f32]) {
        map(x, y, |x| 0.5 * x * (1.0 + tanh(ROOT * (x + CUBE * x * x * x))));
    }

    fn d_gelu_tanh(x: &[f32], d_y: &[f32], d_x: &mut [f32]) {
        chain(x, d_y, d_x, |x| {
            let t = tanh(ROOT * (x + CUBE * x * x * x));
            let inner = ROOT * (1.0 + 3.0 * CUBE * x * x);
            // Where the slope of tanh is 0, the slope of its argument may be infinite.
            let slope = 1.0 - t * t;
            let bend = if slope == 0.0 { 0.0 } else { 0.5 * x * slope * inner };
            0.5 * (1.0 + t) + bend
        });
    }

    fn sigmoids(x: &[f32], y: &mut [f32]) {
        map(x, y, sigmoid);
    }

    fn d_sigmoids(y: &[f32], d_y: &[f32], d_x: &mut [f32]) {
        chain(y, d_y, d_x, |y| y * (1.0 - y));
    }

    fn tanhs(x: &[f32], y: &mut [f32]) {
        map(x, y, tanh);
    }

    fn d_tanhs(y: &[f32], d_y: &[f32], d_x: &mut [f32]) {
        chain(y, d_y, d_x, |y| 1.0 - y * y);
    }

    fn silu(x: &[f32], y: &mut [f32]) {
        map(x, y, |x| x * sigmoid(x));
    }

    fn d_silu(x: &[f32], d_y: &[f32], d_x: &mut [f32]) {
        chain(x, d_y, d_x, |x| {
            let s = sigmoid(x);
            s * (1.0 + x * (1.0 - s))
        });
    }
}
