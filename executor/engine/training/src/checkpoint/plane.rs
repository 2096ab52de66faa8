//! Loaded arena.

use super::mapping::Mapping;
use std::ops::Deref;

/// Values in memory of their own, or in mapped files. Dereferences to a slice.
#[derive(Debug)]
pub enum CheckpointArena {
    Own(Vec<f32>),
    /// Read-only: a caller that changes values makes a copy.
    Mapped(Mapping),
}

impl CheckpointArena {
    /// Whether the values are a mapped file.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(self, Self::Mapped(_))
    }
}

impl Deref for CheckpointArena {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Own(values) => values,
            Self::Mapped(mapping) => mapping,
        }
    }
}

impl Default for CheckpointArena {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl From<Vec<f32>> for CheckpointArena {
    fn from(values: Vec<f32>) -> Self {
        Self::Own(values)
    }
}

/// A clone has memory of its own.
impl Clone for CheckpointArena {
    fn clone(&self) -> Self {
        Self::Own(self.to_vec())
    }
}

impl PartialEq for CheckpointArena {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
