//! Checkpoints of programs: measured in the checkpoint folder, uploaded to a bucket as one tar file
//! each, recorded by the scheduler, and pruned.

use super::checkpoint_client::{Beginning, CheckpointAdmission};
use super::declared::{DeclaredCheckpoints, FilesFate, overlap};
use super::error::ArtifactError;
use super::in_flight::BytesInFlight;
use super::object::{self, ObjectWriter, Pieces, aside, pieces_of};
use super::store::{ArtifactStore, PAUSES_MS, fill};
use super::walk::{FileStamp, FoundFile, open_inner, open_top};
use crate::clock;
use crate::folder::NodeTaskFolder;
use crate::gc;
use crate::opener::{FolderHandle, files_below, open_below};
use muster_archive::{TarFile, TarStream};
use muster_model::assignment::TaskLaunch;
use muster_model::id::TaskId;
use muster_model::place::Place;
use muster_model::program_checkpoint::{MAX_PROGRAM_BYTES, MAX_PROGRAM_FILES};
use muster_proto::session::{
    DeclaredCheckpoint, KeepCheckpointAnswer, KeepCheckpointRequest, RecordedCheckpoint,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of a tar file per file beside its content: header, long name and padding.
const MAX_TAR_BYTES_PER_FILE: u64 = 4096;

/// Checkpoint folder of a task as the daemon sees it.
#[derive(Debug, Clone)]
pub(super) enum CheckpointFolder {
    /// The folder of the job, on a file system that all nodes share.
    Shared {
        root: PathBuf,
        tenant: String,
        job: String,
    },
    /// A folder of the task alone.
    OfTask(PathBuf),
}

/// A checkpoint that is to be kept.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Declaration {
    pub step: u64,
    pub path: String,
    pub metrics: BTreeMap<String, f64>,
    pub by: DeclaredBy,
    /// Time of the report, or at which it was found.
    pub at_ms: u64,
    /// Number of uploads during which it changed.
    pub changes: u32,
}

/// Source of a declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeclaredBy {
    Report,
    /// `has_changed`: the daemon has seen the files change, so equal sizes do not mean equal
    /// content.
    Pattern {
        has_changed: bool,
    },
}

impl Declaration {
    /// Whether the pattern has declared it.
    pub(super) fn is_found(&self) -> bool {
        self.by != DeclaredBy::Report
    }
}

impl CheckpointFolder {
    pub(super) fn new(place: &Place, launch: &TaskLaunch, folder: &NodeTaskFolder) -> Self {
        match place {
            Place::Folder(root) => Self::Shared {
                root: root.clone(),
                tenant: launch.tenant_id.to_string(),
                job: launch.job_id.to_string(),
            },
            Place::Bucket(_) => Self::OfTask(folder.checkpoints()),
        }
    }

    /// Opens it without following links below the root or the tasks' folder.
    pub(super) fn open(&self) -> io::Result<FolderHandle> {
        match self {
            Self::Shared { root, tenant, job } => FolderHandle::at(root)?
                .inner(OsStr::new(tenant))?
                .inner(OsStr::new(job)),
            Self::OfTask(path) => open_top(path),
        }
    }

    /// Returns the files of a checkpoint.
    pub(super) fn files(&self, path: &str) -> io::Result<Vec<FoundFile>> {
        let files = files_below(&self.open()?, path, MAX_PROGRAM_FILES)?;
        let files = files.into_iter().map(|file| FoundFile {
            stamp: FileStamp::of(&file.metadata),
            name: file.path,
        });
        Ok(files.collect())
    }

    /// Returns the time of the newest write to the files of a checkpoint; `None` without files.
    pub(super) fn newest_write(&self, path: &str) -> Option<(i64, i64)> {
        let files = self.files(path).ok()?.into_iter();
        files.map(|file| file.stamp.modified).max()
    }

    /// Removes a checkpoint. A missing one is no error.
    fn remove(&self, path: &str) -> io::Result<()> {
        let top = match self.open() {
            // A task may remove its own folder. A shared one may only not be mounted.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && matches!(self, Self::OfTask(_)) =>
            {
                return Ok(());
            }
            opened => opened?,
        };
        let removing = above(top, path).and_then(|(folder, name)| gc::remove_within(&folder, name));
        match removing {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the program has removed a checkpoint. A folder that cannot be opened now has lost
    /// nothing.
    fn has_lost(&self, path: &str) -> bool {
        let Ok(top) = self.open() else {
            return false;
        };
        let found = above(top, path).and_then(|(folder, name)| folder.metadata(name));
        found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }
}

/// Opens the folder of a path, and returns the last name.
fn above(top: FolderHandle, path: &str) -> io::Result<(FolderHandle, &OsStr)> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    Ok((open_inner(top, folder)?, OsStr::new(name)))
}

/// A checkpoint that is recorded.
pub(super) struct KeptCheckpoint {
    pub files: Vec<FoundFile>,
    /// Folder of the job's contents and the other checkpoints; `None` if it was recorded before.
    pub recorded: Option<(String, Vec<RecordedCheckpoint>)>,
}

impl ArtifactStore {
    /// Keeps a checkpoint. A checkpoint that is recorded already is not stored again, unless its
    /// files have changed since. `of_job` is the folder of the job's contents.
    ///
    /// # Errors
    /// [`ArtifactError`]; nothing was recorded then.
    pub(super) async fn keep_checkpoint(
        &self,
        task: TaskId,
        (folder, of_job): (&CheckpointFolder, &str),
        declaration: &Declaration,
    ) -> Result<KeptCheckpoint, ArtifactError> {
        let files = measured(folder, &declaration.path).await?;
        let declared = DeclaredCheckpoint {
            step: declaration.step,
            path: declaration.path.clone(),
            bytes: bytes_of(&files),
            file_count: files.len() as u64,
            is_found: declaration.is_found(),
        };
        if declared.bytes > MAX_PROGRAM_BYTES {
            let most = MAX_PROGRAM_BYTES;
            return Err(ArtifactError::Large { most });
        }
        let of_job = match self.client.admit_checkpoint(task, &declared).await? {
            CheckpointAdmission::Present
                if declaration.by != (DeclaredBy::Pattern { has_changed: true }) =>
            {
                return Ok(KeptCheckpoint {
                    files,
                    recorded: None,
                });
            }
            CheckpointAdmission::Present => of_job.to_owned(),
            CheckpointAdmission::Fits { folder } => folder,
        };
        let mut request = KeepCheckpointRequest {
            task: None,
            declared: Some(declared),
            object: String::new(),
            sha256: String::new(),
            metrics: declaration.metrics.clone().into_iter().collect(),
            age_ms: 0,
        };
        if matches!(self.place, Place::Bucket(_)) {
            let uploaded = self.upload((folder, declaration.path.as_str()), &of_job, &files);
            (request.object, request.sha256) = uploaded.await?;
        }
        let object = request.object.clone();
        let kept = self
            .record_checkpoint(task, request, declaration.at_ms)
            .await;
        if let Err(error) = &kept
            && !error.may_be_recorded()
            && !object.is_empty()
        {
            object::remove(&self.place, &of_job, &object).await;
        }
        let kept = kept?;
        for replaced in &kept.replaced {
            object::remove(&self.place, &of_job, replaced).await;
        }
        Ok(KeptCheckpoint {
            files,
            recorded: Some((of_job, kept.checkpoints)),
        })
    }

    /// Uploads the files as one object. Returns its name and SHA-256.
    async fn upload(
        &self,
        (folder, path): (&CheckpointFolder, &str),
        of_job: &str,
        files: &[FoundFile],
    ) -> Result<(String, String), ArtifactError> {
        let most_bytes = bytes_of(files) + (files.len() as u64 + 1) * MAX_TAR_BYTES_PER_FILE;
        let object = clock::random_id()
            .map_err(ArtifactError::Store)?
            .to_string();
        let begun =
            ObjectWriter::begin(&self.place, of_job, &object, (most_bytes, self.modes)).await;
        let mut writer = begun?;
        let archived = files.iter().map(|file| TarFile {
            path: file.name.clone(),
            bytes: file.stamp.bytes,
        });
        let archived: Vec<TarFile> = archived.collect();
        let top = folder.open().map_err(ArtifactError::Read)?;
        let content = pieces_of(TarStream::new(archived, move |path| open_below(&top, path)));
        // A job's checkpoints are uploaded one after the other, apart from its artifacts.
        let alone = BytesInFlight::default();
        let mut reserved = alone.reserve(of_job, (most_bytes, most_bytes))?;
        let written = fill(&mut writer, &mut reserved, content).await;
        let is_same = written.is_ok() && unchanged(folder, path, files).await;
        match written {
            Ok(written) if is_same => Ok((object, written.sha256)),
            written => {
                writer.give_up().await;
                object::remove(&self.place, of_job, &object).await;
                match written {
                    Err(ArtifactError::Read(error))
                        if error.kind() == io::ErrorKind::UnexpectedEof =>
                    {
                        Err(ArtifactError::Changed)
                    }
                    Err(error) => Err(error),
                    Ok(_) => {
                        tracing::debug!(path, "a checkpoint changed during its upload");
                        Err(ArtifactError::Changed)
                    }
                }
            }
        }
    }

    /// Records a checkpoint. A repetition after a lost answer has the same result.
    async fn record_checkpoint(
        &self,
        task: TaskId,
        mut request: KeepCheckpointRequest,
        reported_at_ms: u64,
    ) -> Result<KeepCheckpointAnswer, ArtifactError> {
        let mut pauses_ms = PAUSES_MS.into_iter();
        loop {
            request.age_ms = clock::boottime_ms().saturating_sub(reported_at_ms);
            let error = match self.client.keep_checkpoint(task, &request).await {
                Err(error) if error.is_transient() => error,
                done => return done,
            };
            let Some(pause_ms) = pauses_ms.next() else {
                return Err(error);
            };
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    /// Removes checkpoints that the policy does not retain, and records of files that the program
    /// has removed. A failed removal is repeated after the next checkpoint.
    pub(super) async fn prune(
        &self,
        task: TaskId,
        (folder, declared): (&CheckpointFolder, &Arc<Mutex<DeclaredCheckpoints>>),
        (of_job, recorded): (&str, Vec<RecordedCheckpoint>),
    ) {
        let is_shared = matches!(self.place, Place::Folder(_));
        let retained = recorded.iter().filter(|one| one.is_retained);
        let retained: Vec<String> = retained.map(|one| one.path.clone()).collect();
        for one in recorded {
            let (folder, path) = (folder.clone(), one.path.clone());
            let (is_retained, declared) = (one.is_retained, Arc::clone(declared));
            let is_shared_path = retained.iter().any(|other| overlap(other, &path));
            let looking = aside(move || {
                if is_retained {
                    return Ok(is_shared && folder.has_lost(&path));
                }
                let declared = declared.lock().unwrap_or_else(PoisonError::into_inner);
                match declared.fate_of(&path) {
                    FilesFate::Undecided => Ok(false),
                    FilesFate::Removed if !is_shared_path => folder.remove(&path).map(|()| true),
                    FilesFate::Removed | FilesFate::Rewritten => Ok(true),
                }
            });
            match looking.await {
                Ok(false) => continue,
                Ok(true) => {}
                Err(error) => {
                    tracing::warn!(task.id = %task, path = one.path, %error, "a pruned checkpoint is not removed");
                    continue;
                }
            }
            // Without its row, nothing would remove the object before the job's end.
            if !one.object.is_empty()
                && let Err(error) = object::try_remove(&self.place, of_job, &one.object).await
            {
                tracing::warn!(task.id = %task, path = one.path, error, "a pruned checkpoint is not removed");
                continue;
            }
            let forgotten = self
                .client
                .forget_checkpoint(task, &one.id, one.is_retained);
            if let Err(error) = forgotten.await {
                tracing::debug!(task.id = %task, path = one.path, %error, "a pruned checkpoint is still listed");
            }
        }
    }

    /// Returns how the program of a task begins.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub(crate) async fn first_checkpoint(&self, task: TaskId) -> Result<Beginning, ArtifactError> {
        self.client.first_checkpoint(task).await
    }

    /// Opens the content of that checkpoint in a bucket.
    ///
    /// # Errors
    /// [`ArtifactError::Missing`] if there is none; [`ArtifactError`].
    pub(crate) async fn open_first_checkpoint(
        &self,
        task: TaskId,
    ) -> Result<Pieces, ArtifactError> {
        let found = self.client.first_checkpoint(task).await?.checkpoint;
        let found = found.filter(|(_, found)| !found.object.is_empty());
        let Some((folder, found)) = found else {
            return Err(ArtifactError::Missing("its first checkpoint".to_owned()));
        };
        let content = object::open(&self.place, &folder, &found.object).await?;
        content.ok_or(ArtifactError::Missing(found.path))
    }
}

fn bytes_of(files: &[FoundFile]) -> u64 {
    files.iter().map(|file| file.stamp.bytes).sum()
}

async fn measured(folder: &CheckpointFolder, path: &str) -> Result<Vec<FoundFile>, ArtifactError> {
    let (folder, path) = (folder.clone(), path.to_owned());
    match aside(move || folder.files(&path)).await {
        Ok(files) if files.is_empty() => Err(ArtifactError::NoCheckpoint),
        Ok(files) => Ok(files),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ArtifactError::NoCheckpoint),
        Err(error) => Err(ArtifactError::Read(error)),
    }
}

/// Whether a checkpoint has the same files in the same state.
async fn unchanged(folder: &CheckpointFolder, path: &str, files: &[FoundFile]) -> bool {
    let (folder, path) = (folder.clone(), path.to_owned());
    let present = aside(move || folder.files(&path)).await;
    present.is_ok_and(|present| present == files)
}
