//! Unpacking of an image's layers, one after the other, into one folder.
//!
//! All files belong to the executor's user and are readable by everyone: the view of a task is
//! read-only, and the tenant may have the content. Set-user-ID bits and device files are dropped.

use super::error::ImageError;
use super::tree::{ImageTree, Position, parts, set_time};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use tar::{Archive, Entry, EntryType};

/// Maximum number of entries of all layers of an image.
const MAX_ENTRIES: u64 = 4_000_000;

/// Name of an entry that removes a file of the layers below.
const WHITEOUT: &[u8] = b".wh.";
/// Name of an entry that removes everything of the layers below from its folder.
const OPAQUE: &[u8] = b".wh..wh..opq";

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// An image that is being unpacked.
pub(super) struct Unpacking {
    tree: ImageTree,
    /// Bytes that the files may still have.
    left_bytes: u64,
    left_entries: u64,
    limit_bytes: u64,
}

impl Unpacking {
    /// # Errors
    /// If the folder does not exist.
    pub(super) fn into(folder: &Path, limit_bytes: u64) -> Result<Self, ImageError> {
        Ok(Self {
            tree: ImageTree::open(folder).map_err(ImageError::at(folder))?,
            left_bytes: limit_bytes,
            left_entries: MAX_ENTRIES,
            limit_bytes,
        })
    }

    /// Number of bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.limit_bytes - self.left_bytes
    }

    /// Applies a layer: a tar archive, plain or compressed by gzip or zstd.
    ///
    /// # Errors
    /// If it is no such archive, leads out of the folder, is too large, or the disk is full.
    pub(super) fn apply(&mut self, mut layer: File) -> Result<(), ImageError> {
        let mut start = [0; 4];
        let known = layer.read(&mut start).map_err(ImageError::Layer)?;
        layer.rewind().map_err(ImageError::Layer)?;
        let layer = BufReader::with_capacity(1 << 18, layer);
        if start[..known].starts_with(&GZIP) {
            self.apply_tar(flate2::bufread::MultiGzDecoder::new(layer))
        } else if start[..known].starts_with(&ZSTD) {
            self.apply_tar(zstd::Decoder::with_buffer(layer).map_err(ImageError::Layer)?)
        } else {
            self.apply_tar(layer)
        }
    }

    fn apply_tar(&mut self, content: impl Read) -> Result<(), ImageError> {
        let mut archive = Archive::new(content);
        let mut made = BTreeSet::new();
        for entry in archive.entries().map_err(ImageError::Layer)? {
            let mut entry = entry.map_err(ImageError::Layer)?;
            let left = self.left_entries.checked_sub(1);
            self.left_entries = left.ok_or(ImageError::ManyFiles(MAX_ENTRIES))?;
            let path = PathBuf::from(OsString::from_vec(entry.path_bytes().into_owned()));
            let parts = parts(&path).ok_or_else(|| ImageError::Escape(path.clone()))?;
            let Some(name) = parts.last() else {
                continue;
            };
            if let Some(removed) = name.as_bytes().strip_prefix(WHITEOUT) {
                let whited = self.white_out(&parts, removed, &made);
                whited.map_err(ImageError::entry(&path))?;
                let left = self.left_entries.checked_sub(self.tree.take_made());
                self.left_entries = left.ok_or(ImageError::ManyFiles(MAX_ENTRIES))?;
                continue;
            }
            self.add(&mut entry, &parts, &path)?;
            // One entry with a deep path is many folders.
            let left = self.left_entries.checked_sub(self.tree.take_made());
            self.left_entries = left.ok_or(ImageError::ManyFiles(MAX_ENTRIES))?;
            for depth in 1..=parts.len() {
                made.insert(parts[..depth].iter().collect());
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        parts: &[OsString],
        path: &Path,
    ) -> Result<(), ImageError> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::Char | EntryType::Block | EntryType::Fifo) {
            return Ok(());
        }
        let position = self.tree.position(parts).map_err(ImageError::entry(path))?;
        let mode = entry.header().mode().unwrap_or(0o644);
        match kind {
            EntryType::Directory => position
                .make_folder(mode & 0o777 | 0o755)
                .map_err(ImageError::entry(path)),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.add_file(entry, &position, path)
            }
            EntryType::Symlink => {
                let target = target(entry, path)?;
                position.remove().map_err(ImageError::entry(path))?;
                position
                    .link_to(target.as_os_str())
                    .map_err(ImageError::entry(path))
            }
            EntryType::Link => {
                let target = target(entry, path)?;
                let named = super::tree::parts(&target).filter(|named| !named.is_empty());
                let named = named.ok_or_else(|| ImageError::Escape(target.clone()))?;
                if named == parts {
                    return Ok(());
                }
                let file = self
                    .tree
                    .position(&named)
                    .map_err(ImageError::entry(path))?;
                position.remove().map_err(ImageError::entry(path))?;
                position
                    .hard_link_to(&file)
                    .map_err(ImageError::entry(path))
            }
            // Extensions that the reader applies itself, and kinds of other systems.
            _ => Ok(()),
        }
    }

    fn add_file(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        position: &Position,
        path: &Path,
    ) -> Result<(), ImageError> {
        let left = self.left_bytes.checked_sub(entry.size());
        self.left_bytes = left.ok_or(ImageError::Large(self.limit_bytes))?;
        position.remove().map_err(ImageError::entry(path))?;
        let mode = entry.header().mode().unwrap_or(0o644);
        let executable = if mode & 0o100 == 0 { 0 } else { 0o111 };
        let mut file = position
            .create(mode & 0o777 | 0o444 | executable)
            .map_err(ImageError::entry(path))?;
        io::copy(entry, &mut file).map_err(ImageError::entry(path))?;
        set_time(&file, entry.header().mtime().unwrap_or(0)).map_err(ImageError::entry(path))
    }

    fn white_out(
        &self,
        parts: &[OsString],
        removed: &[u8],
        made: &BTreeSet<PathBuf>,
    ) -> io::Result<()> {
        let above = &parts[..parts.len() - 1];
        let marker = parts.last().map(|name| name.as_bytes());
        if marker == Some(OPAQUE) {
            return self.empty(above, made);
        }
        // Other names with this beginning are those of one storage driver.
        if removed.starts_with(WHITEOUT) || matches!(removed, b"" | b"." | b"..") {
            return Ok(());
        }
        let mut parts = above.to_vec();
        parts.push(OsStr::from_bytes(removed).to_owned());
        self.tree.position(&parts)?.remove()
    }

    /// Removes what the layers below have put into a folder.
    fn empty(&self, folder: &[OsString], made: &BTreeSet<PathBuf>) -> io::Result<()> {
        let mut left = vec![folder.to_vec()];
        while let Some(folder) = left.pop() {
            if folder.is_empty() {
                // No tool hides the whole image.
                continue;
            }
            for name in self.tree.position(&folder)?.names()? {
                let mut parts = folder.clone();
                parts.push(name);
                if made.contains(&parts.iter().collect::<PathBuf>()) {
                    left.push(parts);
                } else {
                    self.tree.position(&parts)?.remove()?;
                }
            }
        }
        Ok(())
    }
}

fn target(entry: &Entry<'_, impl Read>, path: &Path) -> Result<PathBuf, ImageError> {
    let target = entry.link_name_bytes().filter(|target| !target.is_empty());
    let target = target.ok_or(io::Error::from(io::ErrorKind::InvalidData));
    let target = target.map_err(ImageError::entry(path))?;
    Ok(PathBuf::from(OsString::from_vec(target.into_owned())))
}
