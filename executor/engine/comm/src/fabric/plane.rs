//! Floats in a mapping of their own, which can be lent to peers ([`super::zero_copy`]). When a
//! plane is dropped, its pages leave this process at once and stay unchanged for a peer that still
//! reads them. Memory of the allocator was rejected: it would be reused and overwritten.

use super::FabricError;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Private memory of floats.
#[derive(Debug)]
pub struct PrivateMemory {
    base: NonNull<f32>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread.
unsafe impl Send for PrivateMemory {}
// SAFETY: shared references allow reads only.
unsafe impl Sync for PrivateMemory {}

impl PrivateMemory {
    /// Creates a plane of zeros, with huge pages where the kernel provides them. Pages that are not
    /// touched use no memory.
    ///
    /// # Errors
    /// [`FabricError::Io`] if no address space is left.
    pub fn new(len: usize) -> Result<Self, FabricError> {
        let bytes = bytes(len);
        // SAFETY: a new mapping at an address that the kernel chooses does not alias memory of this
        // process.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let base = base.map_err(|error| FabricError::io("make an arena")(error.into()))?;
        // SAFETY: the advice changes how pages are backed, not their content. An error of a kernel
        // without huge pages is harmless.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast());
        let base = base.ok_or(io::ErrorKind::OutOfMemory.into());
        Ok(Self {
            base: base.map_err(FabricError::io("make an arena"))?,
            len,
        })
    }
}

/// Length of the mapping in bytes, at least 1.
fn bytes(len: usize) -> usize {
    (len * size_of::<f32>()).max(1)
}

impl Deref for PrivateMemory {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: mapped while this value lives, zeroed by the kernel, aligned to a page, and
        // written through `&mut self` only.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for PrivateMemory {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`; the kernel's reads of lent pages are outside of Rust's aliasing
        // rules.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for PrivateMemory {
    fn drop(&mut self) {
        // SAFETY: no slice of the mapping exists any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), bytes(self.len)) };
    }
}
