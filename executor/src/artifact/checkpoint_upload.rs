//! Passes over the declared checkpoints of one task.

use super::checkpoint_store::{CheckpointFolder, Declaration, KeptCheckpoint};
use super::declared::DeclaredCheckpoints;
use super::error::ArtifactError;
use super::notes::TaskNotes;
use super::store::ArtifactStore;
use super::upload::PassResult;
use crate::folder::NodeTaskFolder;
use muster_model::artifact::artifact_folder;
use muster_model::assignment::TaskLaunch;
use muster_model::error_chain::chain;
use muster_model::id::TaskId;
use muster_model::task::Role;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of uploads during which a checkpoint may change before it is given up.
const MAX_CHANGES: u32 = 3;

/// Checkpoints of rank 0 of a program.
#[derive(Debug)]
pub(super) struct CheckpointUploads {
    task: TaskId,
    folder: CheckpointFolder,
    /// Folder of the job's contents in a bucket.
    of_job: String,
    declared: Arc<Mutex<DeclaredCheckpoints>>,
    notes: TaskNotes,
    has_noted_clash: bool,
}

impl CheckpointUploads {
    /// Returns `None` for other tasks than rank 0.
    pub(super) fn new(
        store: &ArtifactStore,
        launch: &TaskLaunch,
        task_folder: &NodeTaskFolder,
    ) -> Option<Self> {
        if launch.role != (Role::Worker { rank: 0 }) {
            return None;
        }
        let folder = CheckpointFolder::new(&store.place, launch, task_folder);
        let declared = DeclaredCheckpoints::new(launch, task_folder, folder.clone());
        Some(Self {
            task: launch.task_id,
            folder,
            of_job: artifact_folder(launch.tenant_id, launch.job_id),
            declared: Arc::new(Mutex::new(declared)),
            notes: TaskNotes::new(launch.task_id, task_folder),
            has_noted_clash: false,
        })
    }

    /// Keeps the declared checkpoints. Updates `waits`: whether a checkpoint waits.
    pub(super) async fn pass(
        &mut self,
        store: &ArtifactStore,
        has_ended: bool,
        waits: &AtomicBool,
    ) -> PassResult {
        let declared = Arc::clone(&self.declared);
        let looking = tokio::task::spawn_blocking(move || lock(&declared).look(has_ended));
        if looking.await.is_err() {
            return PassResult::Unsettled;
        }
        self.note_clash();
        loop {
            let (next, left) = {
                let declared = lock(&self.declared);
                (declared.waiting.front().cloned(), declared.waiting.len())
            };
            waits.store(left > 0, Ordering::Release);
            let Some(next) = next else {
                return PassResult::Settled;
            };
            let places = (&self.folder, self.of_job.as_str());
            let kept = store.keep_checkpoint(self.task, places, &next).await;
            match kept {
                Ok(kept) => self.finish(store, &next, kept).await,
                Err(error) if error.is_invalid() => {
                    self.note(&next, &error);
                    self.settle(&next);
                }
                Err(error) if error.is_over() || error.is_stale() => {
                    waits.store(false, Ordering::Release);
                    return PassResult::Over;
                }
                Err(ArtifactError::Changed) if next.changes + 1 < MAX_CHANGES => {
                    self.change(&next);
                    return PassResult::Unsettled;
                }
                Err(error) if error.is_transient() && !matches!(error, ArtifactError::Changed) => {
                    tracing::warn!(task.id = %self.task, error = chain(&error), "a checkpoint waits");
                    return PassResult::Unsettled;
                }
                // Of several checkpoints, an earlier one may have been pruned already.
                Err(ArtifactError::NoCheckpoint) if left > 1 || next.is_found() => {
                    self.settle(&next);
                }
                Err(error) => {
                    self.note(&next, &error);
                    self.settle(&next);
                }
            }
        }
    }

    /// Removes the declaration of a kept checkpoint, and prunes others.
    async fn finish(&self, store: &ArtifactStore, done: &Declaration, kept: KeptCheckpoint) {
        lock(&self.declared).set_kept(done, kept.files);
        self.settle(done);
        if let Some((of_job, recorded)) = kept.recorded {
            let places = (&self.folder, &self.declared);
            store.prune(self.task, places, (&of_job, recorded)).await;
        }
    }

    /// Adds an event about the first match of the pattern whose step another checkpoint has.
    fn note_clash(&mut self) {
        let clashing = std::mem::take(&mut lock(&self.declared).clashing);
        let Some(first) = clashing.first() else {
            return;
        };
        if !std::mem::replace(&mut self.has_noted_clash, true) {
            self.note(first, &ArtifactError::SameStep);
        }
    }

    /// Removes a declaration, unless the program has made it again.
    fn settle(&self, done: &Declaration) {
        let mut declared = lock(&self.declared);
        declared.waiting.retain(|waiting| waiting != done);
    }

    /// Moves a checkpoint that changed during its upload behind the others.
    fn change(&self, changed: &Declaration) {
        let mut declared = lock(&self.declared);
        let place = declared.waiting.iter().position(|one| one == changed);
        if let Some(mut one) = place.and_then(|place| declared.waiting.remove(place)) {
            one.changes += 1;
            declared.waiting.push_back(one);
        }
    }

    /// Adds an event about a checkpoint that is not kept.
    fn note(&mut self, declaration: &Declaration, error: &ArtifactError) {
        self.notes.add(format!(
            "checkpoint {:?} of step {} is not registered: {}",
            declaration.path,
            declaration.step,
            chain(error)
        ));
    }
}

fn lock(declared: &Mutex<DeclaredCheckpoints>) -> MutexGuard<'_, DeclaredCheckpoints> {
    declared.lock().unwrap_or_else(PoisonError::into_inner)
}
