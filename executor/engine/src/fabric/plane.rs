//! Floats in a mapping of their own. Peers may be lent them ([`super::lend`]): when a plane goes, its pages leave this process at once, and stay as
//! they are for whoever still reads them. The allocator's memory was rejected: it is given to others, who write to it.

use super::FabricError;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Private memory.
#[derive(Debug)]
pub struct Plane {
    base: NonNull<f32>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, and nothing about it is bound to a thread.
unsafe impl Send for Plane {}
// SAFETY: through a shared reference it is only read.
unsafe impl Sync for Plane {}

impl Plane {
    /// Zeros, in huge pages where the kernel gives them; untouched, they take no memory.
    ///
    /// # Errors
    /// [`FabricError::Io`] without address space.
    pub fn new(len: usize) -> Result<Self, FabricError> {
        let bytes = bytes(len);
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of this process.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let base = base.map_err(|error| FabricError::io("make an arena")(error.into()))?;
        // SAFETY: the advice changes how pages are backed, not what they hold. Kernels without huge pages refuse; that is fine.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast());
        let base = base.ok_or(io::ErrorKind::OutOfMemory.into());
        Ok(Self {
            base: base.map_err(FabricError::io("make an arena"))?,
            len,
        })
    }
}

/// Of a mapping, which has one at least.
fn bytes(len: usize) -> usize {
    (len * size_of::<f32>()).max(1)
}

impl Deref for Plane {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: mapped for as long as this value is there, zeroed by the kernel, aligned to a page, and written through `&mut self` alone.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Plane {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`; the kernel reads what is lent, which no rule of this language knows of.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        // SAFETY: nobody has a slice of it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), bytes(self.len)) };
    }
}
