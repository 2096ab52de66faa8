//! Unpacking of an archive.

use crate::{ArchiveError, MAX_ENTRIES, MAX_UNPACKED_BYTES};
use std::io::Read;
use std::path::Path;
use tar::{Archive, EntryType};

/// Bytes of an archive beside the content of its files: headers and padding.
const MAX_HEADER_BYTES: u64 = (MAX_ENTRIES as u64) * 4096;

/// Unpacks an archive into an existing folder, as the user of this process. Existing files of the
/// same names are replaced.
///
/// # Errors
/// [`ArchiveError::Decode`] if the content is no archive, or a file cannot be written.
/// [`ArchiveError::Entry`] for a path that leads out of the folder, or an entry that is no file,
/// folder or link. [`ArchiveError::Bomb`] beyond a limit. Earlier entries are then written.
pub fn unpack(archive: impl Read, folder: &Path) -> Result<(), ArchiveError> {
    let decoder = zstd::Decoder::new(archive).map_err(ArchiveError::Decode)?;
    let bounded = decoder.take(MAX_UNPACKED_BYTES + MAX_HEADER_BYTES);
    let mut archive = Archive::new(bounded);
    archive.set_preserve_permissions(true);
    let (mut entries, mut bytes) = (0, 0);
    for entry in archive.entries().map_err(ArchiveError::Decode)? {
        let mut entry = entry.map_err(ArchiveError::Decode)?;
        entries += 1;
        bytes += entry.size();
        if entries > MAX_ENTRIES || bytes > MAX_UNPACKED_BYTES {
            return Err(ArchiveError::Bomb);
        }
        let refused = |path: &Path, what| ArchiveError::Entry {
            path: path.display().to_string(),
            what,
        };
        let path = entry.path().map_err(ArchiveError::Decode)?.into_owned();
        let kind = entry.header().entry_type();
        if !matches!(
            kind,
            EntryType::Regular | EntryType::Directory | EntryType::Symlink
        ) {
            return Err(refused(&path, "is no file, folder or symbolic link"));
        }
        // The library neither follows a link out of the folder nor writes above it.
        if !entry.unpack_in(folder).map_err(ArchiveError::Decode)? {
            return Err(refused(&path, "leads out of the folder"));
        }
    }
    Ok(())
}

/// Unpacks the regular files of an archive without compression, such as [`crate::TarStream`], into
/// an existing folder. Returns the size of the files together.
///
/// # Errors
/// As [`unpack`]; [`ArchiveError::Bomb`] beyond `most_files` files. Links are refused.
pub fn unpack_files(
    archive: impl Read,
    folder: &Path,
    most_files: usize,
) -> Result<u64, ArchiveError> {
    let mut archive = Archive::new(archive);
    let (mut files, mut bytes) = (0, 0);
    for entry in archive.entries().map_err(ArchiveError::Decode)? {
        let mut entry = entry.map_err(ArchiveError::Decode)?;
        files += 1;
        if files > most_files {
            return Err(ArchiveError::Bomb);
        }
        let refused = |path: &Path, what| ArchiveError::Entry {
            path: path.display().to_string(),
            what,
        };
        let path = entry.path().map_err(ArchiveError::Decode)?.into_owned();
        if entry.header().entry_type() != EntryType::Regular {
            return Err(refused(&path, "is no file"));
        }
        if !entry.unpack_in(folder).map_err(ArchiveError::Decode)? {
            return Err(refused(&path, "leads out of the folder"));
        }
        bytes += entry.size();
    }
    Ok(bytes)
}
