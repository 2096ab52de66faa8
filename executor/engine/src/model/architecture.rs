//! What a network can be asked to be, and what is wrong with a request that cannot be built.

use serde::{Deserialize, Serialize};

/// Numbers in the largest layer output or parameter block that is accepted, and in all parameters together.
pub(super) const MAX_NUMBERS: usize = 1 << 31;

/// A network by its kind. The last layer, the class scores, is always dense without ReLU and is not listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Architecture {
    /// Dense layers with ReLU.
    Mlp {
        /// Their widths, input to output. May be empty: then the network is a linear classifier.
        hidden: Vec<usize>,
    },
    /// Convolutions, then dense layers with ReLU.
    Cnn {
        /// Output channels of each 3×3 convolution with padding 1, bias, ReLU and 2×2 max pooling.
        channels: Vec<usize>,
        /// Widths of the dense layers. May be empty.
        dense: Vec<usize>,
    },
}

/// Shape of one example: height × width × channels, stored in this order (NHWC).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputShape {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
}

impl InputShape {
    /// Numbers per example.
    #[must_use]
    pub fn len(self) -> usize {
        self.height * self.width * self.channels
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// Why a network cannot be built. Positions count from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    #[error("the input shape {height}×{width}×{channels} has a side of 0", height = .0.height, width = .0.width, channels = .0.channels)]
    EmptyInput(InputShape),
    #[error("{0} classes; a classifier has 2 to 256")]
    Classes(usize),
    #[error("{list}[{index}] is 0; a layer has at least one output")]
    EmptyLayer { list: &'static str, index: usize },
    #[error("channels is empty; a CNN has at least one convolution")]
    NoConvolution,
    #[error("channels[{index}] pools 2×2, but only {height}×{width} positions are left there")]
    TooSmallToPool {
        index: usize,
        height: usize,
        width: usize,
    },
    #[error("{name} would hold more than 2147483648 numbers")]
    TooLarge { name: String },
}
