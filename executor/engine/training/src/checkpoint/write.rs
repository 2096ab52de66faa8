//! Writing of a checkpoint into a job's folder, and removal of old ones.

use super::checksums::sums;
use super::files::{sha256, sync_folder, write_durable};
use super::name::CheckpointName;
use super::parts::CheckpointPart;
use super::writeback::WritebackFile;
use super::{CheckpointError, Contents, FileSum, JobFolder, MANIFEST_FILE, Manifest, SUMS_FILE};
use muster_model::checkpoint::{Candidate, Written};
use muster_model::spec::CheckpointPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

impl JobFolder {
    /// Writes a checkpoint of `manifest.step` and sets `manifest.files`. The checkpoint is in place
    /// and on the disk when this returns.
    ///
    /// It is not read back, because that would read the page cache and not the disk. The loader
    /// verifies it.
    ///
    /// # Errors
    /// [`CheckpointError::Diverged`] for parameters that are not finite,
    /// [`CheckpointError::Fenced`] for a stale writer.
    pub fn write(
        &self,
        manifest: &mut Manifest,
        contents: &Contents,
    ) -> Result<Written, CheckpointError> {
        let name = CheckpointName::Step {
            step: manifest.step,
            revision: self.revision,
        }
        .to_string();
        self.write_as(&name, manifest, contents)
    }

    /// Writes the trained model into one file of any size. Returns its path relative to the
    /// checkpoint root.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_final(
        &self,
        manifest: &mut Manifest,
        contents: &Contents,
    ) -> Result<String, CheckpointError> {
        let name = CheckpointName::Final {
            revision: self.revision,
        }
        .to_string();
        manifest.part_bytes = usize::MAX;
        let written = self.write_as(&name, manifest, contents)?;
        Ok(format!("{}/{}", written.path, manifest.parts()[0].name))
    }

    fn write_as(
        &self,
        name: &str,
        manifest: &mut Manifest,
        contents: &Contents,
    ) -> Result<Written, CheckpointError> {
        let fresh = self.path().join(format!(".tmp-{name}"));
        let written = self.write_and_place(&fresh, name, manifest, contents);
        match &written {
            // A newer revision removes the files of a stale writer: then the fence is the reason,
            // and not the missing folder.
            Err(CheckpointError::Io { .. }) => drop(self.fence()?),
            // No later revision will sweep, because the job fails. A failed removal is less
            // important than this error.
            Err(CheckpointError::Diverged) => drop(remove(&fresh)),
            _ => {}
        }
        written
    }

    fn write_and_place(
        &self,
        fresh: &Path,
        name: &str,
        manifest: &mut Manifest,
        contents: &Contents,
    ) -> Result<Written, CheckpointError> {
        let folder = self.path();
        remove(fresh)?;
        fs::create_dir(fresh).map_err(CheckpointError::io("make", fresh))?;
        manifest.files = write_parts(fresh, &manifest.parts(), &contents.arenas())?;
        for (name, bytes) in &self.beside {
            write_durable(&fresh.join(name), bytes)?;
            manifest.files.insert(name.clone(), FileSum::of(bytes));
        }
        let (text, manifest_sha256) = manifest_text(manifest);
        write_durable(&fresh.join(MANIFEST_FILE), text.as_bytes())?;
        let listed = sums_text(&manifest_sha256, &manifest.files);
        write_durable(&fresh.join(SUMS_FILE), listed.as_bytes())?;
        sync_folder(fresh)?;

        let place = folder.join(name);
        let fence = self.fence()?;
        if place.exists() {
            // An earlier attempt succeeded, but its caller did not learn of the success.
            self.discard(name)?;
        }
        fs::rename(fresh, &place).map_err(CheckpointError::io("put in place", &place))?;
        sync_folder(&folder)?;
        drop(fence);
        let path = format!("{}/{name}", self.relative);
        Ok(manifest.written(path, text.len() as u64, manifest_sha256))
    }

    /// Removes all checkpoints except those that the policy keeps and the `spared` steps, and the
    /// remains of killed writers. Returns the steps without any checkpoint left, newest first.
    /// `known` caches manifests.
    ///
    /// # Errors
    /// [`CheckpointError::Fenced`] for a stale writer, [`CheckpointError::Io`].
    pub fn prune(
        &self,
        policy: &CheckpointPolicy,
        spared: &BTreeSet<u64>,
        known: &mut BTreeMap<String, Candidate>,
    ) -> Result<Vec<u64>, CheckpointError> {
        let _fence = self.fence()?;
        let entries = self.list()?;
        let candidates = self.candidates(known)?;
        let kept = policy.kept(candidates);
        let steps: BTreeSet<u64> = entries.iter().map(|entry| entry.step).collect();
        let pruned: Vec<u64> = steps
            .into_iter()
            .rev()
            .filter(|step| !kept.contains_key(step) && !spared.contains(step))
            .collect();
        for entry in entries.iter().filter(|entry| pruned.contains(&entry.step)) {
            self.discard(&entry.name)?;
            known.remove(&entry.name);
        }
        self.sweep()?;
        Ok(pruned)
    }

    /// Checkpoints with the measures that the retention rule uses. A checkpoint whose manifest
    /// cannot be read has none.
    pub(super) fn candidates(
        &self,
        known: &mut BTreeMap<String, Candidate>,
    ) -> Result<Vec<Candidate>, CheckpointError> {
        let mut entries = self.list()?;
        entries.sort_unstable();
        let mut out = Vec::with_capacity(entries.len());
        for entry in entries {
            let candidate = known.entry(entry.name.clone()).or_insert_with(|| {
                let path = self.path().join(&entry.name).join(MANIFEST_FILE);
                fs::read(path)
                    .ok()
                    .and_then(|text| serde_json::from_slice::<Manifest>(&text).ok())
                    .map_or_else(|| entry.unmeasured(), |manifest| manifest.candidate())
            });
            out.push(*candidate);
        }
        Ok(out)
    }

    /// Renames a folder and then removes it, so that a partly removed checkpoint is never used.
    fn discard(&self, name: &str) -> Result<(), CheckpointError> {
        let folder = self.path();
        let doomed = folder.join(format!(".tmp-pruned-{name}"));
        remove(&doomed)?;
        fs::rename(folder.join(name), &doomed)
            .map_err(CheckpointError::io("remove", &folder.join(name)))?;
        sync_folder(&folder)?;
        remove(&doomed)
    }

    /// Removes the remains of killed writers and removals.
    pub(super) fn sweep(&self) -> Result<(), CheckpointError> {
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

/// Removes a folder or file; not an error if it does not exist.
fn remove(path: &Path) -> Result<(), CheckpointError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(CheckpointError::io("remove", path)),
    }
}

/// Writes every part, syncs it while the next one is written, and computes the checksums of all
/// parts at the same time.
fn write_parts(
    folder: &Path,
    parts: &[CheckpointPart],
    arenas: &[&[f32]],
) -> Result<BTreeMap<String, FileSum>, CheckpointError> {
    thread::scope(|scope| {
        let summing = scope.spawn(|| sums(parts, arenas));
        let (to, written) = mpsc::channel::<(PathBuf, File)>();
        let syncing = scope.spawn(move || {
            written.into_iter().try_for_each(|(path, file)| {
                file.sync_all().map_err(CheckpointError::io("sync", &path))
            })
        });
        let writing = parts.iter().try_for_each(|part| {
            let path = folder.join(&part.name);
            let file = write_part(&path, part, arenas)?;
            // If the receiver has failed, its own error is reported below.
            let _ = to.send((path, file));
            Ok(())
        });
        drop(to);
        let synced = syncing.join().expect("syncing does not panic");
        let sums = summing.join().expect("summing does not panic");
        let sums = sums?;
        writing.and(synced).map(|()| sums)
    })
}

fn write_part(
    path: &Path,
    part: &CheckpointPart,
    arenas: &[&[f32]],
) -> Result<File, CheckpointError> {
    create_part(path, part, arenas).map_err(CheckpointError::io("write", path))
}

fn create_part(path: &Path, part: &CheckpointPart, arenas: &[&[f32]]) -> io::Result<File> {
    let mut file = WritebackFile::create(path)?;
    file.write_all(&part.header())?;
    for slice in part.slices(arenas) {
        file.write_all(slice)?;
    }
    Ok(file.into_file())
}

impl FileSum {
    /// Checksums of a file that is not a part.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.len() as u64,
            sha256: sha256(bytes),
            crc32: Vec::new(),
        }
    }
}

/// Content of `manifest.json`, and its SHA-256.
pub(super) fn manifest_text(manifest: &Manifest) -> (String, String) {
    let mut text = serde_json::to_string_pretty(manifest).expect("a manifest is plain data");
    text.push('\n');
    let sum = sha256(text.as_bytes());
    (text, sum)
}

/// Content of `SHA256SUMS`.
pub(super) fn sums_text(manifest_sha256: &str, files: &BTreeMap<String, FileSum>) -> String {
    let mut out = format!("{manifest_sha256}  {MANIFEST_FILE}\n");
    for (name, sum) in files {
        let _ = writeln!(out, "{}  {name}", sum.sha256);
    }
    out
}
