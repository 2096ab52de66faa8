//! Table of parameters.

use std::ops::Range;

/// Named tensor in the flat arena. Blocks are adjacent, in the order of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterBlock {
    /// `conv1.weight`, `conv1.bias`, …, `dense1.weight`, …, `logits.weight`, `logits.bias`.
    pub name: String,
    /// Offset from the start of the arena, in elements.
    pub offset: usize,
    /// Number of elements, the product of `shape`.
    pub len: usize,
    /// Convolution weights are height × width × in × out and dense weights in × out, both
    /// row-major; biases are out. Dense layers after convolutions read an image flattened as height
    /// × width × channels.
    pub shape: Vec<usize>,
    pub role: ParameterRole,
    pub fill: ParameterInit,
}

/// Treatment of a block by the optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterRole {
    /// Trained, and subject to weight decay.
    Weight,
    /// Trained: biases and the scales and shifts of normalisation.
    Bias,
    /// Running statistics of batch normalisation, which are not trained. The gradient of such a
    /// block is the change of one step, and every update rule subtracts it unscaled by the learning
    /// rate.
    Statistic,
}

/// Initial values of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParameterInit {
    Constant(f32),
    /// Uniform distribution with mean 0 and this variance.
    Uniform {
        variance: f64,
    },
}

impl ParameterBlock {
    pub(crate) fn is_statistic(&self) -> bool {
        self.role == ParameterRole::Statistic
    }

    /// Returns the range of indices in the flat arena.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

impl ParameterBlock {
    /// Returns adjacent blocks of zeros with these lengths and roles.
    pub fn in_a_row(lens: impl IntoIterator<Item = (usize, ParameterRole)>) -> Vec<Self> {
        let mut end = 0;
        lens.into_iter()
            .map(|(len, role)| {
                let offset = end;
                end += len;
                Self {
                    name: format!("block{end}"),
                    offset,
                    len,
                    shape: vec![len],
                    role,
                    fill: ParameterInit::Constant(0.0),
                }
            })
            .collect()
    }
}

impl ParameterInit {
    /// Initial values with this standard deviation.
    #[must_use]
    pub fn deviation(deviation: f64) -> Self {
        let variance = deviation * deviation;
        Self::Uniform { variance }
    }

    /// Preserves the variance through a ReLU with `inputs` summands (He et al., 2015).
    #[must_use]
    pub fn he(inputs: usize) -> Self {
        let variance = 2.0 / inputs as f64;
        Self::Uniform { variance }
    }

    /// Balances the variance of the forward and the backward pass (Glorot and Bengio, 2010).
    #[must_use]
    pub fn glorot(inputs: usize, outputs: usize) -> Self {
        let variance = 2.0 / (inputs + outputs) as f64;
        Self::Uniform { variance }
    }
}
