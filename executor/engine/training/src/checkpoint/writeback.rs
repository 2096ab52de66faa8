//! Write-behind (`WritebackFile`): starts the disk writes of a file while it is written. By default
//! the kernel keeps written data in the page cache until a sync, and the disk is idle meanwhile.

use std::ffi::{c_int, c_uint};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Length in bytes of a range whose disk write is started at once, and alignment of its end in the
/// file. It spans a few huge pages, so that the page cache keeps them whole.
const STRETCH: u64 = 4 << 20;

/// Flag of `linux/fs.h`: starts the write and does not wait.
const SYNC_FILE_RANGE_WRITE: c_uint = 2;

unsafe extern "C" {
    fn sync_file_range(file: c_int, offset: i64, bytes: i64, flags: c_uint) -> c_int;
}

/// File that is being written.
#[derive(Debug)]
pub struct WritebackFile {
    file: File,
    written: u64,
    /// End of the range whose disk write has been started.
    begun: u64,
}

impl WritebackFile {
    /// Creates a new file.
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

    /// Returns the file. Its content is durable only after a sync.
    pub fn into_file(self) -> File {
        self.file
    }

    fn begin(&mut self) {
        let (offset, bytes) = (self.begun as i64, (self.written - self.begun) as i64);
        // SAFETY: the file is open, and the call does not access memory of this process. An error
        // can be ignored, because a later sync reports it.
        let _ =
            unsafe { sync_file_range(self.file.as_raw_fd(), offset, bytes, SYNC_FILE_RANGE_WRITE) };
        self.begun = self.written;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Pieces that end within a range, one that is longer than two ranges, and one that ends at the
    /// end of a range.
    #[test]
    fn write_behind_keeps_all_bytes_and_starts_whole_ranges() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part");
        let chunk_range = STRETCH as usize;
        let bytes: Vec<u8> = (0..5 * chunk_range)
            .map(|i| (i * 31 + i / 977) as u8)
            .collect();
        let ends = [
            4096,
            chunk_range - 3,
            3 * chunk_range + 5,
            4 * chunk_range,
            5 * chunk_range - 1,
        ];
        let mut file = WritebackFile::create(&path).unwrap();
        let mut at = 0;
        for end in ends {
            file.write_all(&bytes[at..end]).unwrap();
            assert_eq!(
                (file.written, file.begun),
                (end as u64, (end / chunk_range * chunk_range) as u64)
            );
            at = end;
        }
        drop(file.into_file());
        assert!(fs::read(&path).unwrap() == bytes[..at]);
        assert!(WritebackFile::create(&path).is_err(), "it is there already");
    }
}
