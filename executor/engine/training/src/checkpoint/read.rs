//! Search and verification of the newest sound checkpoint.

use super::check::MAX_MANIFEST_BYTES;
use super::files::{sha256, sync_folder};
use super::load::{PartFile, load};
use super::name::CheckpointName;
use super::write::sums_text;
use super::{
    CheckpointArena, CheckpointError, Contents, JobFolder, MANIFEST_FILE, Manifest, SUMS_FILE,
};
use muster_model::checkpoint::{Candidate, Written};
use std::fs;
use std::io;
use std::path::Path;

/// Sound checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct SoundCheckpoint {
    pub manifest: Manifest,
    pub contents: Contents<CheckpointArena>,
    /// Report of its writer.
    pub written: Written,
}

/// Result of a search for the newest sound checkpoint.
#[derive(Debug)]
pub struct CheckpointSearch {
    pub newest: Option<SoundCheckpoint>,
    /// Steps and damage of newer checkpoints, newest first.
    pub damaged: Vec<(u64, CheckpointError)>,
}

/// Folder of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CheckpointEntry {
    pub step: u64,
    pub revision: u64,
    pub name: String,
}

impl JobFolder {
    /// Returns the newest sound checkpoint, and the damage of the newer ones. Each of these is set
    /// aside (renamed to `damaged-…`), so that it is neither tried again nor counted by the
    /// retention rule.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] if the disk fails, which does not mean that the checkpoint is
    /// damaged; [`CheckpointError::Fenced`].
    pub fn newest_sound(&self) -> Result<CheckpointSearch, CheckpointError> {
        newest_sound(
            self.list()?,
            |entry| (entry.step, entry.revision),
            |entry| self.load(entry),
            |entry| self.put_aside(entry),
        )
    }

    /// All checkpoints, in no particular order. A missing folder has none.
    pub(super) fn list(&self) -> Result<Vec<CheckpointEntry>, CheckpointError> {
        let folder = self.path();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(CheckpointError::io("list", &folder)(error)),
        };
        let mut out = Vec::new();
        for entry in entries {
            let entry = entry.map_err(CheckpointError::io("list", &folder))?;
            out.extend(entry.file_name().to_str().and_then(CheckpointEntry::parse));
        }
        Ok(out)
    }

    pub(super) fn load(&self, entry: &CheckpointEntry) -> Result<SoundCheckpoint, CheckpointError> {
        let folder = self.path().join(&entry.name);
        let sums_path = folder.join(SUMS_FILE);
        let listed = read(&sums_path)?;
        let manifest_path = folder.join(MANIFEST_FILE);
        let text = read(&manifest_path)?;
        let (manifest, sum) = agreed(entry, (&manifest_path, &text), (&sums_path, &listed))?;
        let contents = load(&manifest, &manifest_path, |name| {
            Ok(Box::new(PartFile::open(folder.join(name))?))
        })?;
        let path = format!("{}/{}", self.relative, entry.name);
        let written = manifest.written(path, text.len() as u64, sum);
        Ok(SoundCheckpoint {
            manifest,
            contents,
            written,
        })
    }

    fn put_aside(&self, entry: &CheckpointEntry) -> Result<(), CheckpointError> {
        let _fence = self.fence()?;
        let folder = self.path();
        let from = folder.join(&entry.name);
        let to = folder.join(format!("damaged-{}", entry.name));
        fs::rename(&from, &to).map_err(CheckpointError::io("put aside", &from))?;
        sync_folder(&folder)
    }
}

/// Loads the newest checkpoint of `listed` by (step, revision) that is sound. Newer damaged ones
/// are set aside.
pub(super) fn newest_sound<L>(
    mut listed: Vec<L>,
    age: impl Fn(&L) -> (u64, u64),
    load: impl Fn(&L) -> Result<SoundCheckpoint, CheckpointError>,
    put_aside: impl Fn(&L) -> Result<(), CheckpointError>,
) -> Result<CheckpointSearch, CheckpointError> {
    let mut damaged = Vec::new();
    listed.sort_unstable_by_key(&age);
    for entry in listed.iter().rev() {
        match load(entry) {
            Ok(found) => {
                let newest = Some(found);
                return Ok(CheckpointSearch { newest, damaged });
            }
            Err(damage @ CheckpointError::Damaged { .. }) => {
                put_aside(entry)?;
                damaged.push((age(entry).0, damage));
            }
            Err(other) => return Err(other),
        }
    }
    let newest = None;
    Ok(CheckpointSearch { newest, damaged })
}

/// Returns the manifest of a checkpoint and its SHA-256, if manifest, `SHA256SUMS` and the name of
/// the checkpoint agree.
pub(super) fn agreed(
    entry: &CheckpointEntry,
    (manifest_path, text): (&Path, &[u8]),
    (sums_path, listed): (&Path, &[u8]),
) -> Result<(Manifest, String), CheckpointError> {
    let sum = sha256(text);
    let manifest = Manifest::parse(manifest_path, text)?;
    if listed != sums_text(&sum, &manifest.files).as_bytes() {
        let what = "it does not agree with the manifest";
        return Err(CheckpointError::damaged(sums_path, what));
    }
    if (manifest.step, manifest.revision) != (entry.step, entry.revision) {
        let what = "it is of another step than its folder";
        return Err(CheckpointError::damaged(manifest_path, what));
    }
    Ok((manifest, sum))
}

impl CheckpointEntry {
    pub fn parse(name: &str) -> Option<Self> {
        let CheckpointName::Step { step, revision } = CheckpointName::parse(name)? else {
            return None;
        };
        Some(Self {
            step,
            revision,
            name: name.to_owned(),
        })
    }

    pub fn unmeasured(&self) -> Candidate {
        Candidate {
            step: self.step,
            loss: None,
            accuracy: None,
        }
    }
}

impl Manifest {
    /// Parses the text of a manifest.
    pub(super) fn parse(path: &Path, text: &[u8]) -> Result<Self, CheckpointError> {
        #[derive(serde::Deserialize)]
        struct Format {
            format: u32,
        }
        let Format { format } = serde_json::from_slice(text)
            .map_err(|error| CheckpointError::damaged(path, error.to_string()))?;
        if !(Self::OLDEST_FORMAT..=Self::FORMAT).contains(&format) {
            let what = format!(
                "its format is {format}, this release reads {} to {}",
                Self::OLDEST_FORMAT,
                Self::FORMAT
            );
            return Err(CheckpointError::Mismatch {
                path: path.to_owned(),
                what,
            });
        }
        let manifest: Self = serde_json::from_slice(text)
            .map_err(|error| CheckpointError::damaged(path, error.to_string()))?;
        match manifest.check() {
            Ok(()) => Ok(manifest),
            Err(what) => Err(CheckpointError::damaged(path, what)),
        }
    }
}

/// Reads a file. A missing file means that the checkpoint is damaged; other errors are errors of
/// the disk.
fn read(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    let metadata = fs::metadata(path).map_err(|error| read_error(path, error))?;
    let bytes = metadata.len();
    if bytes > MAX_MANIFEST_BYTES {
        let what = format!("it has {bytes} bytes, more than any manifest");
        return Err(CheckpointError::damaged(path, what));
    }
    fs::read(path).map_err(|error| read_error(path, error))
}

fn read_error(path: &Path, error: io::Error) -> CheckpointError {
    match error.kind() {
        io::ErrorKind::NotFound => CheckpointError::damaged(path, "it is missing"),
        _ => CheckpointError::io("read", path)(error),
    }
}
