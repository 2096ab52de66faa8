//! Reads a checkpoint of another job at one step, to begin from it. It belongs to that job: nothing
//! is set aside, fenced or removed.

use super::bucket::JobBucket;
use super::read::SoundCheckpoint;
use super::{CheckpointError, CheckpointStore, JobFolder};
use std::path::PathBuf;

impl CheckpointStore {
    /// Loads the checkpoint of this step; the newest one if the job has trained the step more than
    /// once.
    ///
    /// # Errors
    /// [`CheckpointError::Absent`] if there is none, or this node does not see the job's folder;
    /// [`CheckpointError::Damaged`] if none of them is sound; another error if the disk or the
    /// store fails.
    pub fn of_step(&self, step: u64) -> Result<SoundCheckpoint, CheckpointError> {
        match self {
            Self::Folder(folder) => folder.of_step(step),
            Self::Bucket(bucket) => bucket.of_step(step),
        }
    }
}

impl JobFolder {
    fn of_step(&self, step: u64) -> Result<SoundCheckpoint, CheckpointError> {
        if !self.path().is_dir() {
            let why = "this node sees no such folder; for jobs to begin from each other, all nodes need one folder for checkpoints, or a bucket";
            return Err(absent(self.path(), step, why));
        }
        let mut entries = self.list()?;
        entries.retain(|entry| entry.step == step);
        entries.sort_unstable();
        let tried = entries.iter().rev().map(|entry| self.load(entry));
        first_sound(tried).unwrap_or_else(|| Err(absent(self.path(), step, GONE)))
    }
}

impl JobBucket {
    fn of_step(&self, step: u64) -> Result<SoundCheckpoint, CheckpointError> {
        let mut listed = self.listed()?;
        listed.retain(|listed| listed.step == step);
        listed.sort_unstable_by_key(|listed| listed.revision);
        let tried = listed.iter().rev().map(|listed| self.load(listed));
        first_sound(tried).unwrap_or_else(|| Err(absent(self.place(), step, GONE)))
    }
}

const GONE: &str = "the job's policy has removed it, or it was never written";

fn absent(path: PathBuf, step: u64, why: &'static str) -> CheckpointError {
    CheckpointError::Absent { path, step, why }
}

/// Returns the first sound checkpoint, or the first damage. Other errors do not cause another
/// checkpoint to be tried. `None` if there is none.
fn first_sound(
    tried: impl Iterator<Item = Result<SoundCheckpoint, CheckpointError>>,
) -> Option<Result<SoundCheckpoint, CheckpointError>> {
    let mut damage = None;
    for found in tried {
        match found {
            Err(error @ CheckpointError::Damaged { .. }) => damage = damage.or(Some(error)),
            other => return Some(other),
        }
    }
    damage.map(Err)
}
