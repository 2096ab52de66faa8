//! Space on the node's disk: whether the node accepts tasks, and which task ends when too little is
//! left.
//!
//! Below half of the reserve the node accepts no new tasks and reports that; above the reserve it
//! accepts tasks again. Below a quarter the task with the largest folder is ended, so that the
//! others continue. A task whose folder exceeds the limit per task is ended too.

mod judge;
mod measure;

use crate::clock;
use crate::config::ExecutorConfig;
use crate::error::ExecutorError;
use crate::folder_size::bytes_within;
use crate::ledger::{Ledger, Life};
use crate::loop_event::NodeLoopEvent;
use judge::{DiskRules, Fitness};
use muster_model::id::TaskId;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::watch;

/// Interval of measurements of the disk.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval of measurements of all task folders for the limit per task. A measurement reads every
/// file name in them.
const FOLDERS_EVERY_MS: u64 = 10_000;
/// Minimum time between two tasks that are ended to free space: the folder is removed meanwhile.
const RELIEF_MS: u64 = 5_000;

/// Handle shared by the node loop, the session and the measuring thread.
#[derive(Debug, Clone)]
pub struct DiskMonitor(Arc<DiskMonitorState>);

#[derive(Debug)]
struct DiskMonitorState {
    data: PathBuf,
    rules: DiskRules,
    /// Folders of tasks that have not ended.
    folders: Mutex<BTreeMap<TaskId, PathBuf>>,
    unfit: watch::Sender<Option<String>>,
}

impl DiskMonitor {
    /// Measures the disk once, so that the first `Hello` contains the result.
    #[must_use]
    pub fn of(config: &ExecutorConfig) -> Self {
        let rules = DiskRules {
            reserve_bytes: config.disk_reserve_bytes,
            task_bytes: config.task_disk_bytes,
        };
        let measured = measure::disk(&config.data_dir);
        let fitness = Fitness::default().after(&measured, &rules);
        Self(Arc::new(DiskMonitorState {
            data: config.data_dir.clone(),
            rules,
            folders: Mutex::default(),
            unfit: watch::Sender::new(fitness.unfit),
        }))
    }

    /// Starts the measuring thread.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn watch(&self, loop_events: Sender<NodeLoopEvent>) -> Result<(), ExecutorError> {
        let shared = Arc::clone(&self.0);
        let watching = thread::Builder::new().name("space".to_owned());
        let watching = watching.spawn(move || shared.run(&loop_events));
        watching.map_err(ExecutorError::Thread).map(drop)
    }

    /// Returns the reason why the node accepts no new tasks; `None` while it accepts them.
    #[must_use]
    pub fn unfit(&self) -> Option<String> {
        self.0.unfit.borrow().clone()
    }

    /// Returns a receiver of changes of [`Self::unfit`].
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Option<String>> {
        self.0.unfit.subscribe()
    }

    /// Replaces the set of measured tasks.
    pub fn follow(&self, ledger: &Ledger) {
        let entries = ledger.entries.iter();
        let there = entries
            .filter(|(_, entry)| matches!(entry.life, Life::Starting | Life::Running(_)))
            .map(|(id, entry)| (*id, entry.folder.path().to_owned()));
        *self.0.folders() = there.collect();
    }
}

impl DiskMonitorState {
    fn run(&self, loop_events: &Sender<NodeLoopEvent>) {
        let mut fitness = Fitness {
            unfit: self.unfit.borrow().clone(),
        };
        let mut folders_at_ms: Option<u64> = None;
        let mut relief: Option<(TaskId, u64)> = None;
        loop {
            thread::sleep(LOOK_EVERY);
            let now_ms = clock::boottime_ms();
            let measured = measure::disk(&self.data);
            fitness = fitness.after(&measured, &self.rules);
            if *self.unfit.borrow() != fitness.unfit {
                match &fitness.unfit {
                    Some(why) => tracing::warn!(why, "the node takes no new tasks"),
                    None => tracing::info!("the node takes tasks again"),
                }
                self.unfit.send_replace(fitness.unfit.clone());
                if loop_events.send(NodeLoopEvent::Look).is_err() {
                    return;
                }
            }
            let Ok(disk) = measured else { continue };
            let is_relieved = relief.as_ref().is_none_or(|(task, at_ms)| {
                now_ms >= at_ms + RELIEF_MS && !self.folders().contains_key(task)
            });
            let needs_relief = self.rules.is_emergency(disk) && is_relieved;
            let is_due = self.rules.task_bytes.is_some()
                && folders_at_ms.is_none_or(|at_ms| now_ms >= at_ms + FOLDERS_EVERY_MS);
            if !needs_relief && !is_due {
                continue;
            }
            let folders = self.folders().clone();
            let sizes = folders.iter();
            let sizes = sizes.map(|(task, folder)| (*task, bytes_within(folder)));
            let sizes: BTreeMap<TaskId, u64> = sizes.collect();
            folders_at_ms = Some(now_ms);
            let mut ends = self.rules.over_limit(&sizes);
            if ends.is_empty() && needs_relief {
                ends.extend(self.rules.largest(&sizes, disk));
                relief = ends.first().map(|(task, _)| (*task, now_ms));
            }
            for (task, outcome) in ends {
                if loop_events.send(NodeLoopEvent::End(task, outcome)).is_err() {
                    return;
                }
            }
        }
    }

    fn folders(&self) -> MutexGuard<'_, BTreeMap<TaskId, PathBuf>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
