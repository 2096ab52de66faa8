//! An arena that was loaded.

use super::mapping::Mapping;
use std::ops::Deref;

/// Numbers, in memory of their own or where their files lie in memory anyhow. They are read like a slice.
#[derive(Debug)]
pub enum Plane {
    Own(Vec<f32>),
    /// Read only: who changes numbers takes a copy.
    Mapped(Mapping),
}

impl Plane {
    /// Whether it is a file that is looked at.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(self, Self::Mapped(_))
    }
}

impl Deref for Plane {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Own(values) => values,
            Self::Mapped(mapping) => mapping,
        }
    }
}

impl Default for Plane {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl From<Vec<f32>> for Plane {
    fn from(values: Vec<f32>) -> Self {
        Self::Own(values)
    }
}

/// A copy is in memory of its own.
impl Clone for Plane {
    fn clone(&self) -> Self {
        Self::Own(self.to_vec())
    }
}

impl PartialEq for Plane {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
