//! Runs of tasks that have made a request, and the destination of what they log.

use super::beat::is_of_program;
use super::error::{MlflowError, not_kept};
use super::message::{self, LogBatch};
use super::models::LoggedModels;
use super::run::MlflowRun;
use super::series::{ProgressSeries, TaskReportSummary};
use super::tensorboard::{EventReaders, claimed_names};
use crate::clock;
use crate::events;
use crate::folder::NodeTaskFolder;
use crate::ledger::Ledger;
use crate::log_once::LogOnce;
use muster_model::assignment::TaskLaunch;
use muster_model::id::TaskId;
use muster_model::task::Role;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Id of the only experiment of a program, that of its job. Every name leads to it.
pub(super) const EXPERIMENT: &str = "0";

/// Tasks that may make requests, and the runs of tasks that have made one. The node's loop and
/// the server share them.
#[derive(Debug, Clone, Default)]
pub struct TrackedRuns {
    runs: Arc<Mutex<BTreeMap<TaskId, TrackedTask>>>,
    /// From the ledger: a task can replace the launch in its own folder.
    launches: Arc<Mutex<BTreeMap<TaskId, TaskLaunch>>>,
    event_readers: EventReaders,
}

/// A task that has made a request.
#[derive(Debug)]
pub(super) struct TrackedTask {
    pub folder: NodeTaskFolder,
    pub launch: TaskLaunch,
    pub run: MlflowRun,
    pub models: LoggedModels,
    pub logged: LogOnce,
    /// Time of the last logged metric, on the clock of the lease.
    pub metric_ms: Option<u64>,
}

impl TrackedRuns {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskId, TrackedTask>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the launch of a task that may make requests.
    pub(super) fn launch(&self, task: TaskId) -> Option<TaskLaunch> {
        self.launches().get(&task).cloned()
    }

    fn launches(&self) -> MutexGuard<'_, BTreeMap<TaskId, TaskLaunch>> {
        self.launches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allows requests of a task. Call it before the task starts.
    pub fn admit(&self, launch: &TaskLaunch) {
        self.launches().insert(launch.task_id, launch.clone());
    }

    /// Allows requests of all tasks of the ledger that have not ended, and of no others.
    pub fn follow(&self, ledger: &Ledger) {
        let mut launches = self.launches();
        launches.retain(|id, _| ledger.is_live(*id));
        for (id, entry) in &ledger.entries {
            if ledger.is_live(*id) {
                launches.entry(*id).or_insert_with(|| entry.launch.clone());
            }
        }
        self.event_readers.retain(|id| launches.contains_key(id));
    }

    pub(super) fn readers(&self) -> &EventReaders {
        &self.event_readers
    }

    /// Returns the launches of users' programs that may make requests.
    pub(super) fn launches_of_programs(&self) -> Vec<TaskLaunch> {
        let launches = self.launches();
        let programs = launches.values();
        let programs = programs.filter(|launch| launch.spec.command.is_some());
        programs.cloned().collect()
    }

    /// Returns the names of the metrics that a task has logged by requests or event files.
    pub(super) fn logged_names(&self, task: TaskId) -> BTreeSet<String> {
        let runs = self.lock();
        let metrics = runs.get(&task).map(|task| task.run.metrics.keys().cloned());
        metrics.into_iter().flatten().collect()
    }

    /// Calls `act` with the state of a task, which begins here if the task has made no request.
    pub(super) fn with_task(
        &self,
        launch: &TaskLaunch,
        folder: &NodeTaskFolder,
        act: impl FnOnce(&mut TrackedTask),
    ) {
        let id = launch.task_id;
        if let Some(task) = self.lock().get_mut(&id) {
            return act(task);
        }
        // Without the lock: the events of a long task take time to read.
        match TrackedTask::begin(launch, folder) {
            Ok(task) => act(self.lock().entry(id).or_insert(task)),
            Err(error) => {
                tracing::error!(task.id = %id, error = error.message, "metrics are lost");
            }
        }
    }

    /// Returns the time of the task's last logged metric, on the clock of the lease. Metrics of the
    /// machine do not count: their thread continues while the program hangs.
    #[must_use]
    pub fn last_metric_ms(&self, task: TaskId) -> Option<u64> {
        self.lock().get(&task)?.metric_ms
    }

    /// Writes what a task that has ended has logged and what still waits. Call it before the end is
    /// reported: nothing after the end is read.
    pub fn finish(&self, launch: &TaskLaunch, folder: &NodeTaskFolder) {
        self.read_events(launch, folder, true);
        if let Some(mut run) = self.lock().remove(&launch.task_id) {
            run.flush_or_log(true);
        }
    }
}

impl TrackedTask {
    /// Returns the state of a task that has logged nothing by this daemon.
    pub(super) fn begin(launch: &TaskLaunch, folder: &NodeTaskFolder) -> Result<Self, MlflowError> {
        let mut run = MlflowRun::new(series(launch, folder)?).following(launch, folder);
        // Before the first request, which may be for a name of an event file.
        run.claimed_by_events = claimed_names(folder);
        Ok(Self {
            run,
            folder: folder.clone(),
            launch: launch.clone(),
            models: LoggedModels::default(),
            logged: LogOnce::default(),
            metric_ms: None,
        })
    }

    pub(super) fn log(&mut self, batch: LogBatch) -> Result<Value, MlflowError> {
        self.log_at(batch, clock::boottime_ms())?;
        Ok(json!({}))
    }

    pub(super) fn log_at(&mut self, batch: LogBatch, now_ms: u64) -> Result<(), MlflowError> {
        let file = self.folder.events();
        let has_metric = batch.metrics.iter().any(is_of_program);
        self.run.log(batch, now_ms, |reports| {
            events::append(&file, reports).map_err(not_kept)
        })?;
        if has_metric {
            self.metric_ms = Some(now_ms);
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, at_once: bool) -> Result<(), MlflowError> {
        let file = self.folder.events();
        self.run.flush(clock::boottime_ms(), at_once, |reports| {
            events::append(&file, reports).map_err(not_kept)
        })
    }

    pub(super) fn flush_or_log(&mut self, at_once: bool) {
        if let Err(refusal) = self.flush(at_once)
            && self.logged.is_new(&refusal.message)
        {
            tracing::error!(task.id = %self.launch.task_id, error = refusal.message, "a sample waits");
        }
    }

    pub(super) fn shown(&self) -> Value {
        let run = &self.run;
        message::run(&self.info(), &run.metrics, &run.params, &run.tags)
    }

    pub(super) fn info(&self) -> Value {
        let id = self.launch.job_id.0.simple().to_string();
        let name = self.run.name.as_ref().unwrap_or(&self.launch.spec.name);
        json!({
            "run_id": id, "run_uuid": id, "run_name": name, "experiment_id": EXPERIMENT, "user_id": "",
            "status": self.run.status, "start_time": 0, "end_time": self.run.end_ms,
            "artifact_uri": self.artifacts(), "lifecycle_stage": "active",
        })
    }

    /// Returns the only experiment. It has any name that the program gives.
    pub(super) fn experiment(&self, name: Option<&str>) -> Value {
        json!({
            "experiment_id": EXPERIMENT, "name": name.unwrap_or(&self.launch.spec.name),
            "lifecycle_stage": "active", "artifact_location": self.artifacts(), "creation_time": 0,
            "last_update_time": 0, "tags": [],
        })
    }

    /// Returns the URI of the folder of artifacts.
    pub(super) fn artifacts(&self) -> String {
        artifact_uri(&self.launch)
    }
}

/// Returns the URI of the folder of the job's artifacts.
pub(super) fn artifact_uri(launch: &TaskLaunch) -> String {
    format!("mlflow-artifacts:/{}", artifact_root(launch))
}

/// Returns its path in MLflow's artifact repository.
pub(super) fn artifact_root(launch: &TaskLaunch) -> String {
    format!("{EXPERIMENT}/{}/artifacts", launch.job_id.0.simple())
}

/// Returns the series of rank 0, continued from the events that an earlier daemon stored.
fn series(
    launch: &TaskLaunch,
    folder: &NodeTaskFolder,
) -> Result<Option<ProgressSeries>, MlflowError> {
    if launch.role != (Role::Worker { rank: 0 }) {
        return Ok(None);
    }
    let mut told = TaskReportSummary::default();
    events::each(&folder.events(), |report| told.hear(report)).map_err(not_kept)?;
    let series = ProgressSeries::new(launch.revision <= 1, launch.workers, launch.ps_shards, told);
    Ok(Some(series.with_objectives(&launch.objectives)))
}
