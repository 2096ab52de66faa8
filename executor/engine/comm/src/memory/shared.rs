//! Memory that several tasks of one node map: an anonymous file of the kernel (`memfd`), sealed
//! against shrinking.
//!
//! A named file in a folder would outlive a killed task, and another user could open it. An
//! anonymous file is sent over a socket and ends with its last owner.
//!
//! The protocols of the callers (rings, steps of a collective) prevent concurrent reads and writes
//! by two processes; this module does not. It returns raw addresses, and slices only from `unsafe`
//! functions.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// Files have a multiple of the huge-page size, so that the kernel can map them with huge pages.
/// Untouched pages use no memory.
const GRAIN: usize = 2 << 20;

/// A shared mapping, readable and writable.
#[derive(Debug)]
pub struct SharedMapping {
    file: OwnedFd,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread.
unsafe impl Send for SharedMapping {}
// SAFETY: shared references return addresses only. Reads and writes through them are `unsafe` and
// justified at each use.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Creates a mapping of at least `len` bytes, all zero.
    ///
    /// # Errors
    /// If the kernel has no anonymous files, or no descriptors or address space are left.
    pub fn create(len: usize) -> io::Result<Self> {
        let len = len.max(1).next_multiple_of(GRAIN);
        let file = rustix::fs::memfd_create(
            "muster-arena",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        ftruncate(&file, len as u64)?;
        // If a peer could shrink the file, every reader would be killed by SIGBUS.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::map(file, len)
    }

    /// Maps a file that a peer has sent.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the file is shorter than `len` or can still shrink.
    pub fn open(file: OwnedFd, len: usize) -> io::Result<Self> {
        let size = usize::try_from(fstat(&file)?.st_size).unwrap_or(0);
        let sealed = fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        if size < len.max(1) || !sealed {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a peer handed over memory of another size",
            ));
        }
        Self::map(file, size)
    }

    fn map(file: OwnedFd, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses does not alias memory of this
        // process.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        // SAFETY: the advice changes how pages are backed, not their content. An error of a kernel
        // without huge pages is harmless.
        let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { file, base, len })
    }

    /// File to send to a peer.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Length of the mapping in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a mapping has at least one page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of byte `offset`, with at least `bytes` bytes after it. Its alignment is that of
    /// `offset`, up to a page.
    ///
    /// # Panics
    /// If the range lies beyond the mapping.
    #[must_use]
    pub fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(
            offset <= self.len && bytes <= self.len - offset,
            "an address beyond the mapping"
        );
        // SAFETY: within the mapping, as checked above.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Returns `count` bytes from `offset` on.
    ///
    /// # Safety
    /// As [`Self::floats`].
    #[must_use]
    pub unsafe fn bytes(&self, offset: usize, count: usize) -> &[u8] {
        let address = self.at(offset, count);
        // SAFETY: mapped; the caller guarantees that no process writes.
        unsafe { std::slice::from_raw_parts(address, count) }
    }

    /// Like [`Self::bytes`], for writing.
    ///
    /// # Safety
    /// As [`Self::floats_mut`].
    #[expect(
        clippy::mut_from_ref,
        reason = "disjoint parts of one mapping are written by several"
    )]
    #[must_use]
    pub unsafe fn bytes_mut(&self, offset: usize, count: usize) -> &mut [u8] {
        let address = self.at(offset, count);
        // SAFETY: mapped; the caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(address, count) }
    }

    /// Returns `count` floats from float `start` after byte `base`.
    ///
    /// # Safety
    /// No process may write them while the slice lives.
    #[must_use]
    pub unsafe fn floats(&self, base: usize, start: usize, count: usize) -> &[f32] {
        let address = self.at(base + start * 4, count * 4).cast::<f32>();
        debug_assert!(address.is_aligned());
        // SAFETY: mapped and aligned (`base` is a multiple of 4, the mapping of a page); every bit
        // pattern is a float; the caller guarantees that no process writes.
        unsafe { std::slice::from_raw_parts(address, count) }
    }

    /// Like [`Self::floats`], for writing.
    ///
    /// # Safety
    /// No process may read or write them through other references while the slice lives.
    #[expect(
        clippy::mut_from_ref,
        reason = "disjoint parts of one mapping are written by several"
    )]
    #[must_use]
    pub unsafe fn floats_mut(&self, base: usize, start: usize, count: usize) -> &mut [f32] {
        let address = self.at(base + start * 4, count * 4).cast::<f32>();
        debug_assert!(address.is_aligned());
        // SAFETY: as in `floats`; the caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(address, count) }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no slice of it outlives a borrow of the
        // value.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_of_one_file_are_one_memory() {
        let mine = SharedMapping::create(100).unwrap();
        let theirs = SharedMapping::open(mine.file().try_clone_to_owned().unwrap(), 100).unwrap();
        // SAFETY: one thread, one slice at a time.
        unsafe {
            mine.floats_mut(64, 0, 3).copy_from_slice(&[1.0, 2.0, 3.0]);
            assert_eq!(theirs.floats(64, 1, 2), [2.0, 3.0]);
        }
    }

    #[test]
    fn shrinkable_or_short_file_is_not_mapped() {
        let plain = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&plain, 4096).unwrap();
        assert!(SharedMapping::open(plain, 4096).is_err());
        let mine = SharedMapping::create(1).unwrap();
        let file = mine.file().try_clone_to_owned().unwrap();
        assert!(SharedMapping::open(file, GRAIN + 1).is_err());
        assert!(ftruncate(mine.file(), 0).is_err());
    }
}
