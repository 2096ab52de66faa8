//! The executor's records of pods, stored where no task can write. A task can write its own folder
//! and could fake its end there, so that a new daemon would release its GPUs while it runs.

use crate::folder::NodeTaskFolder;
use crate::ledger::{Ledger, LedgerEntry, Life};
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

/// Name below the data folder.
const FOLDER: &str = "pods";

#[derive(Debug, Default)]
pub struct PodRecords {
    folder: PathBuf,
    by_task: BTreeMap<TaskId, RequestedPod>,
}

/// Record of a task's pod. Its presence means that the pod was requested, which happens once.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RequestedPod {
    launch: TaskLaunch,
    told_to_stop: bool,
    /// Outcome of the task, recorded once its pod has ended or does not exist.
    ended: Option<Outcome>,
}

impl PodRecords {
    /// Reads the records. An unreadable one is logged and left out; then only the task's folder is
    /// known.
    ///
    /// # Errors
    /// If the folder can neither be read nor created.
    pub fn open(data: &Path) -> io::Result<Self> {
        let folder = data.join(FOLDER);
        fs::create_dir_all(&folder)?;
        let mut records = Self {
            folder,
            by_task: BTreeMap::new(),
        };
        for entry in fs::read_dir(&records.folder)? {
            let name = entry?.file_name();
            let Some(task) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            match records.file(task).read() {
                Ok(record) => records.by_task.extend(record.map(|record| (task, record))),
                Err(error) => {
                    tracing::error!(task.id = %task, %error, "what is known of a task's pod cannot be read");
                }
            }
        }
        Ok(records)
    }

    /// Records that a pod will be requested.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn begin(&mut self, launch: &TaskLaunch, folder: &NodeTaskFolder) -> io::Result<()> {
        let record = RequestedPod {
            launch: launch.clone(),
            told_to_stop: false,
            ended: None,
        };
        self.keep(launch.task_id, record)?;
        tell(folder, false)
    }

    #[must_use]
    pub fn told_to_stop(&self, entry: &LedgerEntry) -> bool {
        match self.by_task.get(&entry.launch.task_id) {
            Some(record) => record.told_to_stop,
            // A task of the previous release has no record.
            None => {
                let told: Option<PodRecord> = entry.folder.pod().read().ok().flatten();
                told.is_some_and(|told| told.told_to_stop)
            }
        }
    }

    /// Records that the executor requests the task's end.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn stop(&mut self, entry: &LedgerEntry) -> io::Result<()> {
        if let Some(record) = self.by_task.get(&entry.launch.task_id).cloned() {
            let told = RequestedPod {
                told_to_stop: true,
                ..record
            };
            self.keep(entry.launch.task_id, told)?;
        }
        tell(&entry.folder, true)
    }

    /// Records outcomes, and removes the records of tasks that the ledger has forgotten.
    pub fn follow(&mut self, ledger: &Ledger) {
        let mut changed = Vec::new();
        for (task, record) in &self.by_task {
            match ledger.entries.get(task).map(|entry| &entry.life) {
                None => changed.push((*task, None)),
                Some(Life::Ended(outcome)) if record.ended.is_none() => {
                    let ended = RequestedPod {
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
                    self.by_task.remove(&task);
                    self.file(task).remove()
                }
            };
            // The next daemon would only ask the API server again.
            if let Err(error) = kept {
                tracing::warn!(task.id = %task, %error, "that a task has ended is not kept");
            }
        }
    }

    /// Corrects the ledger, which was read from the task folders. For a task without a recorded
    /// outcome the state of its pod decides.
    pub fn correct(&self, ledger: &mut Ledger) {
        for record in self.by_task.values() {
            ledger.adopt(&record.launch, record.ended.as_ref());
        }
    }

    fn keep(&mut self, task: TaskId, record: RequestedPod) -> io::Result<()> {
        let kept = self.file(task).write_durably(&record);
        self.by_task.insert(task, record);
        kept
    }

    fn file(&self, task: TaskId) -> TaskFile {
        TaskFile::large(self.folder.join(task.to_string()))
    }
}

/// Writes `pod.json`, the only information of the shim about the request.
fn tell(folder: &NodeTaskFolder, told_to_stop: bool) -> io::Result<()> {
    folder.pod().write_durably(&PodRecord { told_to_stop })
}
