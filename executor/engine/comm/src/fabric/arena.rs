//! Memory of a task's collectives: its gradients, and a second plane for their sums.
//!
//! The gradients remain unchanged until their sum is complete on all ranks, so that the survivors
//! of a lost member can repeat the sum from them. This costs no copy, because partial sums have to
//! be written somewhere.

use super::FabricError;
use super::plane::PrivateMemory;
use crate::memory::SharedMapping;

/// Gradients, in memory that tasks of the same node can map once there are any, and private memory
/// for sums. Pages that are not touched use no memory.
#[derive(Debug)]
pub struct Arena {
    gradients: GradientMemory,
    /// Private memory of the ordinary kind: the kernel provides huge pages for it, and sockets can
    /// take its pages. With the usual kernel settings, shared memory has neither property.
    sums: PrivateMemory,
    len: usize,
}

#[derive(Debug)]
enum GradientMemory {
    /// No other task of the node maps the gradients yet.
    Own(PrivateMemory),
    Shared(SharedMapping),
}

impl Arena {
    /// Creates an arena of zeros with `len` floats in each plane.
    ///
    /// # Errors
    /// [`FabricError::Io`] if there is not enough memory.
    pub fn new(len: usize) -> Result<Self, FabricError> {
        Ok(Self {
            gradients: GradientMemory::Own(PrivateMemory::new(len)?),
            // The kernel zeroes pages on first use. A task that sums in its node's plane never
            // touches them.
            sums: PrivateMemory::new(len)?,
            len,
        })
    }

    /// Number of floats in each plane.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the planes are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gradients of this task.
    #[must_use]
    pub fn gradients(&self) -> &[f32] {
        match &self.gradients {
            GradientMemory::Own(values) => values,
            // SAFETY: peers only read this memory; this task writes it through `&mut self` only.
            GradientMemory::Shared(memory) => unsafe { memory.floats(0, 0, self.len) },
        }
    }

    /// Gradients of this task, to be written between collectives.
    #[must_use]
    pub fn gradients_mut(&mut self) -> &mut [f32] {
        match &mut self.gradients {
            GradientMemory::Own(values) => values,
            // SAFETY: peers read this memory only during a collective in which this task takes
            // part, which borrows the arena as well.
            GradientMemory::Shared(memory) => unsafe { memory.floats_mut(0, 0, self.len) },
        }
    }

    /// Private sums, written by collectives over links.
    #[must_use]
    pub fn sums(&self) -> &[f32] {
        &self.sums
    }

    /// Both planes at once, for a collective over links.
    #[must_use]
    pub fn sides(&mut self) -> (&[f32], &mut [f32]) {
        let gradients = match &self.gradients {
            GradientMemory::Own(values) => &**values,
            // SAFETY: as in `gradients`.
            GradientMemory::Shared(memory) => unsafe { memory.floats(0, 0, self.len) },
        };
        (gradients, &mut self.sums)
    }

    /// Copies the sums to a new plane. Peers may still read the old plane after an aborted sum in
    /// which its pages were lent to them.
    ///
    /// # Errors
    /// [`FabricError::Io`] if there is not enough memory.
    pub(crate) fn move_sums(&mut self) -> Result<(), FabricError> {
        let mut elsewhere = PrivateMemory::new(self.len)?;
        elsewhere.copy_from_slice(&self.sums);
        self.sums = elsewhere;
        Ok(())
    }

    /// The memory of the gradients, to be sent to other tasks of this node. The first call moves
    /// the gradients to memory that these tasks can map.
    ///
    /// # Errors
    /// [`FabricError::Io`] if there is not enough memory or no descriptor is left.
    pub(super) fn memory(&mut self) -> Result<&SharedMapping, FabricError> {
        if let GradientMemory::Own(values) = &self.gradients {
            let memory =
                SharedMapping::create(self.len * 4).map_err(FabricError::io("make an arena"))?;
            // SAFETY: the memory is new, so no other task accesses it.
            unsafe { memory.floats_mut(0, 0, self.len) }.copy_from_slice(values);
            self.gradients = GradientMemory::Shared(memory);
        }
        match &self.gradients {
            GradientMemory::Shared(memory) => Ok(memory),
            GradientMemory::Own(_) => unreachable!("just moved"),
        }
    }
}
