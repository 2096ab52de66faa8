//! The memory that a task's collectives work on: its gradients, and room for their sums.
//!
//! Two planes instead of one in place: the gradients stay as the task has left them until their sum is complete everywhere, so
//! that survivors of a death repeat the sum from them. It costs no copy, as partial sums have to be written somewhere anyhow.

use super::FabricError;
use super::plane::Plane;
use crate::memory::Shared;

/// Gradients, in memory that tasks of the same node may map once there are any, and private room for sums. Untouched parts take no memory.
#[derive(Debug)]
pub struct Arena {
    gradients: Gradients,
    /// Shared with nobody, so it is memory of the ordinary kind: that comes in huge pages, whose translations the processor keeps and which sockets
    /// take by the piece, also where shared memory does not, as kernels are usually set.
    sums: Plane,
    len: usize,
}

#[derive(Debug)]
enum Gradients {
    /// As long as nobody is there to share them with.
    Own(Plane),
    Shared(Shared),
}

impl Arena {
    /// Zeros; `len` floats in each plane.
    ///
    /// # Errors
    /// [`FabricError::Io`] without memory.
    pub fn new(len: usize) -> Result<Self, FabricError> {
        Ok(Self {
            gradients: Gradients::Own(Plane::new(len)?),
            // Zeroed by the kernel when first used: a task that sums in its node's plane never touches it.
            sums: Plane::new(len)?,
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
        match &self.gradients {
            Gradients::Own(values) => values,
            // SAFETY: peers only read this memory; this task writes it through `&mut self` alone.
            Gradients::Shared(memory) => unsafe { memory.floats(0, 0, self.len) },
        }
    }

    /// The same, to be written between collectives.
    #[must_use]
    pub fn gradients_mut(&mut self) -> &mut [f32] {
        match &mut self.gradients {
            Gradients::Own(values) => values,
            // SAFETY: peers read this memory only during a collective that this task takes part in, which borrows the arena as well.
            Gradients::Shared(memory) => unsafe { memory.floats_mut(0, 0, self.len) },
        }
    }

    /// The private sums: what links have brought.
    #[must_use]
    pub fn sums(&self) -> &[f32] {
        &self.sums
    }

    /// Both planes at once, for a collective over links.
    #[must_use]
    pub fn sides(&mut self) -> (&[f32], &mut [f32]) {
        let gradients = match &self.gradients {
            Gradients::Own(values) => &**values,
            // SAFETY: as in `gradients`.
            Gradients::Shared(memory) => unsafe { memory.floats(0, 0, self.len) },
        };
        (gradients, &mut self.sums)
    }

    /// Lets the sums lie elsewhere from now on, as they are: peers may still read what was lent them from where they lay, in a sum that was
    /// broken off.
    ///
    /// # Errors
    /// [`FabricError::Io`] without memory.
    pub(crate) fn move_sums(&mut self) -> Result<(), FabricError> {
        let mut elsewhere = Plane::new(self.len)?;
        elsewhere.copy_from_slice(&self.sums);
        self.sums = elsewhere;
        Ok(())
    }

    /// The gradients' memory, to hand over to other tasks of this node: from now on they lie where these can map them.
    ///
    /// # Errors
    /// [`FabricError::Io`] without memory or descriptors.
    pub(super) fn memory(&mut self) -> Result<&Shared, FabricError> {
        if let Gradients::Own(values) = &self.gradients {
            let memory = Shared::create(self.len * 4).map_err(FabricError::io("make an arena"))?;
            // SAFETY: nobody else knows of this memory yet.
            unsafe { memory.floats_mut(0, 0, self.len) }.copy_from_slice(values);
            self.gradients = Gradients::Shared(memory);
        }
        match &self.gradients {
            Gradients::Shared(memory) => Ok(memory),
            Gradients::Own(_) => unreachable!("just moved"),
        }
    }
}
