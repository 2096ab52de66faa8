//! Ledger: the executor's durable record of the tasks of its node. Each task has a folder below
//! `tasks` in the data folder, so a restarted daemon knows the same as its predecessor.
//!
//! A task can write to its own folder. What it could forge there is checked or corrected by records
//! elsewhere ([`Ledger::adopt`]).

mod entry;

use crate::clock;
use crate::disk;
use crate::error::ExecutorError;
use crate::folder::NodeTaskFolder;
use crate::folder_size::bytes_within;
use crate::gc::{remove_folder, remove_in_background};
use crate::opener::FolderHandle;
use crate::process::ProcessId;
use crate::reconcile::{NodeObservation, TaskObservation};
use crate::usage_sampler::SampledTask;
use crate::watched_program::{self, WatchedProgram};
use entry::load;
pub use entry::{AcknowledgedPositions, LedgerEntry, Life};
use muster_model::assignment::{Peers, TaskLaunch};
use muster_model::id::TaskId;
use muster_model::task::Outcome;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Eviction reason of a task for which no pod could be created.
pub const NOT_MADE: &str = "NotMade";
/// Name prefix of a folder that is being created.
const TEMPORARY_PREFIX: &str = ".tmp-";
/// Name prefix of a folder that is being removed.
const REMOVED_PREFIX: &str = ".tmp-gone-";

/// All tasks of the node and its newest accepted generation.
#[derive(Debug)]
pub struct Ledger {
    /// The executor's data folder.
    data: PathBuf,
    pub generation: u64,
    pub entries: BTreeMap<TaskId, LedgerEntry>,
}

impl Ledger {
    /// Reads the data folder and creates it if it is absent. A folder that cannot be read as a
    /// task's folder is logged and left in place.
    ///
    /// # Errors
    /// If the data folder cannot be used at all.
    pub fn open(data: &Path) -> Result<Self, ExecutorError> {
        let tasks = data.join("tasks");
        fs::create_dir_all(&tasks).map_err(ExecutorError::write(&tasks))?;
        let generation_path = data.join("generation");
        let kept = disk::read(&generation_path).map_err(ExecutorError::read(&generation_path))?;
        let generation = kept.unwrap_or(0);
        // With the file in place, a new generation can be stored even when the disk is full.
        if kept.is_none()
            && let Err(error) = disk::rewrite(&generation_path, &generation, true)
        {
            tracing::warn!(%error, "cannot make the file of the generation yet");
        }
        let mut ledger = Self {
            data: data.to_owned(),
            generation,
            entries: BTreeMap::new(),
        };
        let mut removed = Vec::new();
        for found in fs::read_dir(&tasks).map_err(ExecutorError::read(&tasks))? {
            let path = found.map_err(ExecutorError::read(&tasks))?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if name.starts_with(REMOVED_PREFIX) {
                removed.push(path);
                continue;
            }
            if name.starts_with(TEMPORARY_PREFIX) {
                // Not in the background: a folder of the same name may be created next.
                let _ = remove_folder(&path);
                continue;
            }
            match load_named(name, &path) {
                Ok(entry) => {
                    ledger.entries.insert(entry.launch.task_id, entry);
                }
                Err(error) => {
                    tracing::error!(folder = %path.display(), error, "not a task's folder; left alone")
                }
            }
        }
        remove_in_background(removed);
        Ok(ledger)
    }

    /// Whether the task is in the ledger and has not ended.
    pub(crate) fn is_live(&self, task: TaskId) -> bool {
        let entry = self.entries.get(&task);
        entry.is_some_and(|entry| !entry.is_ended())
    }

    /// Returns the random identity of the data folder. A new folder has a new identity and no
    /// tasks.
    ///
    /// # Errors
    /// If it can neither be read nor created.
    pub fn identity(&self) -> Result<String, ExecutorError> {
        let path = self.data.join("identity");
        if let Some(kept) = disk::read(&path).map_err(ExecutorError::read(&path))? {
            return Ok(kept);
        }
        let made = clock::secret().map_err(ExecutorError::read("the system's randomness"))?;
        disk::write_durably(&path, &made).map_err(ExecutorError::write(path))?;
        Ok(made)
    }

    /// Returns the secret that authenticates this executor for its node, created with the data
    /// folder. Only the user of the executor can read its file.
    ///
    /// # Errors
    /// If it can neither be read nor created.
    pub fn credential(&self) -> Result<String, ExecutorError> {
        let path = self.data.join("credential");
        if let Some(kept) = disk::read(&path).map_err(ExecutorError::read(&path))? {
            return Ok(kept);
        }
        let made = clock::secret().map_err(ExecutorError::read("the system's randomness"))?;
        disk::write_privately(&path, &made).map_err(ExecutorError::write(path))?;
        Ok(made)
    }

    /// Stores a newer generation durably; an older or equal one has no effect.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn store_generation(&mut self, generation: u64) -> Result<(), ExecutorError> {
        if generation > self.generation {
            let path = self.data.join("generation");
            disk::rewrite(&path, &generation, true).map_err(ExecutorError::write(path))?;
            self.generation = generation;
        }
        Ok(())
    }

    /// Creates the folder of a task atomically and adds the task as [`Life::Prepared`].
    ///
    /// # Errors
    /// If the folder cannot be written. The ledger then contains the task as ended, with the
    /// outcome of the error.
    pub fn prepare(&mut self, launch: &TaskLaunch, peers: &Peers) -> Result<(), ExecutorError> {
        let tasks = self.data.join("tasks");
        let folder = NodeTaskFolder::of(&tasks, launch.task_id);
        let written = create(&tasks, &folder, launch, peers);
        let life = match &written {
            Ok(()) => Life::Prepared,
            Err(error) => Life::Ended(error.outcome()),
        };
        self.entries.insert(
            launch.task_id,
            LedgerEntry::new(folder, launch.clone(), peers.clone(), life),
        );
        written
    }

    /// Adds a task that the node refuses to start as ended; it has no folder.
    pub fn refuse(&mut self, launch: &TaskLaunch, peers: &Peers, why: String) {
        let folder = NodeTaskFolder::of(&self.data.join("tasks"), launch.task_id);
        let life = Life::Ended(Outcome::refused(why));
        let entry = LedgerEntry::new(folder, launch.clone(), peers.clone(), life);
        self.entries.insert(launch.task_id, entry);
    }

    /// Corrects the entry of a task, which was read from the task's folder, by a record that the
    /// task cannot write. The record has the launch, and the outcome if the task has ended. Without
    /// a recorded outcome the task counts as not ended, whatever its folder says. Call it after
    /// [`Ledger::open`].
    pub fn adopt(&mut self, launch: &TaskLaunch, ended: Option<&Outcome>) {
        let id = launch.task_id;
        if let Some(outcome) = ended {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.launch = launch.clone();
                entry.life = Life::Ended(outcome.clone());
            }
            return;
        }
        let folder = NodeTaskFolder::of(&self.data.join("tasks"), id);
        let entry = self.entries.entry(id).or_insert_with(|| {
            LedgerEntry::new(folder, launch.clone(), Peers::default(), Life::Starting)
        });
        entry.launch = launch.clone();
        entry.life = Life::Starting;
        entry.read_record();
        entry.undo_end();
    }

    /// Does the same as [`Self::adopt`] for a task that ran as a local process, without a recorded
    /// outcome. `shim` is the recorded process of its shim, or `None` if the machine has restarted
    /// since.
    pub fn adopt_from(&mut self, shim: Option<ProcessId>, launch: &TaskLaunch) {
        self.adopt(launch, None);
        if let Some(entry) = self.entries.get_mut(&launch.task_id) {
            entry.known_shim = shim;
            entry.read_record();
        }
    }

    /// Returns the observed state that [`crate::reconcile::steps`] compares.
    #[must_use]
    pub fn observation(&self) -> NodeObservation {
        let known = self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.is_forgotten());
        let tasks = known.map(|(id, entry)| {
            let task = TaskObservation {
                life: entry.stage(),
                gpus: entry.launch.gpus.clone(),
                is_suspended: entry.is_suspended(),
                is_asked: entry.is_asked,
                peers: entry.peers.clone(),
            };
            (*id, task)
        });
        NodeObservation {
            generation: self.generation,
            tasks: tasks.collect(),
        }
    }

    /// Discards all acknowledged positions, so that everything is reported again. A forgotten task
    /// stays forgotten unless it is assigned again.
    pub fn report_all(&mut self) {
        for entry in self.entries.values_mut() {
            entry.acknowledged = AcknowledgedPositions {
                forgotten_at_unix_ms: entry.acknowledged.forgotten_at_unix_ms,
                ..AcknowledgedPositions::default()
            };
            entry.is_log_drained = false;
            entry.store_acknowledged();
        }
    }

    /// Returns the running tasks with GPUs, for the usage sampler.
    #[must_use]
    pub fn sampled_tasks(&self) -> Vec<SampledTask> {
        let entries = self.entries.iter();
        let running = entries.filter_map(|(id, entry)| match &entry.life {
            Life::Running(record) => Some(SampledTask {
                task: *id,
                shim: record.shim,
                gpus: entry.launch.gpus.clone(),
                is_suspended: entry.is_suspended(),
            }),
            Life::Prepared | Life::Starting | Life::Ended(_) => None,
        });
        running.filter(|one| !one.gpus.is_empty()).collect()
    }

    /// Returns the running programs of users, for the activity monitor.
    #[must_use]
    pub fn watched_programs(&self) -> Vec<WatchedProgram> {
        let entries = self.entries.iter();
        let running = entries.filter_map(|(id, entry)| match &entry.life {
            Life::Running(record) if entry.launch.spec.command.is_some() => Some(WatchedProgram {
                task: *id,
                folder: entry.folder.clone(),
                shim: record.shim,
                program: record.task,
                gpus: entry.launch.gpus.clone(),
                is_suspended: entry.is_suspended(),
                is_interactive: entry.launch.spec.interactive.is_some(),
                first_ms: watched_program::first_ms(&entry.launch.spec),
            }),
            _ => None,
        });
        running.collect()
    }

    /// Removes forgotten tasks and their folders, those first that were forgotten first, until at
    /// most `keep` folders with at most `bytes` bytes in total remain.
    pub fn prune(&mut self, keep: usize, bytes: u64) {
        let mut forgotten: Vec<(i64, TaskId)> = self
            .entries
            .iter()
            .filter_map(|(id, entry)| Some((entry.acknowledged.forgotten_at_unix_ms?, *id)))
            .collect();
        forgotten.sort_unstable();
        let (mut total, mut removed) = (0_u64, Vec::new());
        for (place, (_, id)) in forgotten.iter().rev().enumerate() {
            let folder = self.entries[id].folder.clone();
            total = bytes_within(folder.path()).saturating_add(total);
            if place < keep && total <= bytes {
                continue;
            }
            match self.rename_for_removal(folder.path(), *id) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(task.id = %id, %error, "cannot remove the folder of an ended task");
                }
                done => {
                    removed.extend(done);
                    self.entries.remove(id);
                }
            }
        }
        remove_in_background(removed);
    }

    /// Renames a folder that is to be removed in the background, because removing its content may
    /// take long. Returns its new path.
    fn rename_for_removal(&self, folder: &Path, id: TaskId) -> io::Result<PathBuf> {
        let away = self
            .data
            .join("tasks")
            .join(format!("{REMOVED_PREFIX}{id}"));
        fs::rename(folder, &away)?;
        Ok(away)
    }
}

/// Reads the task of the folder `name`. The task may write its own `task.json`, so an id in it that
/// is not the folder's name is refused: it would replace another task.
fn load_named(name: &str, path: &Path) -> Result<LedgerEntry, String> {
    let id = name.parse::<TaskId>().map_err(|error| error.to_string())?;
    let entry = load(path)?;
    if entry.launch.task_id == id {
        return Ok(entry);
    }
    Err(format!("its task.json is of task {}", entry.launch.task_id))
}

/// Creates a task's folder, or leaves nothing behind.
fn create(
    tasks: &Path,
    folder: &NodeTaskFolder,
    launch: &TaskLaunch,
    peers: &Peers,
) -> Result<(), ExecutorError> {
    let temporary = tasks.join(format!("{TEMPORARY_PREFIX}{}", launch.task_id));
    let made = fill(tasks, &temporary, folder, launch, peers);
    if made.is_err() {
        // On a full disk the few bytes of a partial folder matter.
        let _ = remove_folder(&temporary);
    }
    made
}

/// Writes the files of a new task to the folder `temporary` and renames it to `folder`.
fn fill(
    tasks: &Path,
    temporary: &Path,
    folder: &NodeTaskFolder,
    launch: &TaskLaunch,
    peers: &Peers,
) -> Result<(), ExecutorError> {
    let inside = NodeTaskFolder::at(temporary);
    fs::create_dir_all(temporary).map_err(ExecutorError::write(temporary))?;
    let (task, peers_file) = (inside.task(), inside.peers());
    task.write_durably(launch)
        .map_err(ExecutorError::write(task))?;
    peers_file
        .write_durably(peers)
        .map_err(ExecutorError::write(peers_file))?;
    fs::rename(temporary, folder.path()).map_err(ExecutorError::write(folder.path()))?;
    FolderHandle::at(tasks)
        .and_then(|tasks| tasks.sync())
        .map_err(ExecutorError::write(tasks))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::events;
    use crate::runtime::runner_status::RunnerStatus;
    use crate::shim::ShimRecord;
    use muster_model::assignment::TaskReport;
    use serde_json::json;

    pub(crate) fn launch() -> TaskLaunch {
        let id = "00000000-0000-7000-8000-000000000001";
        serde_json::from_value(json!({
            "task_id": id, "job_id": id, "tenant_id": id, "revision": 1, "role": { "kind": "worker", "rank": 0 },
            "workers": 1, "ps_shards": 0, "gpus": [0], "cpu_milli": 0, "memory_bytes": 0, "secret": "00",
            "spec": { "version": "muster/v1", "name": "x", "command": { "argv": ["true"] } },
            "resume_step": null, "trained_s": 0.0, "grace_ms": 1_000,
        }))
        .expect("a launch")
    }

    fn with_task(place: &Path) -> Ledger {
        let mut ledger = Ledger::open(place).expect("our own folder");
        ledger
            .prepare(&launch(), &Peers::default())
            .expect("our own folder");
        ledger
    }

    /// The document of a task is in its folder, which the task can write.
    #[test]
    fn folder_with_the_document_of_another_task_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let id = launch().task_id;
        let own = with_task(place.path()).entries[&id].folder.task();
        let other = place
            .path()
            .join("tasks/00000000-0000-7000-8000-000000000002");
        fs::create_dir(&other).expect("our own folder");
        fs::copy(own.path(), other.join("task.json")).expect("our own file");

        let ledger = Ledger::open(place.path()).expect("our own folder");
        let folders: Vec<_> = ledger
            .entries
            .values()
            .map(|one| one.folder.path())
            .collect();
        assert_eq!(folders, [place.path().join(format!("tasks/{id}"))]);
    }

    /// The acknowledged positions are in a file that the task can write.
    #[test]
    fn running_task_cannot_forge_its_acknowledged_end() {
        let place = tempfile::tempdir().expect("a folder");
        let id = launch().task_id;
        let ledger = with_task(place.path());
        let folder = ledger.entries[&id].folder.clone();
        let own = ProcessId {
            pid: 1,
            start_ticks: 1,
        };
        let record = ShimRecord {
            boot_id: "x".to_owned(),
            shim: own,
            task: own,
        };
        let all = AcknowledgedPositions {
            end: true,
            forgotten_at_unix_ms: Some(1),
            ..AcknowledgedPositions::default()
        };
        let far = AcknowledgedPositions {
            log_bytes: u64::MAX,
            ..AcknowledgedPositions::default()
        };
        folder.shim().write_durably(&record).expect("written");
        for written in [all, far] {
            folder
                .shipped()
                .write_atomically(&written)
                .expect("written");
            let again = Ledger::open(place.path()).expect("our own folder");
            assert_eq!(
                again.entries[&id].acknowledged,
                AcknowledgedPositions::default()
            );
        }
        folder
            .exit()
            .write_durably(&Outcome::NodeLost)
            .expect("written");
        folder.shipped().write_atomically(&all).expect("written");
        let again = Ledger::open(place.path()).expect("our own folder");
        assert!(again.entries[&id].is_forgotten(), "it has ended");
    }

    #[test]
    fn unreadable_end_is_noted_once_for_the_owner() {
        let place = tempfile::tempdir().expect("a folder");
        let id = launch().task_id;
        let mut ledger = with_task(place.path());
        let entry = ledger.entries.get_mut(&id).expect("just made");
        entry.life = Life::Starting;
        std::os::unix::fs::symlink("task.json", entry.folder.exit().path()).expect("linked");
        for _ in 0..3 {
            entry.refresh(RunnerStatus::Alive);
        }
        let mut told = Vec::new();
        events::each(&entry.folder.events(), |report| told.push(report.clone())).expect("read");
        let [TaskReport::Note { message }] = &told[..] else {
            panic!("{told:?}");
        };
        assert!(message.contains("exit.json is a link"), "{message}");
        entry.refresh(RunnerStatus::Gone(None));
        assert!(entry.is_ended() && entry.folder.exit().is_there());
    }

    fn await_empty(folder: &Path) {
        while fs::read_dir(folder).expect("there").next().is_some() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// If this daemon ends first, the next one removes them.
    #[test]
    fn folders_of_forgotten_tasks_are_removed_in_the_background() {
        let place = tempfile::tempdir().expect("a folder");
        let tasks = place.path().join("tasks");
        let id = launch().task_id;
        let mut ledger = with_task(place.path());
        let entry = ledger.entries.get_mut(&id).expect("just made");
        entry.end(Outcome::NodeLost);
        entry.acknowledged.forgotten_at_unix_ms = Some(1);
        ledger.prune(1, u64::MAX);
        assert!(ledger.entries.contains_key(&id), "one may stay");
        ledger.prune(0, u64::MAX);
        assert!(ledger.entries.is_empty() && !tasks.join(id.to_string()).exists());
        await_empty(&tasks);
        for name in [
            format!("{REMOVED_PREFIX}{id}"),
            format!("{TEMPORARY_PREFIX}{id}"),
        ] {
            fs::create_dir_all(tasks.join(name).join("full")).expect("made");
        }
        let ledger = Ledger::open(place.path()).expect("our own folder");
        assert!(ledger.entries.is_empty());
        assert!(
            !tasks.join(format!("{TEMPORARY_PREFIX}{id}")).exists(),
            "at once"
        );
        await_empty(&tasks);
    }
}
