//! Records of started shims, stored outside the task folders. A task can write its own folder. So
//! the folder's content about shim, GPUs and end is no evidence while the shim lives.

use crate::ledger::LedgerEntry;
use crate::process::ProcessId;
use crate::task_file::TaskFile;
use muster_model::assignment::TaskLaunch;
use muster_model::id::TaskId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Name below the data folder.
const FOLDER: &str = "shims";

/// Shims of this data folder, including those of earlier daemons.
#[derive(Debug, Default)]
pub struct Shims {
    folder: PathBuf,
    by_task: BTreeMap<TaskId, StartedShim>,
}

/// A started shim. The record is removed once the task's end is known.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StartedShim {
    pub launch: TaskLaunch,
    boot_id: String,
    pub shim: ProcessId,
}

impl StartedShim {
    pub fn is_alive(&self) -> bool {
        self.shim.is_alive() && self.is_of_this_boot()
    }

    pub fn is_of_this_boot(&self) -> bool {
        self.boot_id == crate::process::boot_id()
    }
}

impl Shims {
    /// Reads the records. An unreadable one is logged and left out.
    ///
    /// # Errors
    /// If the folder can neither be read nor created.
    pub fn open(data: &Path) -> io::Result<Self> {
        let folder = data.join(FOLDER);
        fs::create_dir_all(&folder)?;
        // Tasks of another user must not read the documents of all tenants.
        fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
        let mut shims = Self {
            folder,
            by_task: BTreeMap::new(),
        };
        for entry in fs::read_dir(&shims.folder)? {
            let name = entry?.file_name();
            let Some(task) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            match shims.file(task).read() {
                Ok(record) => shims.by_task.extend(record.map(|record| (task, record))),
                Err(error) => {
                    tracing::error!(task.id = %task, %error, "cannot read the record of a shim");
                }
            }
        }
        Ok(shims)
    }

    /// Stores the record of a shim that has just started.
    ///
    /// # Errors
    /// If it cannot be written: the next daemon could not find the shim.
    pub fn begin(&mut self, launch: &TaskLaunch, shim: ProcessId) -> io::Result<()> {
        let record = StartedShim {
            launch: launch.clone(),
            boot_id: crate::process::boot_id(),
            shim,
        };
        self.file(launch.task_id).write_durably(&record)?;
        self.by_task.insert(launch.task_id, record);
        Ok(())
    }

    pub fn get(&self, entry: &LedgerEntry) -> Option<&StartedShim> {
        self.by_task.get(&entry.launch.task_id)
    }

    pub fn all(&self) -> impl Iterator<Item = &StartedShim> {
        self.by_task.values()
    }

    /// Removes the records of tasks that are not needed.
    pub fn keep(&mut self, is_needed: impl Fn(TaskId) -> bool) {
        let unneeded: Vec<TaskId> = self
            .by_task
            .keys()
            .copied()
            .filter(|task| !is_needed(*task))
            .collect();
        for task in unneeded {
            // The next daemon tries again.
            if let Err(error) = self.file(task).remove() {
                tracing::warn!(task.id = %task, %error, "cannot remove the record of a shim");
            }
            self.by_task.remove(&task);
        }
    }

    fn file(&self, task: TaskId) -> TaskFile {
        TaskFile::large(self.folder.join(task.to_string()))
    }
}

/// Returns the record of a task's shim, for threads other than the node loop; `None` if no shim of
/// it was started, or its end is known.
///
/// # Errors
/// If the record cannot be read.
pub fn started_shim(data: &Path, task: TaskId) -> io::Result<Option<StartedShim>> {
    TaskFile::large(data.join(FOLDER).join(task.to_string())).read()
}
