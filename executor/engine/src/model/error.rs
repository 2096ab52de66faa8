//! What is wrong with a network that cannot be built.

use super::input::InputShape;

/// Numbers in the largest layer output or parameter block that is accepted, and in all parameters together.
pub(super) const MAX_NUMBERS: usize = 1 << 31;

/// Why a network cannot be built. Positions count from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    #[error("the input shape {height}×{width}×{channels} has a side of 0", height = .0.height, width = .0.width, channels = .0.channels)]
    EmptyInput(InputShape),
    #[error("{0} classes; a classifier has 2 to 16777216")]
    Classes(usize),
    #[error("{list}[{index}] is 0; a layer has at least one output")]
    EmptyLayer { list: &'static str, index: usize },
    #[error("{layer} has 0 {what}; it needs at least 1")]
    Empty { layer: String, what: &'static str },
    #[error("channels is empty; a CNN has at least one convolution")]
    NoConvolution,
    #[error("channels[{index}] pools 2×2, but only {height}×{width} positions are left there")]
    TooSmallToPool {
        index: usize,
        height: usize,
        width: usize,
    },
    #[error("{layer} reads {expected}, but what comes to it is {actual}")]
    Shape {
        layer: String,
        expected: &'static str,
        actual: String,
    },
    #[error("{name} would hold more than 2147483648 numbers")]
    TooLarge { name: String },
}

/// The product, if an arena may be so long.
pub(super) fn product(name: &str, sides: &[usize]) -> Result<usize, BuildError> {
    sides
        .iter()
        .try_fold(1_usize, |product, &side| product.checked_mul(side))
        .filter(|&product| product <= MAX_NUMBERS)
        .ok_or_else(|| BuildError::TooLarge {
            name: name.to_owned(),
        })
}
