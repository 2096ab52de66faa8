//! Writing a checkpoint, and removing old ones.

use super::files::{sha256, sum, sync_folder, write_durable};
use super::{
    CheckpointError, FileSum, FileSums, JobFolder, MANIFEST_FILE, MODEL_FILE, Manifest, NamedBlock,
    OPTIMIZER_FILE, SUMS_FILE,
};
use muster_model::checkpoint::Written;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The tensors of a checkpoint, over the flat arena.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Contents {
    pub parameters: Vec<f32>,
    /// One arena per value that the optimizer keeps of each parameter, in the order of the manifest's `state_planes`.
    pub state: Vec<Vec<f32>>,
}

impl JobFolder {
    /// Writes a checkpoint of `manifest.step`; `manifest.files` is filled in here. It is in place, on the disk and read back when
    /// this returns.
    ///
    /// # Errors
    /// [`CheckpointError::Diverged`] for parameters that are not finite, [`CheckpointError::Fenced`] for a stale writer.
    pub fn write(
        &self,
        manifest: &mut Manifest,
        contents: &Contents,
    ) -> Result<Written, CheckpointError> {
        let name = format!("step-{:010}-r{}", manifest.step, self.revision);
        self.write_as(&name, manifest, contents)
    }

    /// Writes the trained model. The path of its `model.safetensors`, relative to the checkpoint root.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_final(
        &self,
        manifest: &mut Manifest,
        contents: &Contents,
    ) -> Result<String, CheckpointError> {
        let name = format!("final-r{}", self.revision);
        let written = self.write_as(&name, manifest, contents)?;
        Ok(format!("{}/{MODEL_FILE}", written.path))
    }

    fn write_as(
        &self,
        name: &str,
        manifest: &mut Manifest,
        contents: &Contents,
    ) -> Result<Written, CheckpointError> {
        if !contents.parameters.iter().all(|value| value.is_finite()) {
            return Err(CheckpointError::Diverged);
        }
        let folder = self.path();
        let fresh = folder.join(format!(".tmp-{name}"));
        remove(&fresh)?;
        fs::create_dir(&fresh).map_err(CheckpointError::io("make", &fresh))?;
        manifest.files = FileSums {
            model: write_tensors(&fresh, MODEL_FILE, model_tensors(manifest, contents))?,
            optimizer: write_tensors(&fresh, OPTIMIZER_FILE, state_tensors(manifest, contents))?,
        };
        let manifest_sha256 = write_manifest(&fresh, manifest)?;
        sync_folder(&fresh)?;
        let bytes = read_back(&fresh, manifest, &manifest_sha256)?;

        let place = folder.join(name);
        let fence = self.fence()?;
        fs::rename(&fresh, &place).map_err(CheckpointError::io("put in place", &place))?;
        sync_folder(&folder)?;
        drop(fence);
        Ok(Written {
            step: manifest.step,
            epoch: manifest.epoch(),
            revision: self.revision,
            path: format!("{}/{name}", self.relative),
            bytes,
            manifest_sha256,
        })
    }

    /// Removes all checkpoints but those of the newest `keep` steps, and what a killed writer left behind. The steps of which
    /// nothing is left.
    ///
    /// # Errors
    /// [`CheckpointError::Fenced`] for a stale writer, [`CheckpointError::Io`].
    pub fn prune(&self, keep: u32) -> Result<Vec<u64>, CheckpointError> {
        let _fence = self.fence()?;
        let entries = self.list()?;
        let steps: BTreeSet<u64> = entries.iter().map(|entry| entry.step).collect();
        let pruned: Vec<u64> = steps.into_iter().rev().skip(keep.max(1) as usize).collect();
        for entry in entries.iter().filter(|entry| pruned.contains(&entry.step)) {
            self.discard(&entry.name)?;
        }
        self.sweep()?;
        Ok(pruned)
    }

    /// Takes a folder out of the list in one step, then removes it, so that a half-removed one is never taken for a checkpoint.
    fn discard(&self, name: &str) -> Result<(), CheckpointError> {
        let folder = self.path();
        let doomed = folder.join(format!(".tmp-pruned-{name}"));
        remove(&doomed)?;
        fs::rename(folder.join(name), &doomed)
            .map_err(CheckpointError::io("remove", &folder.join(name)))?;
        sync_folder(&folder)?;
        remove(&doomed)
    }

    fn sweep(&self) -> Result<(), CheckpointError> {
        let folder = self.path();
        let entries = fs::read_dir(&folder).map_err(CheckpointError::io("list", &folder))?;
        for entry in entries {
            let entry = entry.map_err(CheckpointError::io("list", &folder))?;
            if entry.file_name().to_string_lossy().starts_with(".tmp-") {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// Removes a folder or file; that there is none is well.
fn remove(path: &Path) -> Result<(), CheckpointError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(CheckpointError::io("remove", path)),
    }
}

type Tensors<'a> = Vec<(String, TensorView<'a>)>;

fn model_tensors<'a>(manifest: &Manifest, contents: &'a Contents) -> Tensors<'a> {
    manifest
        .blocks
        .iter()
        .map(|block| (block.name.clone(), view(block, &contents.parameters)))
        .collect()
}

fn state_tensors<'a>(manifest: &Manifest, contents: &'a Contents) -> Tensors<'a> {
    assert_eq!(
        manifest.state_planes.len(),
        contents.state.len(),
        "one arena per plane"
    );
    let planes = manifest.state_planes.iter().zip(&contents.state);
    planes
        .flat_map(|(plane, arena)| {
            manifest
                .blocks
                .iter()
                .map(move |block| (state_name(&block.name, plane), view(block, arena)))
        })
        .collect()
}

/// The name of a block's optimizer state.
pub(super) fn state_name(block: &str, plane: &str) -> String {
    format!("{block}.{plane}")
}

fn view<'a>(block: &NamedBlock, arena: &'a [f32]) -> TensorView<'a> {
    let values = &arena[block.offset..block.offset + block.len];
    TensorView::new(
        Dtype::F32,
        block.shape.clone(),
        bytemuck::cast_slice(values),
    )
    .expect("a block's length is the product of its shape")
}

fn write_tensors(
    folder: &Path,
    name: &str,
    tensors: Tensors<'_>,
) -> Result<FileSum, CheckpointError> {
    let path = folder.join(name);
    let about = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let bytes = safetensors::serialize(tensors, Some(about))
        .map_err(|error| CheckpointError::io("write", &path)(std::io::Error::other(error)))?;
    write_durable(&path, &bytes)?;
    Ok(FileSum {
        bytes: bytes.len() as u64,
        sha256: sha256(&bytes),
    })
}

/// Writes the manifest and the list of sums; the manifest's own.
fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<String, CheckpointError> {
    let mut text = serde_json::to_string_pretty(manifest).expect("a manifest is plain data");
    text.push('\n');
    write_durable(&folder.join(MANIFEST_FILE), text.as_bytes())?;
    let own = sha256(text.as_bytes());
    let sums = sums_text(&own, &manifest.files);
    write_durable(&folder.join(SUMS_FILE), sums.as_bytes())?;
    Ok(own)
}

/// The content of `SHA256SUMS`.
pub(super) fn sums_text(manifest_sha256: &str, files: &FileSums) -> String {
    format!(
        "{manifest_sha256}  {MANIFEST_FILE}\n{}  {MODEL_FILE}\n{}  {OPTIMIZER_FILE}\n",
        files.model.sha256, files.optimizer.sha256
    )
}

/// Reads every file again before it counts as written. The bytes of all.
fn read_back(
    folder: &Path,
    manifest: &Manifest,
    manifest_sha256: &str,
) -> Result<u64, CheckpointError> {
    let expected = [
        (MODEL_FILE, manifest.files.model.sha256.as_str()),
        (OPTIMIZER_FILE, manifest.files.optimizer.sha256.as_str()),
        (MANIFEST_FILE, manifest_sha256),
    ];
    let mut total = 0;
    for (name, sha256) in expected {
        let path = folder.join(name);
        let (bytes, found) = sum(&path)?;
        if found != sha256 {
            return Err(CheckpointError::damaged(&path, "it reads back differently"));
        }
        total += bytes;
    }
    Ok(total)
}
