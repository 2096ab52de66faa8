//! Input shapes of networks.

use serde::{Deserialize, Serialize};

/// Shape of one example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExampleShape {
    Image(ImageShape),
    /// Whole numbers below `vocabulary`, stored as `f32`, which represents them exactly up to 2^24.
    Tokens {
        length: usize,
        vocabulary: usize,
    },
    /// Row of a table.
    Row {
        columns: usize,
    },
}

/// Shape of one image: height × width × channels, stored in this order (NHWC).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageShape {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
}

impl ExampleShape {
    /// Number of elements per example.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Self::Image(shape) => shape.len(),
            Self::Tokens { length, .. } => length,
            Self::Row { columns } => columns,
        }
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl From<ImageShape> for ExampleShape {
    fn from(shape: ImageShape) -> Self {
        Self::Image(shape)
    }
}

impl ImageShape {
    /// Number of elements per example.
    #[must_use]
    pub fn len(self) -> usize {
        self.height * self.width * self.channels
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}
