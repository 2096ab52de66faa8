//! Upload of the files of one task's output folder.

use super::error::ArtifactError;
use super::notes::TaskNotes;
use super::object::pieces;
use super::store::{Announced, ArtifactStore};
use super::walk::{self, FileStamp, FoundFile, FoundFiles};
use crate::clock;
use crate::folder::NodeTaskFolder;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use muster_archive::ArchiveDigest;
use muster_model::artifact::path_of_task;
use muster_model::assignment::TaskLaunch;
use muster_model::error_chain::chain;
use muster_model::id::TaskId;
use muster_model::task::Role;
use std::collections::BTreeMap;
use std::io::Seek as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of files of a task that are uploaded at one time.
const AT_A_TIME: usize = 4;
/// Shortest time between two uploads of one file while the task runs.
const AGAIN_AFTER_MS: u64 = 60_000;
/// Maximum number of files that one pass uploads while the task runs.
const MAX_UPLOADS: usize = 2_000;
/// Time for which new files are not asked for after the number of artifacts was refused.
const FULL_FOR_MS: u64 = 60_000;
/// Size above which a file is read only after its size was accepted. A sparse file of any size
/// takes no space.
const LARGE_BYTES: u64 = 1 << 20;

/// Result of a pass over the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassResult {
    /// Each file is kept, or refused for good.
    Settled,
    /// A later pass may keep more.
    Unsettled,
    /// No file of the task is accepted any more.
    Over,
}

/// Files of a task and what is known of them.
#[derive(Debug)]
pub(super) struct OutputFolder {
    task: TaskId,
    role: Role,
    output: PathBuf,
    files: BTreeMap<String, FileState>,
    notes: TaskNotes,
    /// Until then the job has as many artifacts as it may have.
    full_until_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct FileState {
    /// State at the last pass.
    stamp: FileStamp,
    /// This state is kept, or refused for good.
    is_settled: bool,
    uploaded_at_ms: Option<u64>,
}

impl OutputFolder {
    pub(super) fn new(launch: &TaskLaunch, folder: &NodeTaskFolder) -> Self {
        Self {
            task: launch.task_id,
            role: launch.role,
            output: folder.output(),
            files: BTreeMap::new(),
            notes: TaskNotes::new(launch.task_id, folder),
            full_until_ms: None,
        }
    }

    /// Uploads the files that have not changed since the last pass; after the task's end all that
    /// are not kept yet.
    pub(super) async fn pass(&mut self, store: &ArtifactStore, has_ended: bool) -> PassResult {
        let output = self.output.clone();
        let walked = tokio::task::spawn_blocking(move || walk::walk(&output)).await;
        let found = match walked {
            Ok(Ok(found)) => found,
            Ok(Err(error)) if walk::is_transient(&error) => return PassResult::Unsettled,
            Ok(Err(error)) => {
                self.note("", &format!("it cannot be read: {error}"));
                return PassResult::Settled;
            }
            Err(_) => return PassResult::Unsettled,
        };
        self.note_unfit(&found);
        let due = self.due(&found.files, has_ended);
        let top = self.output.clone();
        let (task, role) = (self.task, self.role);
        // Each request waits for a session. Without one, the other files wait for the next pass.
        let is_away = Arc::new(AtomicBool::new(false));
        let mut uploads = stream::iter(due)
            .map(|file| {
                let (store, top, is_away) = (store.clone(), top.clone(), Arc::clone(&is_away));
                async move {
                    if is_away.load(Ordering::Relaxed) {
                        return (file, Err(ArtifactError::NoSession));
                    }
                    let done = upload(&store, task, role, (top, &file)).await;
                    (file, done)
                }
            })
            .buffer_unordered(AT_A_TIME);
        let (mut is_settled, mut is_over) = (!found.is_incomplete, false);
        while let Some((file, done)) = uploads.next().await {
            match done {
                Ok(()) => self.settle(&file),
                Err(error) if error.is_over() => is_over = true,
                Err(error) => {
                    let message = chain(&error);
                    if error.is_transient() {
                        is_settled = false;
                        is_away.fetch_or(error.is_away(), Ordering::Relaxed);
                        self.note_transient(&file.name, &error);
                    } else {
                        self.refused(&file, &error);
                    }
                    tracing::debug!(task.id = %task, file = file.name, message, "an artifact is not kept");
                }
            }
        }
        drop(uploads);
        match (is_over, is_settled) {
            (true, _) => PassResult::Over,
            (false, true) => PassResult::Settled,
            (false, false) => PassResult::Unsettled,
        }
    }

    /// Returns the files to upload now.
    fn due(&mut self, found: &[FoundFile], has_ended: bool) -> Vec<FoundFile> {
        let now_ms = clock::boottime_ms();
        let is_full = self.full_until_ms.is_some_and(|until_ms| now_ms < until_ms);
        let mut due = Vec::new();
        let mut present = BTreeMap::new();
        for file in found {
            let before = self.files.get(&file.name).copied();
            let is_unchanged = before.is_some_and(|before| before.stamp == file.stamp);
            let uploaded_at_ms = before.and_then(|before| before.uploaded_at_ms);
            let state = FileState {
                stamp: file.stamp,
                is_settled: is_unchanged && before.is_some_and(|before| before.is_settled),
                uploaded_at_ms,
            };
            present.insert(file.name.clone(), state);
            let is_early = uploaded_at_ms.is_some_and(|at_ms| now_ms < at_ms + AGAIN_AFTER_MS);
            let is_hopeless = is_full && !has_ended && uploaded_at_ms.is_none();
            let is_due = has_ended || (is_unchanged && !is_early && due.len() < MAX_UPLOADS);
            if !state.is_settled && !is_hopeless && is_due {
                due.push(file.clone());
            }
        }
        self.files = present;
        due
    }

    /// Records that a file is not kept. Its next state is tried again.
    fn refused(&mut self, file: &FoundFile, error: &ArtifactError) {
        if error.is_count() {
            self.full_until_ms = Some(clock::boottime_ms() + FULL_FOR_MS);
        }
        if !error.is_stale() {
            self.note(&file.name, &chain(error));
        }
        if let Some(state) = self.files.get_mut(&file.name) {
            state.is_settled = state.stamp == file.stamp;
        }
    }

    fn settle(&mut self, file: &FoundFile) {
        if let Some(state) = self.files.get_mut(&file.name) {
            state.is_settled = state.stamp == file.stamp;
            state.uploaded_at_ms = Some(clock::boottime_ms());
        }
    }

    fn note_unfit(&mut self, found: &FoundFiles) {
        for (name, why) in &found.unfit {
            self.note(name, why);
        }
        if found.is_cut {
            self.note("", "it has too many files; some are not looked at");
        }
    }

    /// Reports a full store to the user, and other transient errors to the log.
    fn note_transient(&mut self, name: &str, error: &ArtifactError) {
        match error {
            ArtifactError::StoreFull => self.note(name, &chain(error)),
            ArtifactError::Store(_) | ArtifactError::Objects(_) | ArtifactError::Read(_) => {
                tracing::warn!(task.id = %self.task, error = chain(error), "an artifact waits");
            }
            _ => {}
        }
    }

    /// Adds an event about a file.
    fn note(&mut self, name: &str, why: &str) {
        let subject = match name {
            "" => "MUSTER_OUTPUT_DIR".to_owned(),
            name => format!("file {name:?} of MUSTER_OUTPUT_DIR"),
        };
        let message = format!("{subject} is not kept as an artifact: {why}");
        self.notes.add(message);
    }
}

/// Uploads a file, if it still has the state in which it was found.
async fn upload(
    store: &ArtifactStore,
    task: TaskId,
    role: Role,
    (top, found): (PathBuf, &FoundFile),
) -> Result<(), ArtifactError> {
    let name = found.name.clone();
    let opening = tokio::task::spawn_blocking(move || walk::open(&top, &name));
    let opened = opening
        .await
        .map_err(|error| ArtifactError::Read(std::io::Error::other(error)))?;
    let (mut file, stamp) = match opened {
        Ok(opened) => opened,
        // The program has removed it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            return Err(ArtifactError::Changed);
        }
        Err(error) => return Err(ArtifactError::Read(error)),
    };
    if stamp != found.stamp {
        return Err(ArtifactError::Changed);
    }
    let path = path_of_task(role, &found.name);
    if stamp.bytes > LARGE_BYTES {
        store.check_size(task, &path, stamp.bytes).await?;
    }
    let same = file.try_clone().map_err(ArtifactError::Read)?;
    let sha256 = digest(same, stamp.bytes).await?;
    file.rewind().map_err(ArtifactError::Read)?;
    let announced = Announced {
        bytes: stamp.bytes,
        sha256: Some(&sha256),
    };
    store.put(task, &path, announced, pieces(file)).await
}

/// Returns the SHA-256 of a file that must have this length.
async fn digest(file: std::fs::File, bytes: u64) -> Result<String, ArtifactError> {
    let mut content = pieces(file);
    let (mut digest, mut read) = (ArchiveDigest::default(), 0);
    while let Some(piece) = content.try_next().await.map_err(ArtifactError::Read)? {
        digest.update(&piece);
        read += piece.len() as u64;
        if read > bytes {
            break;
        }
    }
    if read == bytes {
        Ok(digest.hex())
    } else {
        Err(ArtifactError::Changed)
    }
}
