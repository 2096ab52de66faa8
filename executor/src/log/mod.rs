//! A task's log on disk. `log` grows. Full parts are named `log.<offset of their first byte>`, and
//! the oldest are removed.
//!
//! Offsets count all bytes of the task's output. The names of the parts contain them, so the folder
//! alone determines them at any moment: `log` begins at the end of the newest full part. The shim
//! writes the log, the daemon reads it.

mod last_line;
mod rotate;
mod tail;

pub use last_line::LastLine;
pub use rotate::{RotatingLog, Rotation};
pub use tail::{LogTail, LogTailSlice};

use crate::opener::FolderHandle;
use std::ffi::{OsStr, OsString};
use std::io;

/// File name of the growing part.
pub(crate) const CURRENT: &str = "log";
/// Maximum offset: the scheduler stores offsets as signed integers. Files with larger ones are
/// ignored.
const MOST_BYTES: u64 = i64::MAX as u64;

/// A full part; it does not change any more.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LogPart {
    offset: u64,
    bytes: u64,
    name: OsString,
}

impl LogPart {
    fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// Returns the name of a full part. Leading zeros sort names by offset.
fn full(offset: u64) -> OsString {
    format!("log.{offset:020}").into()
}

fn offset_of(name: &OsStr) -> Option<u64> {
    name.to_str()?.strip_prefix("log.")?.parse().ok()
}

/// Returns the full parts, oldest first. Only regular files count.
fn parts(folder: &FolderHandle) -> io::Result<Vec<LogPart>> {
    let mut parts = Vec::new();
    for name in folder.names()? {
        let Some(offset) = offset_of(&name) else {
            continue;
        };
        match folder.metadata(&name) {
            Ok(found) if !found.is_file() => {}
            Ok(found) => parts.push(LogPart {
                offset,
                bytes: found.len(),
                name,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    parts.retain(|part| {
        let end = part.offset.checked_add(part.bytes);
        end.is_some_and(|end| end <= MOST_BYTES)
    });
    parts.sort_by_key(|part| part.offset);
    Ok(parts)
}

/// Returns the offset at which the growing part begins.
fn current_offset(parts: &[LogPart]) -> u64 {
    parts.last().map_or(0, LogPart::end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn pattern(from: u64, count: u64) -> Vec<u8> {
        (from..from + count)
            .map(|position| u8::try_from(position % 251).expect("small"))
            .collect()
    }

    fn drain(tail: &mut LogTail, folder: &Path, mut offset: u64) -> Vec<LogTailSlice> {
        let mut slices = Vec::new();
        while let Some(slice) = tail.read(folder, offset, 7).expect("read") {
            offset = slice.offset + slice.bytes.len() as u64;
            slices.push(slice);
        }
        slices
    }

    #[test]
    fn timely_reader_receives_every_byte_once_across_rotations() {
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
            parts(&FolderHandle::itself(folder.path()).expect("there"))
                .expect("listed")
                .len(),
            2,
            "and the growing one makes three"
        );
    }

    #[test]
    fn late_reader_continues_at_the_oldest_part_and_its_offset() {
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
    fn reopened_log_continues_at_its_end() {
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

    #[test]
    fn link_in_place_of_the_log_or_a_part_is_not_read() {
        let folder = tempfile::tempdir().expect("folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("secret"), "only ours").expect("written");
        std::fs::write(at(CURRENT), "up").expect("written");
        let mut tail = LogTail::default();
        assert_eq!(drain(&mut tail, folder.path(), 0).len(), 1);
        std::fs::remove_file(at(CURRENT)).expect("removed");
        for target in ["secret", "nothing"] {
            std::os::unix::fs::symlink(at(target), at(CURRENT)).expect("linked");
            for error in [
                tail.read(folder.path(), 2, 7).expect_err("a link"),
                LogTail::default()
                    .read(folder.path(), 0, 7)
                    .expect_err("a link"),
            ] {
                assert!(error.to_string().contains("log is a link"), "{error}");
            }
            std::fs::remove_file(at(CURRENT)).expect("removed");
        }
        std::os::unix::fs::symlink(at("secret"), at("log.00000000000000000002")).expect("linked");
        std::fs::write(at("log.18446744073709551615"), "x").expect("written");
        std::fs::write(at(CURRENT), "upon").expect("written");
        let slices = drain(&mut tail, folder.path(), 2);
        assert_eq!(slices.len(), 1, "{slices:?}");
        assert_eq!((slices[0].offset, &slices[0].bytes[..]), (2, &b"on"[..]));
    }
}
