//! Pod runtime: each task is a pod on this node that mounts the task's folder and runs the same
//! shim.
//!
//! The files of the folder have the same meaning as for processes. There are three differences. The
//! state of a shim comes from its pod and the lock of the folder, because the pod has its own
//! process ids. A stop deletes the pod, and the kubelet sends SIGTERM. A pod holds the resources
//! that Kubernetes counts until it has ended.

mod answer;
mod claims;
mod job_pod;
mod mirror;
mod mount_allow_list;
mod mounts;
mod program;
mod records;
mod retry;
mod server;
mod status;
mod template;

pub use job_pod::PathTaken;
pub use template::{Template, TemplateError};

use self::mirror::{Mirror, PodCreation, PodPresence, PodRequest};
use self::records::PodRecords;
use self::server::PodApiClient;
use self::status::{PodWaitReason, TaskPodStatus};
use super::sockets::{self, Sockets};
use super::{RunnerStatus, Runtime, ShimCommand};
use crate::clock;
use crate::config::ExecutorConfig;
use crate::error::ExecutorError;
use crate::ledger::{Ledger, LedgerEntry, Life, NOT_MADE};
use crate::loop_event::NodeLoopEvent;
use crate::shim;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use muster_model::id::TaskId;
use muster_model::place::Place;
use muster_model::task::Outcome;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Interval of searches for pods that no task needs.
const TIDY_EVERY_MS: u64 = 500;
/// Interval of warnings about an API server that has not listed the pods.
const COMPLAIN_EVERY_MS: u64 = 30_000;
/// Delay of the report of a placement rejection by the node. It exceeds the time in which the
/// operator observes the pods of other workloads.
const REFUSED_FOR_MS: u64 = 10_000;
/// Variables that the image sets.
const OF_THE_IMAGE: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

#[derive(Debug)]
pub struct PodRuntime {
    template: Template,
    mirror: Arc<Mirror>,
    /// Time limits of a pod without a shim: for a cause that waiting does not remove, and for any
    /// cause.
    stuck_ms: u64,
    start_ms: u64,
    waiting: BTreeMap<TaskId, UnstartedPod>,
    /// Time since which no pod can be created for a task.
    uncreated_since_ms: BTreeMap<TaskId, u64>,
    /// Time at which the node was first seen to reject a task's pod.
    refused: BTreeMap<TaskId, u64>,
    records: PodRecords,
    sockets: Sockets,
    /// Tasks whose shims had vanished before their stop was requested.
    vanished: BTreeSet<TaskId>,
    tidied_at_ms: u64,
    /// Time of the next warning about a silent API server.
    next_warning_ms: u64,
}

/// A pod that has not started.
#[derive(Debug)]
struct UnstartedPod {
    since_ms: u64,
    /// Time since which the cause is one that waiting does not remove.
    persistent_since_ms: Option<u64>,
    why: String,
}

impl PodRuntime {
    /// Begins to watch this executor's pods and wakes the node loop by `loop_events`; requires a
    /// tokio runtime. The API server may be unreachable: running tasks continue, and their state is
    /// in their folders.
    ///
    /// # Errors
    /// If the template is invalid, or if no configuration names an API server.
    pub async fn start(
        config: &ExecutorConfig,
        has_gpus: bool,
        loop_events: Sender<NodeLoopEvent>,
    ) -> Result<Self, ExecutorError> {
        let path = config
            .pod_template
            .as_ref()
            .expect("checked with the settings");
        let mut template = Template::new(Template::read(path)?);
        let settings = kube::Config::infer().await;
        let settings = settings.map_err(kube::Error::InferConfig);
        let client = settings
            .and_then(server::client)
            .map_err(ExecutorError::kubernetes("connect to it"))?;
        template.namespace = config
            .pod_namespace
            .clone()
            .unwrap_or_else(|| client.default_namespace().to_owned());
        template.node.clone_from(&config.pod_node);
        template.executor.clone_from(&config.node_name);
        template.group.clone_from(&config.pod_group);
        template.gpu_resource.clone_from(&config.pod_gpu_resource);
        template
            .engine_account
            .clone_from(&config.pod_engine_account);
        template.has_gpus = has_gpus;
        let program = std::env::current_exe().map_err(ExecutorError::read("/proc/self/exe"))?;
        template.program = program.to_string_lossy().into_owned();
        template.data.clone_from(&config.data_dir);
        if let Place::Folder(root) = &config.checkpoint_root {
            template.checkpoints = Some(root.clone());
        }
        let shown = config.data_of_shims();
        fs::create_dir_all(&shown).map_err(ExecutorError::write(shown))?;
        let data = &config.data_dir;
        let records = PodRecords::open(data).map_err(ExecutorError::write(data))?;
        let sockets = Sockets::open(data).map_err(ExecutorError::write(data))?;
        let api = Api::<Pod>::namespaced(client, &template.namespace);
        let mirror = Arc::new(Mirror::default());
        let server = PodApiClient {
            api,
            selector: template.selector(),
            node: template.node.clone(),
            own: config.pod_name.clone(),
            mirror: Arc::clone(&mirror),
            loop_events,
        };
        tokio::spawn(server.serve());
        Ok(Self {
            template,
            mirror,
            stuck_ms: config.pod_stuck_ms,
            start_ms: config.pod_start_ms,
            waiting: BTreeMap::new(),
            uncreated_since_ms: BTreeMap::new(),
            refused: BTreeMap::new(),
            records,
            sockets,
            vanished: BTreeSet::new(),
            tidied_at_ms: 0,
            next_warning_ms: clock::boottime_ms() + COMPLAIN_EVERY_MS,
        })
    }

    /// Corrects the ledger, which was read from the task folders, by the executor's own records.
    pub fn correct(&self, ledger: &mut Ledger) {
        self.records.correct(ledger);
    }

    /// Returns the state of a pod that has not ended. A pod that does not start within its time
    /// limit is given up.
    fn waiting_status(&mut self, entry: &LedgerEntry, status: &TaskPodStatus) -> RunnerStatus {
        let id = entry.launch.task_id;
        let told_to_stop = self.records.told_to_stop(entry);
        let Some(PodWaitReason { why, is_persistent }) = &status.waits else {
            self.waiting.remove(&id);
            return RunnerStatus::Holding;
        };
        let now_ms = clock::boottime_ms();
        let waiting = self.waiting.entry(id).or_insert(UnstartedPod {
            since_ms: now_ms,
            persistent_since_ms: None,
            why: String::new(),
        });
        if waiting.why != *why {
            if *is_persistent {
                tracing::warn!(task.id = %id, why, "the pod of a task does not start");
            }
            waiting.why.clone_from(why);
        }
        waiting.persistent_since_ms =
            is_persistent.then(|| waiting.persistent_since_ms.unwrap_or(now_ms));
        // A task that has not started has written nothing: an end in its folder was written by an
        // earlier daemon that gave it up.
        let is_stuck = entry.folder.exit().is_there()
            || waiting
                .persistent_since_ms
                .is_some_and(|since_ms| now_ms >= since_ms + self.stuck_ms);
        let waited_ms = now_ms - waiting.since_ms;
        if !is_stuck && waited_ms < self.start_ms {
            return RunnerStatus::Holding;
        }
        let outcome = if told_to_stop {
            Outcome::NeverStarted
        } else if status.is_deleted {
            Outcome::pod_deleted()
        } else if is_stuck {
            Outcome::LaunchFailed {
                message: format!("its pod does not start: {why}"),
            }
        } else {
            let within_s = self.start_ms / 1_000;
            Outcome::LaunchFailed {
                message: format!("its pod did not start within {within_s} s: {why}"),
            }
        };
        self.give_up(entry, status, &outcome);
        RunnerStatus::Holding
    }

    /// Returns the state of a task whose pod does not exist yet. If the pod cannot be created, for
    /// instance because a webhook is unreachable, the task is given up after the time limit without
    /// a charge. If the server does not answer at all, the task keeps waiting: another node could
    /// not start it either.
    fn uncreated_status(&mut self, entry: &LedgerEntry) -> RunnerStatus {
        let id = entry.launch.task_id;
        let why = self.mirror.lock().creation_error(id).map(str::to_owned);
        let Some(why) = why else {
            self.uncreated_since_ms.remove(&id);
            return RunnerStatus::Holding;
        };
        let now_ms = clock::boottime_ms();
        let since_ms = *self.uncreated_since_ms.entry(id).or_insert(now_ms);
        if now_ms >= since_ms + self.start_ms {
            let within_s = self.start_ms / 1_000;
            let outcome = Outcome::Evicted {
                reason: NOT_MADE.to_owned(),
                message: format!("no pod could be made for it within {within_s} s: {why}"),
            };
            // The pod may exist nevertheless if its answer was lost: its shim then finds the end.
            match shim::end_unstarted(&entry.folder, &outcome) {
                Ok(done) if done || entry.folder.exit().is_there() => {
                    self.mirror.request(id, PodRequest::Delete);
                    self.uncreated_since_ms.remove(&id);
                }
                // A shim holds the folder, so a pod exists and the watch will report it.
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(task.id = %id, error = muster_model::error_chain::chain(&error), "a task without a pod cannot be given up");
                }
            }
        }
        RunnerStatus::Holding
    }

    /// Writes the end of a task whose pod does not start, and deletes the pod. The task holds its
    /// GPUs until the pod is gone, because Kubernetes does not release them before.
    fn give_up(&self, entry: &LedgerEntry, status: &TaskPodStatus, outcome: &Outcome) {
        let (id, folder) = (entry.launch.task_id, &entry.folder);
        // The shim may be starting; it does not start a task with an end in its folder.
        match shim::end_unstarted(folder, outcome) {
            Ok(done) => {
                let has_end = done || folder.exit().is_there();
                if has_end && !status.is_deleted && !self.mirror.lock().has_request(id) {
                    self.mirror.request(id, PodRequest::Delete);
                }
            }
            Err(error) => {
                tracing::warn!(task.id = %id, error = muster_model::error_chain::chain(&error), "a pod that does not start cannot be given up");
            }
        }
    }

    /// Logs that the API server does not answer: this executor can then neither start nor stop a
    /// task.
    fn warn_of_silence(&mut self, now_ms: u64, ledger: &Ledger) {
        if self.mirror.lock().is_complete || now_ms < self.next_warning_ms {
            return;
        }
        self.next_warning_ms = now_ms + COMPLAIN_EVERY_MS;
        let entries = ledger.entries.values();
        let tasks = entries.filter(|entry| !entry.is_ended()).count();
        tracing::warn!(
            tasks,
            "waiting for the pods of tasks from the API server of Kubernetes; running pods continue"
        );
    }

    /// Whether the node has rejected the pod within `REFUSED_FOR_MS`. A rejection costs the job
    /// nothing. Without the delay the job would be placed here again before the operator has seen
    /// the other pods.
    fn is_just_refused(&mut self, entry: &LedgerEntry, status: &TaskPodStatus) -> bool {
        let has_run = matches!(entry.life, Life::Running(_));
        if !status.is_refused(has_run) || self.records.told_to_stop(entry) {
            return false;
        }
        let now_ms = clock::boottime_ms();
        let since_ms = *self.refused.entry(entry.launch.task_id).or_insert(now_ms);
        now_ms < since_ms + REFUSED_FOR_MS
    }

    /// Returns the state of a pod that has ended or does not exist.
    fn ended_status(&self, entry: &LedgerEntry, status: Option<&TaskPodStatus>) -> RunnerStatus {
        let outcome = self.outcome(entry, status);
        // A shim exits with 0 only after it has written the outcome and all other processes have
        // ended.
        match status.and_then(|status| status.ended.as_ref()) {
            Some(ended) if ended.code != 0 => RunnerStatus::Killed(outcome),
            _ => RunnerStatus::Gone(Some(outcome)),
        }
    }

    /// Returns the outcome of the task if its shim did not write one.
    fn outcome(&self, entry: &LedgerEntry, status: Option<&TaskPodStatus>) -> Outcome {
        let has_run = matches!(entry.life, Life::Running(_));
        if self.records.told_to_stop(entry) {
            return match (has_run, &entry.launch.spec.command) {
                (false, _) => Outcome::NeverStarted,
                (true, Some(_)) => Outcome::killed_late(),
                (true, None) => Outcome::signalled(Signal::KILL.as_raw()),
            };
        }
        // The executor deleted this pod only after the task's processes had vanished.
        let has_vanished = self.vanished.contains(&entry.launch.task_id);
        match status {
            None if has_vanished => Outcome::NodeLost,
            None => Outcome::pod_deleted(),
            Some(status) if has_vanished => TaskPodStatus {
                is_deleted: false,
                ..status.clone()
            }
            .outcome(has_run),
            Some(status) => status.outcome(has_run),
        }
    }
}

impl Runtime for PodRuntime {
    fn start(
        &mut self,
        entry: &mut LedgerEntry,
        mut start: ShimCommand,
    ) -> Result<(), ExecutorError> {
        let (id, folder) = (entry.launch.task_id, &entry.folder);
        if start.environment.contains_key("CUDA_VISIBLE_DEVICES") {
            // The pod sees only its own GPUs, numbered from 0.
            let numbers: Vec<String> = (0..entry.launch.gpus.len())
                .map(|number| number.to_string())
                .collect();
            start
                .environment
                .insert("CUDA_VISIBLE_DEVICES".to_owned(), numbers.join(","));
        }
        if sockets::meets_others(&entry.launch) {
            let place = self.sockets.make(entry.launch.job_id);
            let place = place.map_err(ExecutorError::write(&self.template.data))?;
            let place = place.to_string_lossy().into_owned();
            start
                .environment
                .insert(sockets::VARIABLE.to_owned(), place);
        }
        // Not in the pod's spec: it contains secrets, and many users may read pods.
        let text = serde_json::to_string(&start.environment).expect("text is JSON");
        let file = folder.environment();
        file.write_private(&text)
            .map_err(ExecutorError::write(file.path()))?;
        start.arguments.push("--environment".into());
        start.arguments.push(file.path().into());
        if entry.launch.spec.pod.image.is_some() && self.template.shared_program.is_empty() {
            let program = Path::new(&self.template.program);
            let shared = program::shared(program, &self.template.data)?;
            self.template.shared_program = shared.to_string_lossy().into_owned();
        }
        let creation = PodCreation {
            pod: self
                .template
                .pod(&entry.launch, &start.arguments, start.limits)?,
            folders: self.template.checkpoint_folders(&entry.launch),
        };
        self.records
            .begin(&entry.launch, folder)
            .map_err(ExecutorError::write(folder.pod()))?;
        self.mirror
            .request(id, PodRequest::Create(Box::new(creation)));
        Ok(())
    }

    fn stop(&mut self, entry: &LedgerEntry) -> bool {
        let id = entry.launch.task_id;
        let has_run = matches!(entry.life, Life::Running(_));
        // Peers may report a loss before its pod is known to have ended, and all tasks are stopped
        // for it. A task that vanished before the stop did not die of it. Otherwise the job would
        // be charged for a task that exceeded its grace.
        if has_run && !self.records.told_to_stop(entry) && !is_held(entry) {
            self.vanished.insert(id);
        } else if let Err(error) = self.records.stop(entry) {
            // The next daemon would only attribute the stop to another party.
            tracing::warn!(task.id = %id, %error, "cannot store the stop request of a task");
        }
        self.mirror.request(id, PodRequest::Delete);
        true
    }

    /// Does nothing: the shim reads the peers every second. Suspensions would need a faster signal,
    /// but pods have no time slices.
    fn wake(&mut self, _: &LedgerEntry) {}

    fn runner_status(&mut self, entry: &LedgerEntry) -> RunnerStatus {
        if !matches!(entry.life, Life::Starting | Life::Running(_)) {
            return RunnerStatus::Alive;
        }
        let id = entry.launch.task_id;
        let (is_complete, has_request, presence) = {
            let state = self.mirror.lock();
            let presence = state.presence(id).cloned();
            (state.is_complete, state.has_request(id), presence)
        };
        match presence {
            Some(PodPresence::Refused(words)) => RunnerStatus::Gone(Some(Outcome::LaunchFailed {
                message: format!("its pod was refused: {words}"),
            })),
            // Other parties than the kubelet may mark a pod as ended while its processes run.
            Some(PodPresence::Present(status)) if status.is_over && is_held(entry) => {
                RunnerStatus::Holding
            }
            Some(PodPresence::Present(status))
                if status.is_over && self.is_just_refused(entry, &status) =>
            {
                RunnerStatus::Holding
            }
            Some(PodPresence::Present(status)) if status.is_over => {
                self.ended_status(entry, Some(&status))
            }
            Some(PodPresence::Present(status)) => self.waiting_status(entry, &status),
            // A forced deletion removes the pod object, not its processes.
            Some(PodPresence::Absent) if is_held(entry) => RunnerStatus::Holding,
            Some(PodPresence::Absent) => self.ended_status(entry, None),
            None => {
                if is_complete && !has_request {
                    self.mirror.request(id, PodRequest::Look);
                }
                match entry.life {
                    Life::Starting if is_complete => self.uncreated_status(entry),
                    _ => RunnerStatus::Holding,
                }
            }
        }
    }

    fn notifies_of_ends(&self) -> bool {
        true
    }

    fn tidy(&mut self, ledger: &Ledger) {
        let now_ms = clock::boottime_ms();
        if now_ms < self.tidied_at_ms + TIDY_EVERY_MS {
            return;
        }
        self.tidied_at_ms = now_ms;
        self.warn_of_silence(now_ms, ledger);
        self.records.follow(ledger);
        self.sockets.tidy(ledger);
        let mut state = self.mirror.lock();
        let unneeded: Vec<TaskId> = state
            .present()
            .filter(|(id, status)| !status.is_deleted && !ledger.is_live(*id))
            .map(|(id, _)| id)
            .filter(|id| !state.has_request(*id))
            .collect();
        for id in state.gone() {
            if !ledger.is_live(id) && !state.has_request(id) {
                state.forget(id);
                self.waiting.remove(&id);
                self.uncreated_since_ms.remove(&id);
                self.refused.remove(&id);
                self.vanished.remove(&id);
            }
        }
        drop(state);
        for id in unneeded {
            tracing::info!(task.id = %id, "the pod is no longer needed");
            self.mirror.request(id, PodRequest::Delete);
        }
    }

    fn listen_host(&self) -> &str {
        template::LISTEN_HOST
    }

    fn passes(&self, variable: &str) -> bool {
        !OF_THE_IMAGE.contains(&variable)
    }
}

/// Whether a shim holds the folder; independent of the API server.
fn is_held(entry: &LedgerEntry) -> bool {
    shim::is_locked(&entry.folder).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::launch;
    use crate::limits::TaskLimits;
    use crate::process::ProcessId;
    use crate::shim::ShimRecord;
    use muster_model::assignment::{Peers, TaskLaunch};
    use serde_json::json;

    const TEMPLATE: &str = "spec: { containers: [{ name: task, image: b }] }";

    fn pods(start_ms: u64) -> PodRuntime {
        PodRuntime {
            template: Template::new(Template::parse(TEMPLATE).expect("a template")),
            mirror: Arc::new(Mirror::default()),
            stuck_ms: 0,
            start_ms,
            waiting: BTreeMap::new(),
            uncreated_since_ms: BTreeMap::new(),
            refused: BTreeMap::new(),
            records: PodRecords::default(),
            sockets: Sockets::default(),
            vanished: BTreeSet::new(),
            tidied_at_ms: 0,
            next_warning_ms: 0,
        }
    }

    /// Prepares a task that is starting and whose pod could not be created.
    fn refused(pods: &PodRuntime, ledger: &mut Ledger) -> TaskId {
        let launch = launch();
        let peers = Peers::default();
        ledger.prepare(&launch, &peers).expect("our own folder");
        let id = launch.task_id;
        let entry = ledger.entries.get_mut(&id).expect("just made");
        entry.life = Life::Starting;
        pods.mirror.lock().record_all(BTreeMap::new());
        let request = PodRequest::Create(Box::new(PodCreation {
            pod: pods
                .template
                .pod(&launch, &[], TaskLimits::default())
                .expect("it has no paths"),
            folders: Vec::new(),
        }));
        pods.mirror.request(id, request.clone());
        pods.mirror
            .lock()
            .fail(id, &request, Some("a webhook is away".to_owned()));
        id
    }

    #[test]
    fn task_without_a_pod_is_given_up_after_the_time_limit() {
        let place = tempfile::tempdir().expect("a folder");
        let mut ledger = Ledger::open(place.path()).expect("our own folder");
        let mut patient = pods(60_000);
        let id = refused(&patient, &mut ledger);
        let entry = &ledger.entries[&id];
        assert_eq!(patient.runner_status(entry), RunnerStatus::Holding);
        assert!(!entry.folder.exit().is_there(), "it is asked for again");
        assert!(patient.mirror.lock().creation_error(id).is_some());

        let place = tempfile::tempdir().expect("a folder");
        let mut ledger = Ledger::open(place.path()).expect("our own folder");
        let mut hasty = pods(0);
        let _ = refused(&hasty, &mut ledger);
        let entry = ledger.entries.get_mut(&id).expect("it is there");
        assert_eq!(
            hasty.runner_status(entry),
            RunnerStatus::Holding,
            "it may be there after all"
        );
        let requests = hasty.mirror.lock().requests();
        assert_eq!(requests, [(id, PodRequest::Delete)]);
        hasty.mirror.lock().record_answer(id, PodPresence::Absent);
        hasty.mirror.lock().fulfil(id, &PodRequest::Delete);
        let runner_status = hasty.runner_status(entry);
        entry.refresh(runner_status);
        let Life::Ended(outcome) = &entry.life else {
            panic!("{:?}", entry.life);
        };
        let text = outcome.to_string();
        assert!(text.contains("a webhook is away"), "{text}");
        assert!(outcome.is_node_fault(), "no retry of the job's is charged");
    }

    /// Prepares a task that runs according to the ledger.
    fn running(ledger: &mut Ledger) -> &LedgerEntry {
        let launch = launch();
        ledger
            .prepare(&launch, &Peers::default())
            .expect("our own folder");
        let entry = ledger.entries.get_mut(&launch.task_id).expect("just made");
        let own = ProcessId {
            pid: 1,
            start_ticks: 1,
        };
        entry.life = Life::Running(ShimRecord {
            boot_id: crate::process::boot_id(),
            shim: own,
            task: own,
        });
        entry
    }

    fn over(reason: &str) -> PodPresence {
        over_with(reason, 137)
    }

    fn over_with(reason: &str, code: i32) -> PodPresence {
        let ended = json!({ "exitCode": code, "reason": reason });
        let container = json!({ "name": "task", "image": "b", "imageID": "", "ready": false, "restartCount": 0, "state": { "terminated": ended } });
        let pod = json!({
            "metadata": { "name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "status": { "phase": "Failed", "containerStatuses": [container] },
        });
        let pod = serde_json::from_value(pod).expect("a pod");
        PodPresence::Present(Box::new(TaskPodStatus::of(&pod)))
    }

    #[test]
    fn task_that_vanished_before_its_stop_is_not_killed_late() {
        for (presence, expected) in [
            (over("Error"), RunnerStatus::Killed(Outcome::NodeLost)),
            (
                over("OOMKilled"),
                RunnerStatus::Killed(Outcome::OutOfMemory),
            ),
            (
                PodPresence::Absent,
                RunnerStatus::Gone(Some(Outcome::NodeLost)),
            ),
        ] {
            let place = tempfile::tempdir().expect("a folder");
            let mut ledger = Ledger::open(place.path()).expect("our own folder");
            let entry = running(&mut ledger);
            let mut pods = pods(60_000);
            assert!(pods.stop(entry));
            let requests = pods.mirror.lock().requests();
            assert_eq!(requests, [(entry.launch.task_id, PodRequest::Delete)]);
            pods.mirror.lock().record(entry.launch.task_id, presence);
            assert_eq!(pods.runner_status(entry), expected);
        }
    }

    #[test]
    fn task_that_exceeds_its_grace_after_a_stop_is_killed_late() {
        let place = tempfile::tempdir().expect("a folder");
        let mut ledger = Ledger::open(place.path()).expect("our own folder");
        let entry = running(&mut ledger);
        let mut pods = pods(60_000);
        let shim = entry.folder.lock().hold(true).expect("our own folder");
        shim.try_lock().expect("it is free");
        assert!(pods.stop(entry));
        drop(shim);
        // Requested again, because the pod still exists.
        assert!(pods.stop(entry));
        let id = entry.launch.task_id;
        pods.mirror.lock().record(id, over("Error"));
        let killed = Outcome::killed_late();
        assert_eq!(pods.runner_status(entry), RunnerStatus::Killed(killed));
    }

    /// The shim was killed, for instance for the task's memory use, after the task had written an
    /// end.
    #[test]
    fn end_in_the_folder_of_a_killed_shim_is_ignored() {
        let written = Outcome::NodeLost;
        for (code, expected) in [(137, Outcome::pod_deleted()), (0, written.clone())] {
            let place = tempfile::tempdir().expect("a folder");
            let mut ledger = Ledger::open(place.path()).expect("our own folder");
            let id = running(&mut ledger).launch.task_id;
            let entry = ledger.entries.get_mut(&id).expect("just made");
            let exit = entry.folder.exit();
            exit.write_durably(&written).expect("our own folder");
            let mut pods = pods(60_000);
            pods.mirror.lock().record(id, over_with("Error", code));
            let runner_status = pods.runner_status(entry);
            entry.refresh(runner_status);
            assert_eq!(entry.life, Life::Ended(expected), "{code}");
        }
    }

    /// A task can write its folder, and so everything that a new daemon reads there.
    #[test]
    fn forged_end_or_launch_is_ignored_while_the_pod_exists() {
        let place = tempfile::tempdir().expect("a folder");
        let id = {
            let mut ledger = Ledger::open(place.path()).expect("our own folder");
            let entry = running(&mut ledger);
            let mut pods = kept_in(place.path());
            let (launch, folder) = (&entry.launch, &entry.folder);
            pods.records.begin(launch, folder).expect("our own folder");
            let forged = TaskLaunch {
                gpus: vec![7],
                ..launch.clone()
            };
            let exit = folder.exit();
            exit.write_durably(&Outcome::exited(0)).expect("written");
            folder.task().write_durably(&forged).expect("written");
            folder.pod().remove().expect("removed");
            launch.task_id
        };
        let mut ledger = Ledger::open(place.path()).expect("our own folder");
        assert!(ledger.entries[&id].is_ended(), "so it says");
        let mut pods = kept_in(place.path());
        pods.correct(&mut ledger);
        let entry = ledger.entries.get_mut(&id).expect("it is there");
        assert_eq!(
            (&entry.life, &entry.launch.gpus[..]),
            (&Life::Starting, &[0][..])
        );
        let container = json!({ "name": "task", "image": "b", "imageID": "", "ready": true, "restartCount": 0, "state": { "running": {} } });
        let status = json!({ "phase": "Running", "containerStatuses": [container] });
        let pod = json!({ "metadata": { "name": "x" }, "status": status });
        let pod = serde_json::from_value(pod).expect("a pod");
        let present = PodPresence::Present(Box::new(TaskPodStatus::of(&pod)));
        pods.mirror.lock().record(id, present);
        let runner_status = pods.runner_status(entry);
        entry.refresh(runner_status);
        assert!(!entry.is_ended(), "its pod runs");
        pods.mirror.lock().record(id, over_with("Completed", 0));
        let runner_status = pods.runner_status(entry);
        entry.refresh(runner_status);
        let ended = Life::Ended(Outcome::exited(0));
        assert_eq!(entry.life, ended, "its shim has ended well and wrote that");
        pods.records.follow(&ledger);

        // From here on the record decides, and not the folder.
        let folder = ledger.entries[&id].folder.clone();
        folder.exit().remove().expect("removed");
        let mut ledger = Ledger::open(place.path()).expect("our own folder");
        kept_in(place.path()).correct(&mut ledger);
        assert_eq!(ledger.entries[&id].life, ended);
        fs::remove_dir_all(folder.path()).expect("removed");
        let mut ledger = Ledger::open(place.path()).expect("our own folder");
        let mut pods = kept_in(place.path());
        pods.correct(&mut ledger);
        assert!(ledger.entries.is_empty(), "it was let go");
        pods.records.follow(&ledger);
        let left = fs::read_dir(place.path().join("pods")).expect("there");
        assert_eq!(left.count(), 0);
    }

    /// A folder that the task has damaged does not prove that the task has ended.
    #[test]
    fn task_without_its_folder_is_known_while_its_pod_may_exist() {
        let place = tempfile::tempdir().expect("a folder");
        let mut ledger = Ledger::open(place.path()).expect("our own folder");
        let entry = running(&mut ledger);
        let (id, folder) = (entry.launch.task_id, entry.folder.clone());
        let mut pods = kept_in(place.path());
        pods.records.begin(&entry.launch, &folder).expect("kept");
        pods.records.stop(entry).expect("kept");
        folder.task().remove().expect("removed");
        let mut ledger = Ledger::open(place.path()).expect("our own folder");
        assert!(ledger.entries.is_empty(), "it cannot be read");
        let pods = kept_in(place.path());
        pods.correct(&mut ledger);
        let entry = &ledger.entries[&id];
        assert_eq!(entry.life, Life::Starting);
        assert!(pods.records.told_to_stop(entry));
    }

    fn kept_in(data: &Path) -> PodRuntime {
        PodRuntime {
            records: PodRecords::open(data).expect("our own folder"),
            ..pods(60_000)
        }
    }

    #[test]
    fn task_keeps_a_pod_whose_creation_was_not_answered() {
        let place = tempfile::tempdir().expect("a folder");
        let mut ledger = Ledger::open(place.path()).expect("our own folder");
        let mut hasty = pods(0);
        let id = refused(&hasty, &mut ledger);
        let entry = &ledger.entries[&id];
        // The pod was created and the answer was lost: its shim holds the folder.
        let shim = entry.folder.lock().hold(true).expect("our own folder");
        shim.try_lock().expect("it is free");
        assert_eq!(hasty.runner_status(entry), RunnerStatus::Holding);
        assert!(!entry.folder.exit().is_there());
        let requests = hasty.mirror.lock().requests();
        assert!(
            matches!(requests[..], [(_, PodRequest::Create(_))]),
            "asked for until it is known: {requests:?}"
        );
    }

    /// The pod was deleted by another party and still exists: the actions of each poll must cause
    /// no notification.
    #[test]
    fn deleted_pod_that_remains_causes_no_notification() {
        let place = tempfile::tempdir().expect("a folder");
        let mut ledger = Ledger::open(place.path()).expect("our own folder");
        let mut pods = pods(0);
        let id = refused(&pods, &mut ledger);
        let status = json!({ "phase": "Pending", "containerStatuses": [] });
        let pod = json!({ "metadata": { "name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z" }, "status": status });
        let pod = serde_json::from_value(pod).expect("a pod");
        let presence = || PodPresence::Present(Box::new(TaskPodStatus::of(&pod)));
        let (sender, loop_events) = std::sync::mpsc::channel();
        let mut watcher = crate::watcher::TaskFolderWatcher::new(sender);
        watcher.follow(&ledger);
        let a_while = std::time::Duration::from_millis(60);
        let look = |pods: &mut PodRuntime, times: usize| {
            let mut wakes = 0;
            for _ in 0..times {
                pods.mirror.lock().record(id, presence());
                assert_eq!(
                    pods.runner_status(&ledger.entries[&id]),
                    RunnerStatus::Holding
                );
                if loop_events.recv_timeout(a_while).is_ok() {
                    wakes += 1;
                }
            }
            wakes
        };
        assert!(look(&mut pods, 1) <= 1, "the end is written once");
        let _ = loop_events.recv_timeout(a_while);
        assert_eq!(look(&mut pods, 10), 0, "and heard of no more");
    }

    #[test]
    fn pod_whose_shim_holds_the_folder_causes_no_notification() {
        let place = tempfile::tempdir().expect("a folder");
        let mut ledger = Ledger::open(place.path()).expect("our own folder");
        let mut hasty = pods(0);
        let id = refused(&hasty, &mut ledger);
        let entry = &ledger.entries[&id];
        let shim = entry.folder.lock().hold(true).expect("our own folder");
        shim.try_lock().expect("it is free");
        let (sender, loop_events) = std::sync::mpsc::channel();
        let mut watcher = crate::watcher::TaskFolderWatcher::new(sender);
        watcher.follow(&ledger);
        for _ in 0..5 {
            assert_eq!(hasty.runner_status(entry), RunnerStatus::Holding);
        }
        let a_while = std::time::Duration::from_millis(60);
        assert!(
            loop_events.recv_timeout(a_while).is_err(),
            "nothing has happened"
        );
    }
}
