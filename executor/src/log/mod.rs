//! A task's log on disk: `log` grows, full parts lie beside it as `log.<offset of their first byte>`, the oldest go.
//!
//! Offsets count the bytes of the task's whole life. They are in the names of the parts, so that they can be told from the folder alone at
//! any instant: the part in `log` begins where the newest full part ends. The shim writes, the daemon reads.

mod last_line;
mod rotate;
mod tail;

pub use last_line::LastLine;
pub use rotate::{RotatingLog, Rotation};
pub use tail::{LogTail, Slice};

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A full part; it never changes again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    offset: u64,
    bytes: u64,
    path: PathBuf,
}

/// The part that grows.
pub(crate) fn current(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// Zeros in front make the order of names that of offsets.
fn full(folder: &Path, offset: u64) -> PathBuf {
    folder.join(format!("log.{offset:020}"))
}

/// The full parts, oldest first.
fn parts(folder: &Path) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let offset = name
            .to_str()
            .and_then(|name| name.strip_prefix("log."))
            .and_then(|text| text.parse().ok());
        let Some(offset) = offset else {
            continue;
        };
        match entry.metadata() {
            Ok(metadata) => parts.push(Part {
                offset,
                bytes: metadata.len(),
                path: entry.path(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    parts.sort_by_key(|part| part.offset);
    Ok(parts)
}

/// Where the part that grows begins.
fn current_offset(parts: &[Part]) -> u64 {
    parts.last().map_or(0, |part| part.offset + part.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(from: u64, count: u64) -> Vec<u8> {
        (from..from + count)
            .map(|position| u8::try_from(position % 251).expect("small"))
            .collect()
    }

    fn drain(tail: &mut LogTail, folder: &Path, mut offset: u64) -> Vec<Slice> {
        let mut slices = Vec::new();
        while let Some(slice) = tail.read(folder, offset, 7).expect("read") {
            offset = slice.offset + slice.bytes.len() as u64;
            slices.push(slice);
        }
        slices
    }

    #[test]
    fn a_reader_that_keeps_up_sees_every_byte_once_over_rotations() {
        let folder = tempfile::tempdir().expect("folder");
        let rotation = Rotation {
            part_bytes: 16,
            parts: 3,
        };
        let mut log = RotatingLog::open(folder.path(), rotation).expect("opened");
        let (mut tail, mut seen) = (LogTail::default(), Vec::new());
        for round in 0..40 {
            log.write(&pattern(round * 5, 5)).expect("written");
            for slice in drain(&mut tail, folder.path(), seen.len() as u64) {
                assert_eq!(slice.offset, seen.len() as u64);
                seen.extend(slice.bytes);
            }
        }
        assert_eq!(seen, pattern(0, 200));
        assert_eq!(
            parts(folder.path()).expect("listed").len(),
            2,
            "and the growing one makes three"
        );
    }

    #[test]
    fn a_reader_too_late_goes_on_at_the_oldest_part_with_its_true_offset() {
        let folder = tempfile::tempdir().expect("folder");
        let rotation = Rotation {
            part_bytes: 10,
            parts: 2,
        };
        let mut log = RotatingLog::open(folder.path(), rotation).expect("opened");
        for round in 0..10 {
            log.write(&pattern(round * 10, 10)).expect("written");
        }
        let slices = drain(&mut LogTail::default(), folder.path(), 3);
        assert_eq!(slices.first().map(|slice| slice.offset), Some(80));
        for slice in slices {
            assert_eq!(slice.bytes, pattern(slice.offset, slice.bytes.len() as u64));
        }
    }

    #[test]
    fn a_log_that_is_opened_again_goes_on_where_it_was() {
        let folder = tempfile::tempdir().expect("folder");
        let rotation = Rotation {
            part_bytes: 8,
            parts: 4,
        };
        for round in 0..6 {
            let mut log = RotatingLog::open(folder.path(), rotation).expect("opened");
            log.write(&pattern(round * 5, 5)).expect("written");
        }
        let bytes: Vec<u8> = drain(&mut LogTail::default(), folder.path(), 0)
            .into_iter()
            .flat_map(|slice| slice.bytes)
            .collect();
        assert_eq!(bytes, pattern(0, 30));
    }
}
