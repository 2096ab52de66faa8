//! One task of the node: its folder, its state and what has been acknowledged of it.

use super::NOT_MADE;
use crate::error::ExecutorError;
use crate::events::{self, EventPosition};
use crate::folder::NodeTaskFolder;
use crate::log_once::LogOnce;
use crate::opener::is_refusal;
use crate::process::{self, ProcessId};
use crate::reconcile::TaskStage;
use crate::runtime::runner_status::RunnerStatus;
use crate::shim::{self, ShimRecord};
use muster_model::assignment::{Observed, Peers, TaskLaunch, TaskReport};
use muster_model::task::Outcome;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Maximum length of the quoted error output of a shim, in characters.
const TOLD_OF_SHIM: usize = 2_000;

#[derive(Debug)]
pub struct LedgerEntry {
    pub folder: NodeTaskFolder,
    pub launch: TaskLaunch,
    pub peers: Peers,
    pub life: Life,
    pub acknowledged: AcknowledgedPositions,
    /// The shim has been asked to stop. Not stored: a repeated request does no harm.
    pub is_stopping: bool,
    /// The program has been asked for a checkpoint before its stop.
    pub is_asked: bool,
    /// The whole log of an ended task is acknowledged. Determined again after a restart.
    pub is_log_drained: bool,
    /// The files of an ended task's output folder are kept, or given up. Determined again after a
    /// restart.
    pub is_output_kept: bool,
    /// A checkpoint that the program has declared is not recorded yet.
    pub has_waiting_checkpoint: bool,
    /// The shim's process as recorded by the daemon. The task can write `shim.json` but not this
    /// record.
    pub known_shim: Option<ProcessId>,
    /// Outcome that replaces that of the process, because the daemon ends the task.
    forced_outcome: Option<Outcome>,
    logged: LogOnce,
}

/// State of the task's process according to its folder and `/proc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    Prepared,
    Starting,
    Running(ShimRecord),
    Ended(Outcome),
}

/// Acknowledged positions. Their loss only causes repeated reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AcknowledgedPositions {
    pub events: EventPosition,
    pub log_bytes: u64,
    /// The end, and with it every event, is acknowledged.
    pub end: bool,
    /// Time since which the folder is only kept for inspection.
    pub forgotten_at_unix_ms: Option<i64>,
}

impl LedgerEntry {
    pub(super) fn new(
        folder: NodeTaskFolder,
        launch: TaskLaunch,
        peers: Peers,
        life: Life,
    ) -> Self {
        let acknowledged = AcknowledgedPositions::default();
        Self {
            folder,
            launch,
            peers,
            life,
            acknowledged,
            is_stopping: false,
            is_asked: false,
            is_log_drained: false,
            is_output_kept: false,
            has_waiting_checkpoint: false,
            known_shim: None,
            forced_outcome: None,
            logged: LogOnce::default(),
        }
    }

    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.acknowledged.forgotten_at_unix_ms.is_some()
    }

    /// Undoes a recorded end: a task that has not ended must not be forgotten.
    pub(super) fn undo_end(&mut self) {
        self.acknowledged.forgotten_at_unix_ms = None;
        self.acknowledged.end = false;
    }

    /// Returns the state to report; `None` before the task has a process.
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

    /// Whether the task is suspended for the newest slice that it knows of. A task that is to
    /// resume holds its GPUs from that moment.
    pub(super) fn is_suspended(&self) -> bool {
        let held = self.peers.held_turn();
        held.is_some() && self.last_turn() == held && self.is_stopped_if_a_program()
    }

    /// Number of the slice that the task has written last.
    fn last_turn(&self) -> Option<u64> {
        self.folder.standing().text().ok()?.parse().ok()
    }

    /// Whether the kernel has stopped every process of a user's program. A program can write the
    /// slice number itself while it still computes on GPUs that belong to another job.
    fn is_stopped_if_a_program(&self) -> bool {
        let Some(shim) = self
            .known_shim
            .filter(|_| self.launch.spec.command.is_some())
        else {
            return true;
        };
        process::have_stopped(&process::descendants(shim.pid))
    }

    pub(super) fn stage(&self) -> TaskStage {
        match &self.life {
            Life::Prepared => TaskStage::Prepared,
            Life::Starting if self.is_stopping => TaskStage::Stopping,
            Life::Starting => TaskStage::Starting,
            Life::Running(_) if self.is_stopping => TaskStage::Stopping,
            Life::Running(_) => TaskStage::Running,
            Life::Ended(_) => TaskStage::Ended {
                settled: self.acknowledged.end && self.is_log_drained && self.is_output_kept,
            },
        }
    }

    /// Reads the folder again. The caller has determined `runner` before: a shim writes the end
    /// before it exits.
    pub fn refresh(&mut self, runner: RunnerStatus) {
        match &self.life {
            Life::Starting | Life::Running(_) if matches!(runner, RunnerStatus::Killed(_)) => {
                // If the shim's record shows that the task has started, the next poll decides.
                let has_begun = self.life == Life::Starting && self.read_record();
                if let (RunnerStatus::Killed(outcome), false) = (runner, has_begun) {
                    self.end(outcome);
                }
            }
            Life::Prepared | Life::Ended(_) => {}
            Life::Starting | Life::Running(_) if runner == RunnerStatus::Holding => {
                if self.life == Life::Starting {
                    self.read_record();
                }
            }
            Life::Starting => {
                if !self.read_exit_of(&runner)
                    && !self.read_record()
                    && let RunnerStatus::Gone(outcome) = runner
                {
                    self.end(outcome.unwrap_or_else(|| self.launch_failure()));
                }
            }
            Life::Running(_) => {
                if !self.read_exit_of(&runner)
                    && let RunnerStatus::Gone(outcome) = runner
                {
                    tracing::warn!(task.id = %self.launch.task_id, "the shim of a task was killed, and the task with it");
                    self.end(outcome.unwrap_or(Outcome::NodeLost));
                }
            }
        }
    }

    /// Reads the end, and replaces it by the reason of the runner if that is more precise. The shim
    /// knows only that its pod was deleted, or the signal that killed the task.
    fn read_exit_of(&mut self, runner: &RunnerStatus) -> bool {
        let is_told = self.read_exit();
        let better = match (&self.life, runner) {
            (Life::Ended(told), RunnerStatus::Gone(Some(why))) => {
                let is_better = match (told, why) {
                    // The missing pod is a consequence of the failure to create it.
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

    fn launch_failure(&self) -> Outcome {
        // A shim without disk space cannot write its error.
        let folder = self.folder.path().to_owned();
        let space = self.folder.exit().reserve(1);
        let space = space.map_err(ExecutorError::write(folder));
        match space.map(|space| self.folder.exit().give_back(space)) {
            Err(error) if error.outcome().is_refusal() => return error.outcome(),
            _ => {}
        }
        let reason = self.folder.shim_errors().text().unwrap_or_default();
        let reason: String = reason.chars().take(TOLD_OF_SHIM).collect();
        let message = format!("its shim ended before it started it {}", reason.trim());
        Outcome::LaunchFailed {
            message: message.trim().to_owned(),
        }
    }

    /// Fixes the outcome that the task has once its processes have ended. The caller requests the
    /// stop.
    pub fn force_outcome(&mut self, outcome: Outcome) {
        self.forced_outcome.get_or_insert(outcome);
    }

    /// Records the end of a task that has no shim, or none any more.
    pub fn end(&mut self, outcome: Outcome) {
        let outcome = self.forced_outcome.take().unwrap_or(outcome);
        if let Err(error) = self.folder.exit().write_durably(&outcome) {
            tracing::error!(task.id = %self.launch.task_id, %error, "cannot write how a task ended");
        }
        self.life = Life::Ended(outcome);
        self.forget_secrets();
    }

    /// Removes the environment file, which remains if the shim did not start.
    fn forget_secrets(&self) {
        if let Err(error) = self.folder.environment().remove() {
            tracing::warn!(task.id = %self.launch.task_id, %error, "cannot remove the secrets of a task that has ended");
        }
    }

    /// Stores the acknowledged positions.
    pub fn store_acknowledged(&self) {
        if let Err(error) = self.folder.shipped().write_atomically(&self.acknowledged) {
            tracing::warn!(task.id = %self.launch.task_id, %error, "cannot keep what was acknowledged");
        }
    }

    /// Reports once that a file of the folder is unusable. If safe file access refuses it, for
    /// instance a link, the task's owner receives a note too.
    pub fn report_file_error(&mut self, what: &str, error: &io::Error) {
        let message = format!("{what}: {error}");
        if !self.logged.is_new(&message) {
            return;
        }
        tracing::error!(task.id = %self.launch.task_id, message, "the folder of a task");
        if is_refusal(error)
            && let Err(error) =
                events::append(&self.folder.events(), &[TaskReport::Note { message }])
        {
            tracing::warn!(task.id = %self.launch.task_id, %error, "its owner is not told");
        }
    }

    fn read_exit(&mut self) -> bool {
        match self.folder.exit().read() {
            Ok(Some(outcome)) if self.forced_outcome.is_some() => {
                self.end(outcome);
                true
            }
            Ok(Some(outcome)) => {
                self.life = Life::Ended(outcome);
                self.forget_secrets();
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.report_file_error("how it ended cannot be read", &error);
                false
            }
        }
    }

    /// Replaces the ids in a record of the task's folder that cannot be true. Signals are sent to
    /// these processes.
    fn corrected(&self, record: ShimRecord) -> ShimRecord {
        let Some(shim) = self.known_shim else {
            return record;
        };
        let is_its_child =
            process::stat(record.task.pid).is_none_or(|stat| stat.parent == shim.pid);
        let task = if is_its_child { record.task } else { shim };
        ShimRecord {
            boot_id: crate::process::boot_id(),
            shim,
            task,
        }
    }

    pub(super) fn read_record(&mut self) -> bool {
        match self.folder.shim().read() {
            Ok(Some(record)) => {
                self.life = Life::Running(self.corrected(record));
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.report_file_error("the record of its process cannot be read", &error);
                false
            }
        }
    }
}

/// Reads the task of this folder as a predecessor of this daemon left it.
pub(super) fn load(path: &Path) -> Result<LedgerEntry, String> {
    let folder = NodeTaskFolder::at(path);
    let launch = folder
        .task()
        .read()
        .map_err(|error| error.to_string())?
        .ok_or_else(|| "it has no task.json".to_owned())?;
    let peers = folder.peers().read().ok().flatten().unwrap_or_default();
    let acknowledged: AcknowledgedPositions =
        folder.shipped().read().ok().flatten().unwrap_or_default();
    let mut entry = LedgerEntry::new(folder, launch, peers, Life::Prepared);
    entry.is_asked = entry.folder.checkpoint_request().is_there();
    let events = entry
        .folder
        .events()
        .metadata()
        .map_or(0, |found| found.len());
    // A position beyond the end of the file belongs to another file. An offset above `i64::MAX` is
    // never valid.
    let mut offsets = [acknowledged.events.line, acknowledged.log_bytes].into_iter();
    let is_its_own =
        acknowledged.events.byte <= events && offsets.all(|offset| i64::try_from(offset).is_ok());
    if is_its_own {
        entry.acknowledged = acknowledged;
    }
    // Tested before the end is read: a shim that exits in between has written the end.
    let is_under_way =
        entry.folder.pod().is_there() || shim::is_locked(&entry.folder).unwrap_or(false);
    if !entry.read_exit() && !entry.read_record() && is_under_way {
        entry.life = Life::Starting;
    }
    if !entry.is_ended() {
        entry.undo_end();
    }
    Ok(entry)
}
