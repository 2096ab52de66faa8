//! Durable writes of files, and their checksums.

use super::CheckpointError;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Creates `path` with `bytes` and syncs it to the disk.
pub fn write_durable(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    create_synced(path, bytes).map_err(CheckpointError::io("write", path))
}

fn create_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Syncs the entries of a folder (created, renamed or removed names) to the disk.
pub fn sync_folder(path: &Path) -> Result<(), CheckpointError> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(CheckpointError::io("sync", path))
}

/// Hexadecimal SHA-256 of bytes in memory.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        })
}
