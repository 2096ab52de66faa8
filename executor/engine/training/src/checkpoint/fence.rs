//! Fence of a job's folder: after a newer revision of the job has started, an older one writes no
//! more.
//!
//! The scheduler starts a revision only after all tasks of the older one are reported as ended, so
//! two writers should never exist. The fence protects against a wrong report. Check and rename
//! happen under one file lock. Otherwise a stale writer could pass the check, be delayed, and
//! rename after the newer revision has chosen its checkpoint.

use super::files::{sync_folder, write_durable};
use super::{CheckpointError, JobFolder};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

const FENCE_FILE: &str = "FENCE";
const LOCK_FILE: &str = ".lock";

/// Held lock of a job's folder; released on drop.
#[derive(Debug)]
pub struct Fence {
    _lock: File,
}

impl JobFolder {
    /// Creates the folder if necessary and raises its fence to this revision.
    ///
    /// # Errors
    /// [`CheckpointError::Fenced`] if a newer revision has already started.
    pub fn claim(&self) -> Result<(), CheckpointError> {
        let path = self.path();
        fs::create_dir_all(&path).map_err(CheckpointError::io("make", &path))?;
        for folder in path.ancestors().take(3) {
            sync_folder(folder)?;
        }
        let _fence = self.fence()?;
        let fresh = path.join(format!(".tmp-fence-{}", self.revision));
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(CheckpointError::io("remove", &fresh)(error));
            }
            _ => {}
        }
        write_durable(&fresh, format!("{}\n", self.revision).as_bytes())?;
        let fence = path.join(FENCE_FILE);
        fs::rename(&fresh, &fence).map_err(CheckpointError::io("write", &fence))?;
        sync_folder(&path)?;
        // A task that still writes one of these files is stale from now on.
        self.sweep()
    }

    /// Locks the folder and checks that no newer revision has started.
    pub(super) fn fence(&self) -> Result<Fence, CheckpointError> {
        let path = self.path();
        let lock_path = path.join(LOCK_FILE);
        let lock = lock_exclusively(&lock_path).map_err(CheckpointError::io("lock", &lock_path))?;
        let newest = read_fence(&path.join(FENCE_FILE))?;
        if newest > self.revision {
            return Err(CheckpointError::Fenced {
                own: self.revision,
                newest,
            });
        }
        Ok(Fence { _lock: lock })
    }
}

fn lock_exclusively(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

fn read_fence(path: &Path) -> Result<u64, CheckpointError> {
    match fs::read_to_string(path) {
        Ok(text) => text
            .trim()
            .parse()
            .map_err(|_| CheckpointError::damaged(path, "it holds no revision")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(CheckpointError::io("read", path)(error)),
    }
}
