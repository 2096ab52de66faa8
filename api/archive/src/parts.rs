//! Parts of a tar file that is sent while its files are read.

use std::io;
use tar::{Builder, EntryType, Header};

/// Size of the blocks of a tar file.
pub(crate) const BLOCK_BYTES: u64 = 512;

/// End of a tar file.
pub const TAR_END: [u8; 1024] = [0; 1024];

/// Returns the bytes before the content of a regular file. `path` is relative and has no `..`;
/// `mode` has the permission bits.
///
/// # Errors
/// If a tar file cannot contain the path.
pub fn tar_head(path: &str, bytes: u64, mode: u32, modified_unix_s: u64) -> io::Result<Vec<u8>> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(mode);
    header.set_size(bytes);
    header.set_mtime(modified_unix_s);
    let mut builder = Builder::new(Vec::new());
    // The content follows later. A long path gets its own entry before the header.
    builder.append_data(&mut header, path, io::empty())?;
    Ok(builder.get_ref().clone())
}

/// Returns the number of zeros that follow a content.
#[must_use]
pub fn tar_padding(bytes: u64) -> usize {
    usize::try_from(bytes.next_multiple_of(BLOCK_BYTES) - bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn parts_are_a_tar_file() {
        let long = format!("{}/größe.txt", "d".repeat(400));
        let mut bytes = Vec::new();
        for (path, content) in [("a.txt", "x".repeat(512)), (&long, "y".to_owned())] {
            let length = content.len() as u64;
            bytes.extend(tar_head(path, length, 0o644, 7).expect("a head"));
            bytes.extend(content.as_bytes());
            bytes.extend(vec![0; tar_padding(length)]);
        }
        bytes.extend(TAR_END);
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut found = Vec::new();
        for entry in archive.entries().expect("entries") {
            let mut entry = entry.expect("an entry");
            let path = entry.path().expect("a path").display().to_string();
            let mut content = String::new();
            entry.read_to_string(&mut content).expect("read");
            assert_eq!(entry.header().mtime().expect("a time"), 7);
            found.push((path, content.len()));
        }
        assert_eq!(found, [("a.txt".to_owned(), 512), (long, 1)]);
        assert!(tar_head("../a", 0, 0o644, 0).is_err());
    }
}
