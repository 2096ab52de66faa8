//! What the executor knows of the pods that it has asked for, kept where no task can write. A task's folder is the task's own to write: it could
//! say there that it has ended, or has never begun, and a daemon that starts would give out its GPUs while it runs.

use crate::folder::TaskFolder;
use crate::ledger::{Entry, Ledger, Life};
use crate::shim::PodRecord;
use crate::task_file::TaskFile;
use muster_model::assignment::TaskLaunch;
use muster_model::id::TaskId;
use muster_model::task::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Below the data folder.
const FOLDER: &str = "pods";

#[derive(Debug, Default)]
pub struct Records {
    folder: PathBuf,
    known: BTreeMap<TaskId, Record>,
}

/// Its presence means that the task's pod was asked for, which happens once.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    launch: TaskLaunch,
    told_to_stop: bool,
    /// How the task has ended, once its pod was over or not there.
    ended: Option<Outcome>,
}

impl Records {
    /// # Errors
    /// If the folder can neither be read nor made. What cannot be read in it is left out and said so: its task's folder is then all that is
    /// known.
    pub fn open(data: &Path) -> io::Result<Self> {
        let folder = data.join(FOLDER);
        fs::create_dir_all(&folder)?;
        let mut records = Self {
            folder,
            known: BTreeMap::new(),
        };
        for entry in fs::read_dir(&records.folder)? {
            let name = entry?.file_name();
            let Some(task) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            match records.file(task).read() {
                Ok(record) => records.known.extend(record.map(|record| (task, record))),
                Err(error) => {
                    tracing::error!(task.id = %task, %error, "what is known of a task's pod cannot be read");
                }
            }
        }
        Ok(records)
    }

    /// A pod is about to be asked for.
    ///
    /// # Errors
    /// If it cannot be kept.
    pub fn begin(&mut self, launch: &TaskLaunch, folder: &TaskFolder) -> io::Result<()> {
        let record = Record {
            launch: launch.clone(),
            told_to_stop: false,
            ended: None,
        };
        self.keep(launch.task_id, record)?;
        tell(folder, false)
    }

    #[must_use]
    pub fn told_to_stop(&self, entry: &Entry) -> bool {
        match self.known.get(&entry.launch.task_id) {
            Some(record) => record.told_to_stop,
            // One of the release before.
            None => {
                let told: Option<PodRecord> = entry.folder.pod().read().ok().flatten();
                told.is_some_and(|told| told.told_to_stop)
            }
        }
    }

    /// The executor has asked for the task's end.
    ///
    /// # Errors
    /// If it cannot be kept.
    pub fn stop(&mut self, entry: &Entry) -> io::Result<()> {
        if let Some(record) = self.known.get(&entry.launch.task_id).cloned() {
            let told = Record {
                told_to_stop: true,
                ..record
            };
            self.keep(entry.launch.task_id, told)?;
        }
        tell(&entry.folder, true)
    }

    /// Keeps how tasks have ended, and forgets those whose folders are gone.
    pub fn follow(&mut self, ledger: &Ledger) {
        let mut changed = Vec::new();
        for (task, record) in &self.known {
            match ledger.entries.get(task).map(|entry| &entry.life) {
                None => changed.push((*task, None)),
                Some(Life::Ended(outcome)) if record.ended.is_none() => {
                    let ended = Record {
                        ended: Some(outcome.clone()),
                        ..record.clone()
                    };
                    changed.push((*task, Some(ended)));
                }
                Some(_) => {}
            }
        }
        for (task, record) in changed {
            let kept = match record {
                Some(record) => self.keep(task, record),
                None => {
                    self.known.remove(&task);
                    self.file(task).remove()
                }
            };
            // A later daemon asks the API server once more, that is all.
            if let Err(error) = kept {
                tracing::warn!(task.id = %task, %error, "that a task has ended is not kept");
            }
        }
    }

    /// What a ledger has read in the tasks' folders is corrected by what is known here. Of a task that is not known to have ended, its pod says
    /// whether it has.
    pub fn correct(&self, ledger: &mut Ledger) {
        for record in self.known.values() {
            ledger.adopt(&record.launch, record.ended.as_ref());
        }
    }

    fn keep(&mut self, task: TaskId, record: Record) -> io::Result<()> {
        let kept = self.file(task).write_durably(&record);
        self.known.insert(task, record);
        kept
    }

    fn file(&self, task: TaskId) -> TaskFile {
        TaskFile::large(self.folder.join(task.to_string()))
    }
}

/// The shim, which asks nobody else.
fn tell(folder: &TaskFolder, told_to_stop: bool) -> io::Result<()> {
    folder.pod().write_durably(&PodRecord { told_to_stop })
}
