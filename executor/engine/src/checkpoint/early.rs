//! Files that go to the disk while they are written. Left to itself the kernel keeps what is written until somebody syncs, and the disk
//! stands idle meanwhile.

use std::ffi::{c_int, c_uint};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Begun at a time, at a multiple of it in the file: a few huge pages, which the kernel's cache then has whole.
const STRETCH: u64 = 4 << 20;

/// Of `linux/fs.h`: begins to write and waits for nothing.
const SYNC_FILE_RANGE_WRITE: c_uint = 2;

unsafe extern "C" {
    fn sync_file_range(file: c_int, offset: i64, bytes: i64, flags: c_uint) -> c_int;
}

/// A file that is being written.
#[derive(Debug)]
pub struct Early {
    file: File,
    written: u64,
    /// Until there it is on its way.
    begun: u64,
}

impl Early {
    /// A new file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Self {
            file,
            written: 0,
            begun: 0,
        })
    }

    pub fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = STRETCH - self.written % STRETCH;
            let len = bytes.len().min(room as usize);
            self.file.write_all(&bytes[..len])?;
            self.written += len as u64;
            bytes = &bytes[len..];
            if self.written.is_multiple_of(STRETCH) {
                self.begin();
            }
        }
        Ok(())
    }

    /// What was written, of which nothing is sure to be on the disk before it is synced.
    pub fn into_file(self) -> File {
        self.file
    }

    fn begin(&mut self) {
        let (offset, bytes) = (self.begun as i64, (self.written - self.begun) as i64);
        // SAFETY: the file is open, and the call touches no memory of this process. It is advice: who syncs is told of what failed.
        let _ =
            unsafe { sync_file_range(self.file.as_raw_fd(), offset, bytes, SYNC_FILE_RANGE_WRITE) };
        self.begun = self.written;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Pieces that end within a stretch, one that is longer than two, and one that ends with one.
    #[test]
    fn what_is_written_is_all_there_and_whole_stretches_are_on_their_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part");
        let stretch = STRETCH as usize;
        let bytes: Vec<u8> = (0..5 * stretch).map(|i| (i * 31 + i / 977) as u8).collect();
        let ends = [
            4096,
            stretch - 3,
            3 * stretch + 5,
            4 * stretch,
            5 * stretch - 1,
        ];
        let mut file = Early::create(&path).unwrap();
        let mut at = 0;
        for end in ends {
            file.write_all(&bytes[at..end]).unwrap();
            assert_eq!(
                (file.written, file.begun),
                (end as u64, (end / stretch * stretch) as u64)
            );
            at = end;
        }
        drop(file.into_file());
        assert!(fs::read(&path).unwrap() == bytes[..at]);
        assert!(Early::create(&path).is_err(), "it is there already");
    }
}
