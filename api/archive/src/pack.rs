//! Packing of a folder.

use crate::{ArchiveDigest, ArchiveError, MAX_ENTRIES, MAX_UNPACKED_BYTES};
use ignore::{DirEntry, WalkBuilder};
use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Level of zstd. Higher ones take much longer and save little for source code.
const LEVEL: i32 = 3;

/// Modification time of all files: 2020-01-01. Zip files, and so Python wheels, cannot state times
/// before 1980.
const MODIFIED_UNIX_S: u64 = 1_577_836_800;

/// Names that are never packed: histories of version control, and caches that programs write again.
const NEVER: [&str; 8] = [
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
];

/// Number of files that an error about the size names.
const NAMED_FILES: usize = 3;

/// An archive in memory.
#[derive(Debug)]
pub struct Packed {
    /// The compressed archive.
    pub bytes: Vec<u8>,
    /// Its SHA-256 in hexadecimal digits.
    pub sha256: String,
    /// Number of files and links.
    pub files: u32,
    /// Size of the files together, in bytes.
    pub unpacked_bytes: u64,
}

/// A file, folder or link of the folder.
struct Entry {
    path: PathBuf,
    /// Path relative to the folder.
    name: PathBuf,
    kind: EntryType,
    bytes: u64,
    is_executable: bool,
}

/// Packs a folder without the files that `.gitignore`, `.ignore` and `.musterignore` exclude,
/// without version control, caches of Python and virtual environments.
///
/// # Errors
/// [`ArchiveError`] if a file cannot be read, or the folder exceeds a limit.
pub fn pack(folder: &Path) -> Result<Packed, ArchiveError> {
    let entries = entries(folder)?;
    let files = entries
        .iter()
        .filter(|entry| entry.kind != EntryType::Directory)
        .count();
    if files == 0 {
        let path = folder.to_owned();
        return Err(ArchiveError::Empty { path });
    }
    let unpacked_bytes = entries.iter().map(|entry| entry.bytes).sum();
    if unpacked_bytes > MAX_UNPACKED_BYTES {
        return Err(ArchiveError::Large {
            path: folder.to_owned(),
            bytes: unpacked_bytes,
            largest: largest(&entries),
        });
    }
    let encoder = zstd::Encoder::new(Vec::new(), LEVEL).map_err(ArchiveError::Encode)?;
    let mut archive = Builder::new(encoder);
    for entry in &entries {
        append(&mut archive, entry)?;
    }
    let encoder = archive.into_inner().map_err(ArchiveError::Encode)?;
    let bytes = encoder.finish().map_err(ArchiveError::Encode)?;
    let mut digest = ArchiveDigest::default();
    digest.update(&bytes);
    Ok(Packed {
        sha256: digest.hex(),
        bytes,
        files: u32::try_from(files).expect("at most MAX_ENTRIES"),
        unpacked_bytes,
    })
}

/// Returns the entries in the order of their names, each folder before its content.
fn entries(folder: &Path) -> Result<Vec<Entry>, ArchiveError> {
    let walk = WalkBuilder::new(folder)
        .hidden(false)
        .require_git(false)
        .add_custom_ignore_filename(".musterignore")
        .sort_by_file_name(Ord::cmp)
        .filter_entry(|entry| entry.depth() == 0 || !is_excluded(entry))
        .build();
    let mut entries = Vec::new();
    for found in walk {
        let found = found.map_err(ArchiveError::List)?;
        if found.depth() == 0 {
            continue;
        }
        entries.extend(entry(folder, &found)?);
        if entries.len() > MAX_ENTRIES {
            let path = folder.to_owned();
            return Err(ArchiveError::ManyFiles { path });
        }
    }
    Ok(entries)
}

fn is_excluded(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    NEVER.iter().any(|never| name == *never)
        // A virtual environment contains absolute paths and does not work elsewhere.
        || entry.path().join("pyvenv.cfg").is_file()
}

/// Returns `None` for sockets, pipes and devices.
fn entry(folder: &Path, found: &DirEntry) -> Result<Option<Entry>, ArchiveError> {
    let metadata = found.metadata().map_err(ArchiveError::List)?;
    let kind = if metadata.is_dir() {
        EntryType::Directory
    } else if metadata.is_symlink() {
        EntryType::Symlink
    } else if metadata.is_file() {
        EntryType::Regular
    } else {
        return Ok(None);
    };
    let name = found.path().strip_prefix(folder);
    Ok(Some(Entry {
        path: found.path().to_owned(),
        name: name.expect("the walk stays in the folder").to_owned(),
        kind,
        bytes: if kind == EntryType::Regular {
            metadata.len()
        } else {
            0
        },
        is_executable: metadata.permissions().mode() & 0o111 != 0,
    }))
}

fn append(archive: &mut Builder<impl io::Write>, entry: &Entry) -> Result<(), ArchiveError> {
    let read = |source| ArchiveError::Read {
        path: entry.path.clone(),
        source,
    };
    let mut header = Header::new_gnu();
    header.set_entry_type(entry.kind);
    header.set_mtime(MODIFIED_UNIX_S);
    header.set_size(entry.bytes);
    let is_open = entry.kind == EntryType::Directory || entry.is_executable;
    header.set_mode(if is_open { 0o755 } else { 0o644 });
    match entry.kind {
        EntryType::Symlink => {
            let target = std::fs::read_link(&entry.path).map_err(read)?;
            archive.append_link(&mut header, &entry.name, target)
        }
        EntryType::Directory => archive.append_data(&mut header, &entry.name, io::empty()),
        _ => {
            let file = File::open(&entry.path).map_err(read)?;
            // A file that grows meanwhile keeps the length of its header.
            let mut content = file.take(entry.bytes);
            let appended = archive.append_data(&mut header, &entry.name, &mut content);
            if content.limit() > 0 {
                let shorter = io::Error::other("it became shorter while it was read");
                return Err(read(shorter));
            }
            appended
        }
    }
    .map_err(ArchiveError::Encode)
}

fn largest(entries: &[Entry]) -> String {
    let mut by_size: Vec<_> = entries.iter().collect();
    by_size.sort_by_key(|entry| Reverse(entry.bytes));
    let named = by_size.iter().take(NAMED_FILES);
    let named: Vec<_> = named
        .map(|entry| format!("{} ({} bytes)", entry.name.display(), entry.bytes))
        .collect();
    named.join(", ")
}
