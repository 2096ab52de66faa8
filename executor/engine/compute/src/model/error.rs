//! Errors of the construction of a network.

use super::input::ImageShape;

/// Maximum number of elements of a layer output, of a parameter block and of all parameters
/// together.
pub(super) const MAX_NUMBERS: usize = 1 << 31;

/// Reason why a network cannot be built. Positions count from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    #[error("the input shape {height}×{width}×{channels} has a side of 0", height = .0.height, width = .0.width, channels = .0.channels)]
    EmptyInput(ImageShape),
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
    #[error(
        "{layer} has a {kernel} kernel, which does not fit into {image} positions with its padding"
    )]
    Kernel {
        layer: String,
        kernel: String,
        image: String,
    },
    #[error("{layer} has more padding than half of its window")]
    Padding { layer: String },
    #[error("{layer} pools {height}×{width}; a window has at most 256 positions")]
    LargeWindow {
        layer: String,
        height: usize,
        width: usize,
    },
    #[error(
        "{layer} has {groups} groups, which divide not both its {channels_in} input and {channels_out} output channels"
    )]
    Groups {
        layer: String,
        groups: usize,
        channels_in: usize,
        channels_out: usize,
    },
    #[error("{network}-{depth} is not one of {network}'s depths {known}")]
    Depth {
        network: &'static str,
        depth: usize,
        known: &'static str,
    },
    #[error("{layer} brings together {one} and {other}, which do not fit")]
    Different {
        layer: String,
        one: String,
        other: String,
    },
    #[error("{layer} drops {share} of its input; it can be 0 to less than 1")]
    Dropout { layer: String, share: String },
    #[error("{layer} has {heads} heads, which do not divide its width {width}")]
    Heads {
        layer: String,
        heads: usize,
        width: usize,
    },
    #[error("{name} would hold more than 2147483648 numbers")]
    TooLarge { name: String },
}

/// Returns the product of `sides`, or an error if it exceeds [`MAX_NUMBERS`].
pub(super) fn product(name: &str, sides: &[usize]) -> Result<usize, BuildError> {
    sides
        .iter()
        .try_fold(1_usize, |product, &side| product.checked_mul(side))
        .filter(|&product| product <= MAX_NUMBERS)
        .ok_or_else(|| BuildError::TooLarge {
            name: name.to_owned(),
        })
}
