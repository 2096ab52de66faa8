//! Numbers that lie in part files, seen as one run of memory without being copied.
//!
//! An arena's address is chosen so that its numbers lie in their pages as they do in the file; the file's whole pages are then laid
//! over it, read only, and what shares a page with something else is copied. Reading gives memory its pages twice, once in the
//! kernel's cache and once here: that, and not the sums, was most of what loading took. Where the kernel keeps a file in huge pages,
//! the longest run lies so that they are mapped whole.
//!
//! What is mapped is a file that nobody changes: checkpoints are written under other names, renamed once they are whole, and
//! unlinked when they are over, which leaves a mapping as it is. This holds on the file systems of [`keeps_unlinked`]; elsewhere another
//! machine could take the file away, and the next look at a page of it would kill this process, so files are read there.

use super::parts::PAGE;
use crate::pages::HUGE;
use rustix::fs::fstatfs;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::ptr::NonNull;

/// An arena over files.
#[derive(Debug)]
pub struct Mapping {
    reserved: NonNull<u8>,
    bytes: usize,
    /// Where a huge page may begin, within what is reserved.
    start: NonNull<u8>,
    /// Bytes from there to the first number.
    lead: usize,
    floats: usize,
}

// SAFETY: the mapping belongs to this value alone, and nothing about it is bound to a thread.
unsafe impl Send for Mapping {}
// SAFETY: through shared references it is only read.
unsafe impl Sync for Mapping {}

/// A stretch of an arena, in bytes.
#[derive(Debug)]
pub enum Span<'a> {
    /// To be read into.
    Fill(&'a mut [u8]),
    /// The file's own pages.
    Laid(&'a [u8]),
}

impl Mapping {
    /// Zeros for so many numbers, of which the first lies `lead` bytes into a huge page.
    ///
    /// # Errors
    /// Without address space.
    pub fn reserve(floats: usize, lead: usize) -> io::Result<Self> {
        assert!(
            lead < HUGE && lead.is_multiple_of(align_of::<f32>()),
            "numbers are aligned in their page"
        );
        let bytes = (lead + floats * size_of::<f32>()).next_multiple_of(PAGE) + HUGE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of this process.
        let reserved = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        let reserved = NonNull::<u8>::new(reserved.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: it is less than a huge page away, by which what is reserved is longer than what is used.
        let start = unsafe { reserved.add(reserved.align_offset(HUGE)) };
        Ok(Self {
            reserved,
            bytes,
            start,
            lead,
            floats,
        })
    }

    /// Lays the whole pages among `bytes` of the file from `offset` on over the arena's bytes from `at` on. Which of the arena's bytes
    /// they are; none, where the two lie differently in their pages, or there is not one whole page.
    ///
    /// # Errors
    /// When the file cannot be mapped, or the kernel's pages are larger. The arena is then as it was.
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
        // SAFETY: the address lies within this value's own mapping, of which `&mut self` says that nobody looks at it.
        unsafe {
            let to = self.start.as_ptr().add(pages.start);
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            mmap(to.cast(), pages.len(), ProtFlags::READ, flags, file, offset)
        }?;
        Ok(pages.start - self.lead..pages.end - self.lead)
    }

    /// The arena's bytes in order, cut where files are `laid`, which are ascending ranges that [`Self::lay`] gave.
    pub fn spans(&mut self, laid: &[Range<usize>]) -> Vec<Span<'_>> {
        let end = self.floats * size_of::<f32>();
        let mut out = Vec::with_capacity(2 * laid.len() + 1);
        let mut at = 0;
        for range in laid {
            assert!(at <= range.start && range.end <= end, "ascending, within");
            out.extend(self.fill(at..range.start));
            out.push(Span::Laid(self.laid(range.clone())));
            at = range.end;
        }
        out.extend(self.fill(at..end));
        out
    }

    /// `None` of nothing.
    fn fill<'a>(&self, range: Range<usize>) -> Option<Span<'a>> {
        if range.is_empty() {
            return None;
        }
        // SAFETY: within the mapping, in memory that is written; `spans` cuts the arena into ranges that do not overlap, and what it
        // returns borrows the arena as a whole.
        let bytes = unsafe {
            let start = self.start.as_ptr().add(self.lead + range.start);
            std::slice::from_raw_parts_mut(start, range.len())
        };
        Some(Span::Fill(bytes))
    }

    fn laid<'a>(&self, range: Range<usize>) -> &'a [u8] {
        // SAFETY: as in `fill`, and only read: these pages are the file's, which nobody changes.
        unsafe {
            let start = self.start.as_ptr().add(self.lead + range.start);
            std::slice::from_raw_parts(start, range.len())
        }
    }
}

impl Deref for Mapping {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: mapped as long as this value lives, aligned as `reserve` asserts, and only read from now on; any bits are floats.
        unsafe {
            let first = self.start.as_ptr().add(self.lead).cast::<f32>();
            std::slice::from_raw_parts(first, self.floats)
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no slice of it outlives a borrow of the value.
        let _ = unsafe { munmap(self.reserved.as_ptr().cast(), self.bytes) };
    }
}

impl<'a> Span<'a> {
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

/// Brings the pages of laid bytes in at once. A disk that fails says so here, and does not kill whoever looks at them.
///
/// # Errors
/// When the file is shorter by now or cannot be read.
pub fn populate(laid: &[u8]) -> io::Result<()> {
    let first = laid.as_ptr().addr() / PAGE * PAGE;
    let end = (laid.as_ptr().addr() + laid.len()).next_multiple_of(PAGE);
    // SAFETY: reading pages ahead changes nothing that is in them. The range is one of laid pages, which begin and end with a page.
    let populated = unsafe {
        let start = laid.as_ptr().with_addr(first).cast_mut();
        madvise(start.cast(), end - first, Advice::LinuxPopulateRead)
    };
    match populated {
        // A kernel before 5.14: they come one by one as they are looked at.
        Err(Errno::INVAL) => Ok(()),
        // Its word for what would have been a signal.
        Err(Errno::FAULT) => Err(io::ErrorKind::UnexpectedEof.into()),
        other => Ok(other?),
    }
}

/// Whether what is unlinked stays whole for those who have it open, whoever unlinks it: not where other machines have the files, or a
/// program stands behind them.
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
    // Sign-extended on some kernels; all are words of 32 bits.
    fstatfs(file).is_ok_and(|found| KNOWN.contains(&(found.f_type as u64 & 0xFFFF_FFFF)))
}
