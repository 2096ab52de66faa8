//! The memory that a task's collectives work on: its gradients, and room for their sums.
//!
//! Two planes instead of one in place: the gradients stay as the task has left them until their sum is complete everywhere, so
//! that survivors of a death repeat the sum from them. It costs no copy, as partial sums have to be written somewhere anyhow.

use super::FabricError;
use super::memory::Shared;

/// Gradients in memory that tasks of the same node may map, and private room for sums. Untouched parts take no memory.
#[derive(Debug)]
pub struct Arena {
    gradients: Shared,
    /// Shared with nobody; made in the same way because such memory comes in huge pages, whose translations the processor keeps.
    sums: Shared,
    len: usize,
}

impl Arena {
    /// Zeros; `len` floats in each plane.
    ///
    /// # Errors
    /// [`FabricError::Io`] without memory or descriptors.
    pub fn new(len: usize) -> Result<Self, FabricError> {
        let plane = || Shared::create(len * 4).map_err(FabricError::io("make an arena"));
        Ok(Self {
            gradients: plane()?,
            // Zeroed by the kernel when first used: a task that sums in its node's plane never touches it.
            sums: plane()?,
            len,
        })
    }

    /// Floats in each plane.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// This task's contributions.
    #[must_use]
    pub fn gradients(&self) -> &[f32] {
        // SAFETY: peers only read this memory; this task writes it through `&mut self` alone.
        unsafe { self.gradients.floats(0, 0, self.len) }
    }

    /// The same, to be written between collectives.
    #[must_use]
    pub fn gradients_mut(&mut self) -> &mut [f32] {
        // SAFETY: peers read this memory only during a collective that this task takes part in, which borrows the arena as well.
        unsafe { self.gradients.floats_mut(0, 0, self.len) }
    }

    /// The private sums: what links have brought.
    #[must_use]
    pub fn sums(&self) -> &[f32] {
        // SAFETY: this task alone maps it, and writes it through `&mut self` alone.
        unsafe { self.sums.floats(0, 0, self.len) }
    }

    /// Both planes at once, for a collective over links.
    #[must_use]
    pub fn sides(&mut self) -> (&[f32], &mut [f32]) {
        // SAFETY: as in `gradients` and `sums`; two files never overlap.
        unsafe {
            (
                self.gradients.floats(0, 0, self.len),
                self.sums.floats_mut(0, 0, self.len),
            )
        }
    }

    pub(super) fn memory(&self) -> &Shared {
        &self.gradients
    }
}
