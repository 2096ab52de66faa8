//! A folder for each job in which its tasks of this node create sockets, to share memory. Only the
//! job's own folder is mounted into its pods; processes receive the path.

use crate::gc::remove_folder;
use crate::ledger::Ledger;
use muster_model::assignment::TaskLaunch;
use muster_model::id::JobId;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Variable with the folder, for tasks of the built-in engine.
pub const VARIABLE: &str = "MUSTER_SOCKETS";

/// Name below the data folder.
const FOLDER: &str = "sockets";

#[derive(Debug, Default)]
pub struct Sockets {
    folder: PathBuf,
    jobs: BTreeSet<JobId>,
}

/// Returns the folder of a job, relative to the data folder.
#[must_use]
pub fn within(job: JobId) -> PathBuf {
    Path::new(FOLDER).join(job.to_string())
}

/// Whether the task uses the folder. Tasks of the built-in engine share memory on a node; users'
/// programs do not use it.
#[must_use]
pub fn meets_others(launch: &TaskLaunch) -> bool {
    launch.spec.command.is_none()
}

impl Sockets {
    /// Reads the folders of earlier daemons.
    ///
    /// # Errors
    /// If the common folder can neither be read nor created.
    pub fn open(data: &Path) -> io::Result<Self> {
        let folder = data.join(FOLDER);
        fs::create_dir_all(&folder)?;
        let mut jobs: BTreeSet<JobId> = BTreeSet::new();
        for entry in fs::read_dir(&folder)? {
            jobs.extend(
                entry?
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse::<JobId>().ok()),
            );
        }
        Ok(Self { folder, jobs })
    }

    /// Creates the folder of a job and returns its path.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn make(&mut self, job: JobId) -> io::Result<PathBuf> {
        let path = self.folder.join(job.to_string());
        fs::create_dir_all(&path)?;
        self.jobs.insert(job);
        Ok(path)
    }

    /// Removes the folders of jobs without tasks on this node.
    pub fn tidy(&mut self, ledger: &Ledger) {
        self.keep(|job| {
            let mut entries = ledger.entries.values();
            entries.any(|entry| entry.launch.job_id == job && !entry.is_ended())
        });
    }

    fn keep(&mut self, is_needed: impl Fn(JobId) -> bool) {
        let unneeded: Vec<JobId> = self
            .jobs
            .iter()
            .copied()
            .filter(|job| !is_needed(*job))
            .collect();
        for job in unneeded {
            let path = self.folder.join(job.to_string());
            match remove_folder(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(job.id = %job, %error, "the sockets of a job that has ended are not removed");
                }
                _ => {}
            }
            // A remaining folder is removed by the next daemon.
            self.jobs.remove(&job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use uuid::Uuid;

    #[test]
    fn socket_folder_of_a_job_is_removed_with_its_last_task() {
        let data = tempfile::tempdir().expect("a folder");
        let [kept, gone] = [1, 2].map(|number| JobId(Uuid::from_u128(number)));
        let mut sockets = Sockets::open(data.path()).expect("our own folder");
        for job in [kept, gone] {
            let place = sockets.make(job).expect("our own folder");
            assert_eq!(place, data.path().join(within(job)));
            UnixListener::bind(place.join("x.sock")).expect("there is room");
        }
        assert_eq!(
            sockets.make(kept).expect("it is there"),
            data.path().join(within(kept))
        );
        let mut sockets = Sockets::open(data.path()).expect("our own folder");
        sockets.keep(|job| job == kept);
        let is_there = |job| data.path().join(within(job)).exists();
        assert!(is_there(kept) && !is_there(gone));
        assert!(data.path().join(within(kept)).join("x.sock").exists());
    }
}
