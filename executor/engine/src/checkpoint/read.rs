//! Finding and verifying the newest checkpoint that is sound.

use super::files::{sha256, sync_folder};
use super::write::{state_name, sums_text};
use super::{
    CheckpointError, Contents, FileSum, JobFolder, MANIFEST_FILE, MODEL_FILE, Manifest, NamedBlock,
    OPTIMIZER_FILE, SUMS_FILE,
};
use muster_model::checkpoint::Written;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use std::fs;
use std::io;
use std::path::Path;

/// A sound checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub manifest: Manifest,
    pub contents: Contents,
    /// As its writer reported it.
    pub written: Written,
}

/// What a search for the newest sound checkpoint came to.
#[derive(Debug)]
pub struct Search {
    pub newest: Option<Found>,
    /// Step and damage of those newer than it, newest first.
    pub damaged: Vec<(u64, CheckpointError)>,
}

/// A checkpoint's folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub step: u64,
    pub revision: u64,
    pub name: String,
}

impl JobFolder {
    /// The newest sound checkpoint, and what was wrong with those newer than it: each of these is put aside (renamed to
    /// `damaged-…`), so that it is neither tried again nor counted among those to keep.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] when the disk fails (which says nothing about the checkpoint), [`CheckpointError::Fenced`].
    pub fn newest_sound(&self) -> Result<Search, CheckpointError> {
        let mut damaged = Vec::new();
        let mut entries = self.list()?;
        entries.sort_unstable();
        for entry in entries.into_iter().rev() {
            match self.load(&entry) {
                Ok(found) => {
                    return Ok(Search {
                        newest: Some(found),
                        damaged,
                    });
                }
                Err(damage @ CheckpointError::Damaged { .. }) => {
                    self.put_aside(&entry)?;
                    damaged.push((entry.step, damage));
                }
                Err(other) => return Err(other),
            }
        }
        Ok(Search {
            newest: None,
            damaged,
        })
    }

    /// All checkpoints, in no order. A missing folder has none.
    pub(super) fn list(&self) -> Result<Vec<Entry>, CheckpointError> {
        let folder = self.path();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(CheckpointError::io("list", &folder)(error)),
        };
        let mut out = Vec::new();
        for entry in entries {
            let entry = entry.map_err(CheckpointError::io("list", &folder))?;
            out.extend(entry.file_name().to_str().and_then(Entry::parse));
        }
        Ok(out)
    }

    fn load(&self, entry: &Entry) -> Result<Found, CheckpointError> {
        let folder = self.path().join(&entry.name);
        let sums = read(&folder.join(SUMS_FILE))?;
        let manifest_path = folder.join(MANIFEST_FILE);
        let text = read(&manifest_path)?;
        let manifest_sha256 = sha256(&text);
        let listed = format!("{manifest_sha256}  {MANIFEST_FILE}\n");
        if !sums.starts_with(listed.as_bytes()) {
            return Err(CheckpointError::damaged(
                &manifest_path,
                "its SHA-256 is not the one listed",
            ));
        }
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|error| CheckpointError::damaged(&manifest_path, error.to_string()))?;
        if manifest.format != Manifest::FORMAT {
            return Err(CheckpointError::Mismatch {
                path: manifest_path,
                what: format!(
                    "its format is {}, this release reads {}",
                    manifest.format,
                    Manifest::FORMAT
                ),
            });
        }
        if (manifest.step, manifest.revision) != (entry.step, entry.revision) {
            return Err(CheckpointError::damaged(
                &manifest_path,
                "it is of another step than its folder",
            ));
        }
        if sums != sums_text(&manifest_sha256, &manifest.files).as_bytes() {
            let path = folder.join(SUMS_FILE);
            return Err(CheckpointError::damaged(
                &path,
                "it does not agree with the manifest",
            ));
        }
        let model = read_summed(&folder.join(MODEL_FILE), &manifest.files.model)?;
        let optimizer = read_summed(&folder.join(OPTIMIZER_FILE), &manifest.files.optimizer)?;
        let contents = Contents {
            parameters: arena(
                &folder.join(MODEL_FILE),
                &model,
                &manifest.blocks,
                str::to_owned,
            )?,
            state: manifest
                .state_planes
                .iter()
                .map(|plane| {
                    arena(
                        &folder.join(OPTIMIZER_FILE),
                        &optimizer,
                        &manifest.blocks,
                        |block| state_name(block, plane),
                    )
                })
                .collect::<Result<_, _>>()?,
        };
        let written = Written {
            step: manifest.step,
            epoch: manifest.epoch(),
            revision: manifest.revision,
            path: format!("{}/{}", self.relative, entry.name),
            bytes: (text.len() + model.len() + optimizer.len()) as u64,
            manifest_sha256,
        };
        Ok(Found {
            manifest,
            contents,
            written,
        })
    }

    fn put_aside(&self, entry: &Entry) -> Result<(), CheckpointError> {
        let _fence = self.fence()?;
        let folder = self.path();
        let from = folder.join(&entry.name);
        let to = folder.join(format!("damaged-{}", entry.name));
        fs::rename(&from, &to).map_err(CheckpointError::io("put aside", &from))?;
        sync_folder(&folder)
    }
}

impl Entry {
    fn parse(name: &str) -> Option<Self> {
        let (step, revision) = name.strip_prefix("step-")?.split_once("-r")?;
        Some(Self {
            step: step.parse().ok()?,
            revision: revision.parse().ok()?,
            name: name.to_owned(),
        })
    }
}

/// A missing file is damage to the checkpoint; every other failure is the disk's.
fn read(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    fs::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CheckpointError::damaged(path, "it is missing"),
        _ => CheckpointError::io("read", path)(error),
    })
}

fn read_summed(path: &Path, sum: &FileSum) -> Result<Vec<u8>, CheckpointError> {
    let bytes = read(path)?;
    if bytes.len() as u64 != sum.bytes {
        let what = format!(
            "it has {} bytes, the manifest says {}",
            bytes.len(),
            sum.bytes
        );
        return Err(CheckpointError::damaged(path, what));
    }
    if sha256(&bytes) != sum.sha256 {
        return Err(CheckpointError::damaged(
            path,
            "its SHA-256 is not the manifest's",
        ));
    }
    Ok(bytes)
}

/// The flat arena of all blocks, from the tensors named by `name`.
fn arena(
    path: &Path,
    bytes: &[u8],
    blocks: &[NamedBlock],
    name: impl Fn(&str) -> String,
) -> Result<Vec<f32>, CheckpointError> {
    let damaged = |what: String| CheckpointError::damaged(path, what);
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| damaged(error.to_string()))?;
    let total = blocks
        .iter()
        .map(|block| block.offset + block.len)
        .max()
        .unwrap_or(0);
    let mut out = vec![0.0f32; total];
    for block in blocks {
        let name = name(&block.name);
        let tensor = tensors
            .tensor(&name)
            .map_err(|_| damaged(format!("no tensor {name}")))?;
        let place = &mut out[block.offset..block.offset + block.len];
        let into: &mut [u8] = bytemuck::cast_slice_mut(place);
        if tensor.dtype() != Dtype::F32
            || tensor.shape() != block.shape
            || tensor.data().len() != into.len()
        {
            return Err(damaged(format!(
                "tensor {name} is not what the manifest says"
            )));
        }
        into.copy_from_slice(tensor.data());
    }
    Ok(out)
}
