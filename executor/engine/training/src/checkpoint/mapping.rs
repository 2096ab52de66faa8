//! Arena that consists of mapped part files, without a copy.
//!
//! The address of an arena is chosen so that its values have the same position in their pages as in
//! the file. The whole pages of the file are then mapped over it, read-only; values that share a
//! page with other data are copied. Reading would need each page twice, in the page cache and in
//! this process, and these page allocations were most of the time of a load. Where the kernel keeps
//! a file in huge pages, the address is chosen so that the longest run is mapped with huge pages.
//!
//! A mapped file never changes: checkpoints are written under other names, renamed when they are
//! complete, and unlinked when they are no longer needed, which leaves a mapping intact. This holds
//! on the file systems of [`keeps_unlinked`]. On others another machine could remove the file, and
//! the next access to one of its pages would kill this process. Files are read there.

use super::parts::PAGE;
use muster_compute::pages::HUGE;
use rustix::fs::fstatfs;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::ptr::NonNull;

/// Arena over mapped files.
#[derive(Debug)]
pub struct Mapping {
    reserved: NonNull<u8>,
    bytes: usize,
    /// Start of a huge page within the reserved range.
    start: NonNull<u8>,
    /// Bytes from `start` to the first value.
    lead: usize,
    floats: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread.
unsafe impl Send for Mapping {}
// SAFETY: shared references allow reads only.
unsafe impl Sync for Mapping {}

/// Range of an arena in bytes.
#[derive(Debug)]
pub enum ArenaSpan<'a> {
    /// Bytes to be read into.
    Fill(&'a mut [u8]),
    /// Mapped pages of a file.
    Laid(&'a [u8]),
}

impl Mapping {
    /// Reserves zeros for `floats` values, the first of them `lead` bytes into a huge page.
    ///
    /// # Errors
    /// If no address space is left.
    pub fn reserve(floats: usize, lead: usize) -> io::Result<Self> {
        assert!(
            lead < HUGE && lead.is_multiple_of(align_of::<f32>()),
            "numbers are aligned in their page"
        );
        let bytes = (lead + floats * size_of::<f32>()).next_multiple_of(PAGE) + HUGE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses does not alias memory of this
        // process.
        let reserved = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        let reserved = NonNull::<u8>::new(reserved.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the distance is less than a huge page, and the reserved range is longer than the
        // used one by a huge page.
        let start = unsafe { reserved.add(reserved.align_offset(HUGE)) };
        Ok(Self {
            reserved,
            bytes,
            start,
            lead,
            floats,
        })
    }

    /// Maps the whole pages among `bytes` bytes of the file from `offset` on over the arena's bytes
    /// from `at` on. Returns the mapped range of the arena. It is empty if the two positions in
    /// their pages differ, or if there is no whole page.
    ///
    /// # Errors
    /// If the file cannot be mapped, or the kernel's pages are larger. The arena is then unchanged.
    pub fn lay(
        &mut self,
        at: usize,
        file: &File,
        offset: u64,
        bytes: usize,
    ) -> io::Result<Range<usize>> {
        assert!(
            at + bytes <= self.floats * size_of::<f32>(),
            "within the arena"
        );
        let first = self.lead + at;
        let pages = first.next_multiple_of(PAGE)..(first + bytes) / PAGE * PAGE;
        if first % PAGE != (offset % PAGE as u64) as usize || pages.is_empty() {
            return Ok(at..at);
        }
        let offset = offset + (pages.start - first) as u64;
        // SAFETY: the address lies within this value's own mapping, and `&mut self` excludes other
        // references to it.
        unsafe {
            let to = self.start.as_ptr().add(pages.start);
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            mmap(to.cast(), pages.len(), ProtFlags::READ, flags, file, offset)
        }?;
        Ok(pages.start - self.lead..pages.end - self.lead)
    }

    /// The arena's bytes in order, cut at the mapped ranges `laid`, which must be ascending results
    /// of [`Self::lay`].
    pub fn spans(&mut self, laid: &[Range<usize>]) -> Vec<ArenaSpan<'_>> {
        let end = self.floats * size_of::<f32>();
        let mut out = Vec::with_capacity(2 * laid.len() + 1);
        let mut at = 0;
        for range in laid {
            assert!(at <= range.start && range.end <= end, "ascending, within");
            out.extend(self.fill(at..range.start));
            out.push(ArenaSpan::Laid(self.laid(range.clone())));
            at = range.end;
        }
        out.extend(self.fill(at..end));
        out
    }

    /// `None` for an empty range.
    fn fill<'a>(&self, range: Range<usize>) -> Option<ArenaSpan<'a>> {
        if range.is_empty() {
            return None;
        }
        // SAFETY: within the mapping and writable. `spans` cuts the arena into ranges that do not
        // overlap, and its result borrows the whole arena.
        let bytes = unsafe {
            let start = self.start.as_ptr().add(self.lead + range.start);
            std::slice::from_raw_parts_mut(start, range.len())
        };
        Some(ArenaSpan::Fill(bytes))
    }

    fn laid<'a>(&self, range: Range<usize>) -> &'a [u8] {
        // SAFETY: as in `fill`, and read-only: these pages belong to a file that does not change.
        unsafe {
            let start = self.start.as_ptr().add(self.lead + range.start);
            std::slice::from_raw_parts(start, range.len())
        }
    }
}

impl Deref for Mapping {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: mapped while this value lives, aligned as `reserve` asserts, and only read from
        // now on; every bit pattern is a float.
        unsafe {
            let first = self.start.as_ptr().add(self.lead).cast::<f32>();
            std::slice::from_raw_parts(first, self.floats)
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no slice of it outlives a borrow of the
        // value.
        let _ = unsafe { munmap(self.reserved.as_ptr().cast(), self.bytes) };
    }
}

impl<'a> ArenaSpan<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Fill(bytes) => bytes.len(),
            Self::Laid(bytes) => bytes.len(),
        }
    }

    pub fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            Self::Fill(bytes) => {
                let (here, rest) = bytes.split_at_mut(at);
                (Self::Fill(here), Self::Fill(rest))
            }
            Self::Laid(bytes) => {
                let (here, rest) = bytes.split_at(at);
                (Self::Laid(here), Self::Laid(rest))
            }
        }
    }
}

/// Populates the pages of mapped bytes. A failing disk is reported here as an error, and does not
/// kill the process at a later access.
///
/// # Errors
/// If the file has become shorter or cannot be read.
pub fn populate(laid: &[u8]) -> io::Result<()> {
    let first = laid.as_ptr().addr() / PAGE * PAGE;
    let end = (laid.as_ptr().addr() + laid.len()).next_multiple_of(PAGE);
    // SAFETY: reading pages ahead does not change their content. The range consists of mapped
    // pages, which begin and end at page boundaries.
    let populated = unsafe {
        let start = laid.as_ptr().with_addr(first).cast_mut();
        madvise(start.cast(), end - first, Advice::LinuxPopulateRead)
    };
    match populated {
        // Kernels before 5.14: pages are populated on access.
        Err(Errno::INVAL) => Ok(()),
        // The kernel returns this error where an access would raise a signal.
        Err(Errno::FAULT) => Err(io::ErrorKind::UnexpectedEof.into()),
        other => Ok(other?),
    }
}

/// Whether an unlinked file stays intact for processes that have it open, on every machine. Not on
/// network file systems and FUSE.
pub fn keeps_unlinked(file: &File) -> bool {
    /// ext2 to ext4, XFS, Btrfs, F2FS, tmpfs, overlayfs, ZFS (`linux/magic.h`, `statfs(2)`).
    const KNOWN: [u64; 7] = [
        0xEF53,
        0x5846_5342,
        0x9123_683E,
        0xF2F5_2010,
        0x0102_1994,
        0x794C_7630,
        0x2FC1_2FC1,
    ];
    // Sign-extended on some kernels; all values have 32 bits.
    fstatfs(file).is_ok_and(|found| KNOWN.contains(&(found.f_type as u64 & 0xFFFF_FFFF)))
}
