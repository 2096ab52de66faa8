//! Unix user of process tasks, if the executor runs as root. Programs of this user cannot read the
//! executor's files and cannot signal its processes.

use crate::folder::NodeTaskFolder;
use muster_model::assignment::TaskLaunch;
use muster_model::place::Place;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::str::FromStr;

/// User and group as numbers, because the user needs no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskUser {
    pub uid: u32,
    pub gid: u32,
}

impl FromStr for TaskUser {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (uid, gid) = text.split_once(':').unwrap_or((text, text));
        let ids = [uid, gid].map(|id| id.parse::<u32>().ok().filter(|id| *id > 0));
        match ids {
            [Some(uid), Some(gid)] => Ok(Self { uid, gid }),
            _ => Err(format!(
                "is {text:?}, but must be UID or UID:GID, neither of them 0"
            )),
        }
    }
}

impl fmt::Display for TaskUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl TaskUser {
    /// Returns the first folder on the way to `path` that the user cannot enter.
    #[must_use]
    pub fn barrier(self, path: &Path) -> Option<&Path> {
        let folders = path.ancestors().skip(1);
        folders.filter(|folder| self.is_barred_from(folder)).last()
    }

    fn is_barred_from(self, folder: &Path) -> bool {
        let Ok(found) = fs::metadata(folder) else {
            return false;
        };
        let bit = if found.uid() == self.uid {
            0o100
        } else if found.gid() == self.gid {
            0o010
        } else {
            0o001
        };
        found.mode() & bit == 0
    }

    /// Transfers to the user what its task writes: the task's folder, its event file, and the
    /// checkpoints of its job.
    ///
    /// # Errors
    /// If something cannot be created or transferred.
    pub fn prepare(
        self,
        folder: &NodeTaskFolder,
        launch: &TaskLaunch,
        checkpoints: &str,
    ) -> io::Result<()> {
        let events = folder.events();
        drop(events.append()?);
        std::os::unix::fs::lchown(events.path(), Some(self.uid), Some(self.gid))?;
        if let Ok(Place::Folder(root)) = checkpoints.parse() {
            let of_tenant = root.join(launch.tenant_id.to_string());
            let of_job = of_tenant.join(launch.job_id.to_string());
            fs::create_dir_all(&of_job)?;
            self.own(&of_job)?;
        }
        // Last: from here on the user may replace the content of the folder.
        self.own(folder.path())
    }

    /// # Errors
    /// If the path does not exist, or if this process lacks the permission.
    pub fn own(self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.uid), Some(self.gid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn user_is_a_number_other_than_zero() {
        let both = TaskUser {
            uid: 65_534,
            gid: 1_000,
        };
        assert_eq!("65534:1000".parse(), Ok(both));
        assert_eq!(both.to_string().parse(), Ok(both));
        assert_eq!("7".parse(), Ok(TaskUser { uid: 7, gid: 7 }));
        for wrong in ["", "0", "0:7", "7:0", "nobody", "7:", "-1", "7:7:7"] {
            let error = wrong.parse::<TaskUser>().expect_err(wrong);
            assert!(error.contains("UID or UID:GID"), "{error}");
        }
    }

    #[test]
    fn closed_folder_on_the_way_is_named() {
        let place = tempfile::tempdir().expect("a folder");
        let closed = place.path().join("closed");
        fs::create_dir_all(closed.join("data")).expect("made");
        let user = TaskUser {
            uid: 4_000_000,
            gid: 4_000_000,
        };
        for path in [place.path(), &closed] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
        }
        let path = closed.join("data/file");
        assert_eq!(user.barrier(&path), None);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("ours");
        assert_eq!(user.barrier(&path), Some(closed.as_path()));
    }
}
