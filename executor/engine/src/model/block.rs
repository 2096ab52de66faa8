//! The table of parameters.

use std::ops::Range;

/// A named tensor in the flat arena. Blocks follow one another without gaps, in the order of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// `conv1.weight`, `conv1.bias`, …, `dense1.weight`, …, `logits.weight`, `logits.bias`.
    pub name: String,
    /// In numbers, from the start of the arena.
    pub offset: usize,
    /// In numbers; the product of `shape`.
    pub len: usize,
    /// Convolution weights are height × width × in × out, dense weights in × out, both row-major; biases are out. Dense layers after
    /// convolutions read these flattened as height × width × channels.
    pub shape: Vec<usize>,
    pub role: Role,
    pub fill: Fill,
}

/// What an optimizer does with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Trained, and decayed where weight decay is asked for.
    Weight,
    /// Trained: biases and the scales and shifts of normalisation.
    Bias,
    /// Followed, not trained: running statistics of batch normalisation. The gradient of such a block is what the step moves it by,
    /// and every update rule subtracts it as it is.
    Statistic,
}

/// Numbers that a block begins with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    Constant(f32),
    /// Uniform around 0 with this variance.
    Uniform {
        variance: f64,
    },
}

impl Block {
    /// As a range of indices into the flat arena.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

#[cfg(test)]
impl Block {
    /// Blocks of so many zeros one after the other, for tests of what only needs their places.
    pub fn in_a_row(lens: impl IntoIterator<Item = (usize, Role)>) -> Vec<Self> {
        let mut end = 0;
        let block = |(len, role)| {
            let offset = end;
            end += len;
            Self {
                name: format!("block{end}"),
                offset,
                len,
                shape: vec![len],
                role,
                fill: Fill::Constant(0.0),
            }
        };
        lens.into_iter().map(block).collect()
    }
}

impl Fill {
    /// With this standard deviation.
    #[must_use]
    pub fn deviation(deviation: f64) -> Self {
        let variance = deviation * deviation;
        Self::Uniform { variance }
    }

    /// Keeps the variance of what a ReLU lets through, for `inputs` summands (He et al., 2015).
    #[must_use]
    pub fn he(inputs: usize) -> Self {
        let variance = 2.0 / inputs as f64;
        Self::Uniform { variance }
    }

    /// Keeps the variance on the way forward and back alike (Glorot and Bengio, 2010).
    #[must_use]
    pub fn glorot(inputs: usize, outputs: usize) -> Self {
        let variance = 2.0 / (inputs + outputs) as f64;
        Self::Uniform { variance }
    }
}
