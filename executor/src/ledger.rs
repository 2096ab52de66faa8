//! What the node knows of its tasks. All of it is on disk, one folder a task, so a restarted daemon knows what the killed one knew.

use crate::clock;
use crate::disk;
use crate::error::ExecutorError;
use crate::events::Position;
use crate::folder::TaskFolder;
use crate::meter::Watched;
use crate::reconcile::{Seen, SeenLife, SeenTask};
use crate::runtime::Carrier;
use crate::shim::{self, ShimRecord};
use muster_model::assignment::{Observed, Peers, TaskLaunch};
use muster_model::id::TaskId;
use muster_model::task::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The reason of an eviction from a node where no pod could be made for the task.
pub const NOT_MADE: &str = "NotMade";

/// All tasks of the node and the newest generation it has taken on.
#[derive(Debug)]
pub struct Ledger {
    data: PathBuf,
    pub generation: u64,
    pub entries: BTreeMap<TaskId, Entry>,
}

#[derive(Debug)]
pub struct Entry {
    pub folder: TaskFolder,
    pub launch: TaskLaunch,
    pub peers: Peers,
    pub life: Life,
    pub shipped: Shipped,
    /// The shim of this life was told to stop. Not kept on disk: telling it twice does no harm.
    pub is_stopping: bool,
    /// Nothing of an ended task's log is left to ship. Found out anew after a restart.
    pub is_log_drained: bool,
}

/// How far the task's process is, as its folder and `/proc` tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    Prepared,
    Starting,
    Running(ShimRecord),
    Ended(Outcome),
}

/// How far the scheduler has acknowledged. Losing it costs only repeated reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Shipped {
    pub events: Position,
    pub log_bytes: u64,
    /// The end, and with it every event.
    pub end: bool,
    /// Since when the folder is only kept for people to look at.
    pub forgotten_at_unix_ms: Option<i64>,
}

impl Ledger {
    /// Reads the data folder; makes it if there is none. A folder that cannot be read is left alone and said so.
    ///
    /// # Errors
    /// If the data folder cannot be used at all.
    pub fn open(data: &Path) -> Result<Self, ExecutorError> {
        let tasks = data.join("tasks");
        fs::create_dir_all(&tasks).map_err(ExecutorError::write(&tasks))?;
        let generation_path = data.join("generation");
        let generation = disk::read(&generation_path)
            .map_err(ExecutorError::read(generation_path))?
            .unwrap_or(0);
        let mut ledger = Self {
            data: data.to_owned(),
            generation,
            entries: BTreeMap::new(),
        };
        for found in fs::read_dir(&tasks).map_err(ExecutorError::read(&tasks))? {
            let path = found.map_err(ExecutorError::read(&tasks))?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if name.starts_with(".tmp-") {
                let _ = fs::remove_dir_all(&path);
                continue;
            }
            match name
                .parse::<TaskId>()
                .map_err(|error| error.to_string())
                .and_then(|_| load(&path))
            {
                Ok(entry) => {
                    ledger.entries.insert(entry.launch.task_id, entry);
                }
                Err(error) => {
                    tracing::error!(folder = %path.display(), error, "not a task's folder; left alone")
                }
            }
        }
        Ok(ledger)
    }

    /// Made with the data folder: who has another knows nothing of this one's tasks.
    ///
    /// # Errors
    /// If it can neither be read nor made.
    pub fn identity(&self) -> Result<String, ExecutorError> {
        let path = self.data.join("identity");
        if let Some(kept) = disk::read(&path).map_err(ExecutorError::read(&path))? {
            return Ok(kept);
        }
        let made = clock::secret().map_err(ExecutorError::read("the system's randomness"))?;
        disk::write_durably(&path, &made).map_err(ExecutorError::write(path))?;
        Ok(made)
    }

    /// Keeps the generation over restarts.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn take_on(&mut self, generation: u64) -> Result<(), ExecutorError> {
        if generation > self.generation {
            let path = self.data.join("generation");
            disk::write_durably(&path, &generation).map_err(ExecutorError::write(path))?;
            self.generation = generation;
        }
        Ok(())
    }

    /// Makes the folder of a task, whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written; the ledger then knows the task all the same, as one that could not be started.
    pub fn prepare(&mut self, launch: &TaskLaunch, peers: &Peers) -> Result<(), ExecutorError> {
        let tasks = self.data.join("tasks");
        let folder = TaskFolder::of(&tasks, launch.task_id);
        let written = create(&tasks, &folder, launch, peers);
        let life = match &written {
            Ok(()) => Life::Prepared,
            Err(error) => Life::Ended(Outcome::LaunchFailed {
                message: error.to_string(),
            }),
        };
        self.entries.insert(
            launch.task_id,
            Entry::new(folder, launch.clone(), peers.clone(), life),
        );
        written
    }

    /// What [`crate::reconcile::steps`] compares with.
    #[must_use]
    pub fn seen(&self) -> Seen {
        let known = self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.is_forgotten());
        let tasks = known.map(|(id, entry)| {
            let task = SeenTask {
                life: entry.seen_life(),
                gpus: entry.launch.gpus.clone(),
                stands_still: entry.stands_still(),
                peers: entry.peers.clone(),
            };
            (*id, task)
        });
        Seen {
            generation: self.generation,
            tasks: tasks.collect(),
        }
    }

    /// Tasks whose use of their GPUs can be measured from here: they run as processes of this machine.
    #[must_use]
    pub fn watched(&self) -> Vec<Watched> {
        let entries = self.entries.iter();
        let running = entries.filter_map(|(id, entry)| match &entry.life {
            Life::Running(record) => Some(Watched {
                task: *id,
                shim: record.shim,
                gpus: entry.launch.gpus.clone(),
                stands_still: entry.stands_still(),
            }),
            Life::Prepared | Life::Starting | Life::Ended(_) => None,
        });
        running.filter(|one| !one.gpus.is_empty()).collect()
    }

    /// Removes folders of forgotten tasks, the oldest first, until at most `keep` are left and they take at most `bytes`.
    pub fn prune(&mut self, keep: usize, bytes: u64) {
        let mut forgotten: Vec<(i64, TaskId)> = self
            .entries
            .iter()
            .filter_map(|(id, entry)| Some((entry.shipped.forgotten_at_unix_ms?, *id)))
            .collect();
        forgotten.sort_unstable();
        let mut total = 0;
        for (place, (_, id)) in forgotten.iter().rev().enumerate() {
            let folder = self.entries[id].folder.clone();
            total += folder_bytes(folder.path());
            if place < keep && total <= bytes {
                continue;
            }
            match fs::remove_dir_all(folder.path()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(task.id = %id, %error, "cannot remove the folder of an ended task");
                }
                Ok(()) | Err(_) => {
                    self.entries.remove(id);
                }
            }
        }
    }
}

impl Entry {
    fn new(folder: TaskFolder, launch: TaskLaunch, peers: Peers, life: Life) -> Self {
        let shipped = Shipped::default();
        Self {
            folder,
            launch,
            peers,
            life,
            shipped,
            is_stopping: false,
            is_log_drained: false,
        }
    }

    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.shipped.forgotten_at_unix_ms.is_some()
    }

    /// What is reported; nothing before there is a process.
    #[must_use]
    pub fn observed(&self) -> Option<Observed> {
        match &self.life {
            Life::Prepared | Life::Starting => None,
            Life::Running(_) => Some(Observed::Running),
            Life::Ended(outcome) => Some(Observed::Gone {
                outcome: outcome.clone(),
            }),
        }
    }

    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.life, Life::Ended(_))
    }

    /// What it says itself, of the turn that it was told of last. A task that is told to go on holds its GPUs from then on.
    fn stands_still(&self) -> bool {
        let told = || {
            fs::read_to_string(self.folder.standing())
                .ok()?
                .parse()
                .ok()
        };
        let held = self.peers.held_turn();
        held.is_some() && told() == held
    }

    fn seen_life(&self) -> SeenLife {
        match &self.life {
            Life::Prepared => SeenLife::Prepared,
            Life::Starting if self.is_stopping => SeenLife::Stopping,
            Life::Starting => SeenLife::Starting,
            Life::Running(_) if self.is_stopping => SeenLife::Stopping,
            Life::Running(_) => SeenLife::Running,
            Life::Ended(_) => SeenLife::Ended {
                settled: self.shipped.end && self.is_log_drained,
            },
        }
    }

    /// Looks at the folder again. `carrier` was looked at before: whoever carries a task writes the end before it goes.
    pub fn refresh(&mut self, carrier: Carrier) {
        match &self.life {
            Life::Prepared | Life::Ended(_) => {}
            Life::Starting | Life::Running(_) if carrier == Carrier::Holding => {
                if self.life == Life::Starting {
                    self.read_record();
                }
            }
            Life::Starting => {
                if !self.read_exit_of(&carrier)
                    && !self.read_record()
                    && let Carrier::Gone(outcome) = carrier
                {
                    self.end(outcome.unwrap_or_else(|| self.never_began()));
                }
            }
            Life::Running(_) => {
                if !self.read_exit_of(&carrier)
                    && let Carrier::Gone(outcome) = carrier
                {
                    tracing::warn!(task.id = %self.launch.task_id, "the shim of a task was killed, and the task with it");
                    self.end(outcome.unwrap_or(Outcome::NodeLost));
                }
            }
        }
    }

    /// A shim whose pod is taken away knows only that, and one whose task the kernel killed knows the signal; its carrier knows why.
    fn read_exit_of(&mut self, carrier: &Carrier) -> bool {
        let is_told = self.read_exit();
        let better = match (&self.life, carrier) {
            (Life::Ended(told), Carrier::Gone(Some(why))) => {
                let is_better = match (told, why) {
                    // That there never was a pod is what was told; that there is none is only its consequence.
                    (Outcome::Evicted { reason, .. }, Outcome::Evicted { .. }) => {
                        reason != NOT_MADE
                    }
                    (Outcome::Signalled { signal: 9, .. }, Outcome::OutOfMemory) => true,
                    _ => false,
                };
                is_better.then(|| why.clone())
            }
            _ => None,
        };
        if let Some(why) = better {
            self.end(why);
        }
        is_told
    }

    fn never_began(&self) -> Outcome {
        let reason = fs::read_to_string(self.folder.shim_errors()).unwrap_or_default();
        let message = format!("its shim ended before it started it {}", reason.trim());
        Outcome::LaunchFailed {
            message: message.trim().to_owned(),
        }
    }

    /// Fixes the end of a task that has no shim (any more).
    pub fn end(&mut self, outcome: Outcome) {
        if let Err(error) = disk::write_durably(&self.folder.exit(), &outcome) {
            tracing::error!(task.id = %self.launch.task_id, %error, "cannot write how a task ended");
        }
        self.life = Life::Ended(outcome);
        self.forget_secrets();
    }

    /// A shim that never came to read them has left them there.
    fn forget_secrets(&self) {
        let file = self.folder.environment();
        if let Err(error) = fs::remove_file(&file)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(task.id = %self.launch.task_id, %error, "cannot remove the secrets of a task that has ended");
        }
    }

    /// Keeps what the scheduler has acknowledged.
    pub fn keep_shipped(&self) {
        if let Err(error) = disk::write_atomically(&self.folder.shipped(), &self.shipped) {
            tracing::warn!(task.id = %self.launch.task_id, %error, "cannot keep what was acknowledged");
        }
    }

    fn read_exit(&mut self) -> bool {
        match disk::read(&self.folder.exit()) {
            Ok(Some(outcome)) => {
                self.life = Life::Ended(outcome);
                self.forget_secrets();
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::error!(task.id = %self.launch.task_id, %error, "cannot read how a task ended");
                false
            }
        }
    }

    fn read_record(&mut self) -> bool {
        match disk::read(&self.folder.shim()) {
            Ok(Some(record)) => {
                self.life = Life::Running(record);
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::error!(task.id = %self.launch.task_id, %error, "cannot read who runs a task");
                false
            }
        }
    }
}

fn create(
    tasks: &Path,
    folder: &TaskFolder,
    launch: &TaskLaunch,
    peers: &Peers,
) -> Result<(), ExecutorError> {
    let temporary = tasks.join(format!(".tmp-{}", launch.task_id));
    let inside = TaskFolder::at(&temporary);
    fs::create_dir_all(&temporary).map_err(ExecutorError::write(&temporary))?;
    disk::write_durably(&inside.task(), launch).map_err(ExecutorError::write(inside.task()))?;
    disk::write_durably(&inside.peers(), peers).map_err(ExecutorError::write(inside.peers()))?;
    fs::rename(&temporary, folder.path()).map_err(ExecutorError::write(folder.path()))?;
    disk::sync_folder(folder.path()).map_err(ExecutorError::write(tasks))
}

fn load(path: &Path) -> Result<Entry, String> {
    let folder = TaskFolder::at(path);
    let launch = disk::read(&folder.task())
        .map_err(|error| error.to_string())?
        .ok_or_else(|| "it has no task.json".to_owned())?;
    let peers = disk::read(&folder.peers())
        .ok()
        .flatten()
        .unwrap_or_default();
    let shipped: Shipped = disk::read(&folder.shipped())
        .ok()
        .flatten()
        .unwrap_or_default();
    let mut entry = Entry::new(folder, launch, peers, Life::Prepared);
    let events = fs::metadata(entry.folder.events()).map_or(0, |metadata| metadata.len());
    // A position beyond the file is none of this file's.
    entry.shipped = if shipped.events.byte <= events {
        shipped
    } else {
        Shipped::default()
    };
    // Before its end is looked for: who ends in between has written it.
    let is_under_way =
        entry.folder.pod().exists() || shim::is_locked(&entry.folder).unwrap_or(false);
    if !entry.read_exit() && !entry.read_record() && is_under_way {
        entry.life = Life::Starting;
    }
    Ok(entry)
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}
