//! Unix users of process tasks, if the executor runs as root. Programs of these users cannot read
//! the executor's files and cannot signal its processes.

use crate::folder::NodeTaskFolder;
use crate::ownership;
use muster_model::assignment::TaskLaunch;
use muster_model::place::Place;
use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
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
                "is {text:?}, but must be UID, UID:GID or FIRST-LAST, without 0"
            )),
        }
    }
}

impl fmt::Display for TaskUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

/// The setting `task_user`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskUsers {
    /// All tenants share this user.
    Shared(TaskUser),
    /// Each tenant has the user and the group `first` plus its number.
    PerTenant { first: u32, last: u32 },
}

/// Why a task has no user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoTaskUser {
    #[error(
        "the scheduler is of an older release and does not send numbers of tenants, which task_user needs"
    )]
    NoNumber,
    #[error(
        "the tenant has the number {number}, but task_user = {users} has only {count} users; extend the range"
    )]
    Beyond {
        number: u32,
        users: TaskUsers,
        count: u32,
    },
}

impl FromStr for TaskUsers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((first, last)) = text.split_once('-') else {
            return text.parse().map(Self::Shared);
        };
        // The highest number means "no user" to the kernel.
        let ids = [first, last].map(|id| id.parse::<u32>().ok().filter(|id| *id < u32::MAX));
        match ids {
            [Some(first), Some(last)] if 0 < first && first < last => {
                Ok(Self::PerTenant { first, last })
            }
            _ => Err(format!(
                "is {text:?}, but a range must be FIRST-LAST, with 0 < FIRST < LAST < 4294967295"
            )),
        }
    }
}

impl fmt::Display for TaskUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared(user) => write!(f, "{user}"),
            Self::PerTenant { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

impl TaskUsers {
    /// Returns the user of a task.
    ///
    /// # Errors
    /// [`NoTaskUser`], if the tenant has no user in the range.
    pub fn of(self, launch: &TaskLaunch) -> Result<TaskUser, NoTaskUser> {
        match self {
            Self::Shared(user) => Ok(user),
            Self::PerTenant { first, last } => {
                let number = launch.tenant_number.ok_or(NoTaskUser::NoNumber)?;
                let id = first.checked_add(number).filter(|id| *id <= last);
                let id = id.ok_or(NoTaskUser::Beyond {
                    number,
                    users: self,
                    count: last - first + 1,
                })?;
                Ok(TaskUser { uid: id, gid: id })
            }
        }
    }

    /// Returns a user to test access with. No task of an executor that was just installed has it
    /// yet.
    #[must_use]
    pub fn example(self) -> TaskUser {
        match self {
            Self::Shared(user) => user,
            Self::PerTenant { last, .. } => TaskUser {
                uid: last,
                gid: last,
            },
        }
    }
}

impl TaskUser {
    /// Returns the first folder on the way to `path` that the user cannot enter.
    #[must_use]
    pub fn barrier(self, path: &Path) -> Option<&Path> {
        let folders = path.ancestors().skip(1);
        folders.filter(|folder| self.is_barred_from(folder)).last()
    }

    /// Whether the user cannot enter the folder.
    #[must_use]
    pub fn is_barred_from(self, folder: &Path) -> bool {
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
    /// checkpoints of its job. With `is_private` other users cannot enter these folders, except for
    /// the group of this process at the checkpoints: that of the API server, which reads them.
    ///
    /// # Errors
    /// If something cannot be created or transferred.
    pub fn prepare(
        self,
        folder: &NodeTaskFolder,
        launch: &TaskLaunch,
        checkpoints: &str,
        is_private: bool,
    ) -> io::Result<()> {
        let events = folder.events();
        drop(events.append()?);
        std::os::unix::fs::lchown(events.path(), Some(self.uid), Some(self.gid))?;
        if let Ok(Place::Folder(root)) = checkpoints.parse() {
            let of_tenant = root.join(launch.tenant_id.to_string());
            let of_job = of_tenant.join(launch.job_id.to_string());
            fs::create_dir_all(&of_job)?;
            if is_private {
                // Another setting of `task_user` may have left files of another user.
                ownership::transfer(&of_job, self)?;
                chown(
                    &of_job,
                    Some(self.uid),
                    Some(rustix::process::getegid().as_raw()),
                )?;
                fs::set_permissions(&of_job, Permissions::from_mode(0o750))?;
            } else {
                self.own(&of_job)?;
            }
        }
        if is_private {
            fs::set_permissions(folder.path(), Permissions::from_mode(0o700))?;
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
    use crate::ledger::tests::launch;

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
            assert!(error.contains("UID, UID:GID or"), "{error}");
        }
    }

    #[test]
    fn tenant_has_the_user_of_its_number() {
        let users: TaskUsers = "200000-200009".parse().expect("a range");
        assert_eq!(users.to_string(), "200000-200009");
        let of = |number| {
            users.of(&TaskLaunch {
                tenant_number: number,
                ..launch()
            })
        };
        let user = |id| TaskUser { uid: id, gid: id };
        assert_eq!(of(Some(0)), Ok(user(200_000)));
        assert_eq!(of(Some(9)), Ok(user(200_009)));
        assert_eq!(of(None), Err(NoTaskUser::NoNumber));
        let beyond = of(Some(10)).expect_err("beyond the range").to_string();
        assert!(
            beyond.contains("number 10") && beyond.contains("200000-200009 has only 10"),
            "{beyond}"
        );
        for wrong in ["0-9", "9-9", "9-8", "-9", "9-", "1-4294967295", "a-b"] {
            let error = wrong.parse::<TaskUsers>().expect_err(wrong);
            assert!(error.contains("FIRST-LAST"), "{error}");
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
