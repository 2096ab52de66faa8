//! A folder for each job in which its tasks of this node listen for each other, to share memory. Each job's pods have their own job's mounted, so
//! they find each other and nobody else; processes are told of it.

use crate::ledger::Ledger;
use crate::removal::remove_folder;
use muster_model::assignment::TaskLaunch;
use muster_model::id::JobId;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// By which a task of the built-in engine knows where it meets the others of its job.
pub const VARIABLE: &str = "MUSTER_SOCKETS";

/// Below the data folder.
const FOLDER: &str = "sockets";

#[derive(Debug, Default)]
pub struct Sockets {
    folder: PathBuf,
    jobs: BTreeSet<JobId>,
}

/// Below the data folder.
#[must_use]
pub fn within(job: JobId) -> PathBuf {
    Path::new(FOLDER).join(job.to_string())
}

/// The built-in engine shares memory with those of its node; a program of the user's own finds its others by itself.
#[must_use]
pub fn meets_others(launch: &TaskLaunch) -> bool {
    launch.spec.command.is_none()
}

impl Sockets {
    /// With those that an earlier daemon has made.
    ///
    /// # Errors
    /// If the folder of all of them can neither be read nor made.
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

    /// Where they are to meet.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make(&mut self, job: JobId) -> io::Result<PathBuf> {
        let path = self.folder.join(job.to_string());
        fs::create_dir_all(&path)?;
        self.jobs.insert(job);
        Ok(path)
    }

    /// Removes those of jobs that have no task here any more.
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
            // Whatever is left is the next daemon's to remove.
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
    fn a_jobs_place_is_there_until_nobody_needs_it_whichever_daemon_made_it() {
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
