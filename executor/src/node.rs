//! The node loop, on one thread: poll, compare, act, report.
//!
//! Only this loop accesses the ledger. All other threads send it a [`NodeLoopEvent`], so it needs
//! no locks and a slow disk delays no heartbeat. It sleeps until the next event as long as the
//! kernel notifies it of changes in all task folders.

use crate::activity::ActivityMonitor;
use crate::artifact::OutputUploads;
use crate::clock;
use crate::config::ExecutorConfig;
use crate::disk_monitor::DiskMonitor;
use crate::error::ExecutorError;
use crate::launch::Launcher;
use crate::ledger::{Ledger, Life};
use crate::loop_event::{DecodedAssignment, NodeLoopEvent};
use crate::metrics::{ExecutorMetrics, WokenBy};
use crate::poll_interval::{LONGEST_MS, PollTimer, SOON_MS};
use crate::reconcile::{Desired, DesiredTask, ReconcileStep, steps};
use crate::report::ReportOutbox;
use crate::tracking::TrackedRuns;
use crate::usage_sampler::UsageSampler;
use crate::watcher::TaskFolderWatcher;
use muster_model::assignment::TaskLaunch;
use muster_model::error_chain::chain;
use muster_model::id::TaskId;
use muster_model::task::Outcome;
use muster_proto::session::Report;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use tokio::sync::mpsc::UnboundedSender;

/// First pause before a retry of an assignment whose generation could not be stored. It doubles.
const FIRST_PAUSE_MS: u64 = 200;
const LONGEST_PAUSE_MS: u64 = 5_000;
/// Limit of the wait for the acknowledgement of the last reports when the daemon leaves.
const LAST_REPORTS_MS: u64 = 3_000;

#[derive(Debug)]
struct PendingAssignment {
    assigned: DecodedAssignment,
    /// Time of the next try.
    at_ms: u64,
    pause_ms: u64,
}

#[derive(Debug)]
pub struct NodeLoop {
    config: ExecutorConfig,
    ledger: Ledger,
    launcher: Launcher,
    tracked: TrackedRuns,
    outputs: OutputUploads,
    watcher: TaskFolderWatcher,
    usage_sampler: UsageSampler,
    activity: ActivityMonitor,
    metrics: ExecutorMetrics,
    poll_timer: PollTimer,
    outbox: ReportOutbox,
    desired: Option<Desired>,
    launches: BTreeMap<TaskId, TaskLaunch>,
    session: Option<UnboundedSender<Report>>,
    disk_monitor: DiskMonitor,
    /// An assignment whose generation could not be stored yet.
    pending: Option<PendingAssignment>,
    /// Generation of the ledger, for the session's `Hello`.
    generation: Arc<AtomicU64>,
    is_leaving: bool,
    /// Time at which the last task had ended while the daemon leaves.
    ended_at_ms: Option<u64>,
}

impl NodeLoop {
    #[must_use]
    pub fn new(
        config: ExecutorConfig,
        ledger: Ledger,
        launcher: Launcher,
        (tracked, outputs): (TrackedRuns, OutputUploads),
        watcher: TaskFolderWatcher,
        (usage_sampler, activity, metrics): (UsageSampler, ActivityMonitor, ExecutorMetrics),
        disk_monitor: DiskMonitor,
    ) -> Self {
        let generation = Arc::new(AtomicU64::new(ledger.generation));
        Self {
            config,
            ledger,
            launcher,
            tracked,
            outputs,
            watcher,
            usage_sampler,
            activity,
            metrics,
            poll_timer: PollTimer::default(),
            outbox: ReportOutbox::default(),
            desired: None,
            launches: BTreeMap::new(),
            session: None,
            disk_monitor,
            pending: None,
            generation,
            is_leaving: false,
            ended_at_ms: None,
        }
    }

    /// Returns the newest accepted generation.
    #[must_use]
    pub fn generation(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.generation)
    }

    /// Runs until [`NodeLoopEvent::Leave`].
    pub fn run(mut self, events: &Receiver<NodeLoopEvent>) {
        self.observe();
        loop {
            let left = self.poll_timer.left(clock::boottime_ms());
            let mut event = match events.recv_timeout(left) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut woken_by = None;
            while let Some(next) = event {
                if matches!(next, NodeLoopEvent::Leave { stop_tasks: false }) {
                    return;
                }
                let source = next.source();
                self.handle(next);
                if self.poll_timer.left(clock::boottime_ms()).is_zero() {
                    woken_by = woken_by.or(Some(source));
                }
                event = events.try_recv().ok();
            }
            let now_ms = clock::boottime_ms();
            if !self.poll_timer.left(now_ms).is_zero() {
                continue;
            }
            self.metrics.woken(woken_by.unwrap_or(WokenBy::Time));
            self.poll_timer.polled(now_ms, self.longest_ms());
            self.observe();
            self.retry_assignment(now_ms);
            self.reconcile();
            self.metrics.update(&self.ledger);
            self.report();
            if self.is_leaving && self.may_leave() {
                return;
            }
        }
    }

    fn handle(&mut self, event: NodeLoopEvent) {
        match event {
            NodeLoopEvent::Acknowledged(_) => self.poll_timer.poll_by(0),
            NodeLoopEvent::Grown if self.session.is_none() => {}
            NodeLoopEvent::Grown => {
                let interval_ms = self.config.report_interval_ms;
                self.poll_timer.poll_by(self.outbox.due_ms(interval_ms));
            }
            _ => self.poll_timer.reset(),
        }
        match event {
            NodeLoopEvent::Connected(session) => {
                self.outbox.restart();
                self.session = Some(session);
            }
            NodeLoopEvent::ReportAll => self.ledger.report_all(),
            NodeLoopEvent::Disconnected => self.session = None,
            NodeLoopEvent::Acknowledged(number) => {
                self.outbox.acknowledge(number, &mut self.ledger)
            }
            NodeLoopEvent::Assigned(assigned) => {
                self.pending = None;
                self.assign(assigned);
            }
            NodeLoopEvent::End(id, outcome) => self.end(id, outcome),
            NodeLoopEvent::Leave { .. } => self.is_leaving = true,
            NodeLoopEvent::Look | NodeLoopEvent::Grown => {}
        }
    }

    /// Longest poll interval. It is short while a task exists whose changes cause no notification.
    fn longest_ms(&self) -> u64 {
        let report_ms = self.config.report_interval_ms;
        let entries = self.ledger.entries.iter();
        let of_tasks = entries.map(|(id, entry)| match entry.life {
            _ if self.watcher.is_watching(*id) || entry.is_ended() => LONGEST_MS,
            // Its end wakes the loop; only its reports cause no notification.
            Life::Running(_) if self.launcher.notifies_of_ends() => report_ms.max(SOON_MS),
            _ => SOON_MS,
        });
        let longest_ms = if self.is_leaving { SOON_MS } else { LONGEST_MS };
        of_tasks.min().unwrap_or(LONGEST_MS).min(longest_ms)
    }

    fn assign(&mut self, assigned: DecodedAssignment) {
        let newest = self.ledger.generation;
        if assigned.generation < newest {
            tracing::warn!(
                generation = assigned.generation,
                newest,
                "refused an assignment older than the newest"
            );
            return;
        }
        if let Err(error) = self.ledger.store_generation(assigned.generation) {
            self.postpone(assigned, &error);
            return;
        }
        self.generation
            .store(assigned.generation, Ordering::Relaxed);
        let tasks = assigned.tasks.iter().map(|task| {
            let wanted = DesiredTask {
                gpus: task.launch.gpus.clone(),
                peers: task.peers.clone(),
                stop: task.stop,
                asks: task.asks,
            };
            (task.launch.task_id, wanted)
        });
        self.desired = Some(Desired {
            generation: assigned.generation,
            tasks: tasks.collect(),
        });
        self.launches = assigned
            .tasks
            .into_iter()
            .map(|task| (task.launch.task_id, task.launch))
            .collect();
        for id in self.launches.keys() {
            // Forgotten but assigned: the scheduler has not stored the end, so it is reported
            // again.
            if let Some(entry) = self
                .ledger
                .entries
                .get_mut(id)
                .filter(|entry| entry.is_forgotten())
            {
                entry.acknowledged.forgotten_at_unix_ms = None;
            }
        }
    }

    /// Postpones an assignment. A restarted daemon must know the newest generation, so the loop
    /// acts on an assignment only after the generation is stored.
    fn postpone(&mut self, assigned: DecodedAssignment, error: &ExecutorError) {
        let before_ms = self.pending.as_ref().map(|pending| pending.pause_ms);
        let pause_ms = before_ms.map_or(FIRST_PAUSE_MS, |before_ms| {
            (before_ms * 2).min(LONGEST_PAUSE_MS)
        });
        let generation = assigned.generation;
        tracing::error!(error = %chain(error), generation, pause_ms, "an assignment waits: its generation cannot be kept");
        let at_ms = clock::boottime_ms() + pause_ms;
        self.poll_timer.poll_by(at_ms);
        self.pending = Some(PendingAssignment {
            assigned,
            at_ms,
            pause_ms,
        });
    }

    fn retry_assignment(&mut self, now_ms: u64) {
        let Some(pending) = self
            .pending
            .as_ref()
            .filter(|pending| now_ms >= pending.at_ms)
        else {
            return;
        };
        let (assigned, generation) = (pending.assigned.clone(), pending.assigned.generation);
        self.assign(assigned);
        if self.ledger.generation >= generation {
            self.pending = None;
        }
    }

    /// Ends a task because of the disk space that it uses. The task's outcome is the given one and
    /// not that of its process.
    fn end(&mut self, id: TaskId, outcome: Outcome) {
        if let Some(entry) = self
            .ledger
            .entries
            .get_mut(&id)
            .filter(|entry| !entry.is_ended())
        {
            tracing::warn!(task.id = %id, why = %outcome, "a task is ended");
            entry.force_outcome(outcome);
            self.launcher.stop(entry);
        }
    }

    fn observe(&mut self) {
        self.watcher.follow(&self.ledger);
        for entry in self
            .ledger
            .entries
            .values_mut()
            .filter(|entry| !entry.is_forgotten())
        {
            let runner_status = self.launcher.runner_status(entry);
            let had_ended = entry.is_ended();
            entry.refresh(runner_status);
            if entry.is_ended() && !had_ended {
                self.tracked.finish(&entry.launch, &entry.folder);
            }
        }
        self.tracked.follow(&self.ledger);
        self.outputs.follow(&mut self.ledger);
        self.launcher.tidy(&self.ledger);
        self.disk_monitor.follow(&self.ledger);
        if self.disk_monitor.unfit().is_some() {
            // Folders of ended tasks, kept for inspection, are removed before a running task is
            // ended.
            self.ledger.prune(0, 0);
            self.launcher.free_disk();
        }
        if self.usage_sampler.is_requested() {
            self.usage_sampler.watch(self.ledger.sampled_tasks());
        }
        if self.activity.is_running() {
            self.activity.watch(self.ledger.watched_programs());
        }
    }

    fn reconcile(&mut self) {
        let observed = self.ledger.observation();
        let due = if self.is_leaving {
            steps(Some(&leaving(&self.ledger)), &observed)
        } else {
            steps(self.desired.as_ref(), &observed)
        };
        for step in due {
            tracing::debug!(?step, "executor.reconcile");
            self.perform(step);
        }
    }

    fn perform(&mut self, step: ReconcileStep) {
        match step {
            ReconcileStep::Launch(id) => {
                self.prepare(id);
                if let Some(entry) = self
                    .ledger
                    .entries
                    .get_mut(&id)
                    .filter(|entry| !entry.is_ended())
                    && let Some(place) = self.launcher.place_of(entry)
                {
                    self.metrics.launched(&entry.launch);
                    self.tracked.admit(&entry.launch);
                    self.launcher.launch(entry, place);
                }
            }
            ReconcileStep::Withdraw(id) => {
                self.prepare(id);
                if let Some(entry) = self
                    .ledger
                    .entries
                    .get_mut(&id)
                    .filter(|entry| !entry.is_ended())
                {
                    entry.end(Outcome::NeverStarted);
                }
            }
            ReconcileStep::WritePeers(id) => {
                let wanted = self
                    .desired
                    .as_ref()
                    .and_then(|desired| desired.tasks.get(&id));
                if let (Some(wanted), Some(entry)) = (wanted, self.ledger.entries.get_mut(&id)) {
                    self.launcher.write_peers(entry, &wanted.peers);
                }
            }
            ReconcileStep::Stop(id) => {
                if let Some(entry) = self.ledger.entries.get_mut(&id) {
                    self.launcher.stop(entry);
                }
            }
            ReconcileStep::Ask(id) => {
                if let Some(entry) = self.ledger.entries.get_mut(&id) {
                    self.launcher.ask(entry);
                }
            }
            ReconcileStep::Forget(id) => self.forget(id),
        }
    }

    fn forget(&mut self, id: TaskId) {
        let Some(entry) = self.ledger.entries.get_mut(&id) else {
            return;
        };
        entry.acknowledged.forgotten_at_unix_ms = Some(clock::unix_ms());
        entry.store_acknowledged();
        self.outbox.forget(id);
        self.ledger
            .prune(self.config.keep_ended_tasks, self.config.keep_ended_bytes);
    }

    fn report(&mut self) {
        let Some(session) = self.session.clone() else {
            return;
        };
        let (interval_ms, now_ms) = (self.config.report_interval_ms, clock::boottime_ms());
        // The rest of a log is sent before the end of its task.
        let logs = self.outbox.logs(&mut self.ledger, interval_ms, now_ms);
        let facts = self
            .outbox
            .facts(&self.ledger, interval_ms, now_ms, clock::unix_ms());
        for report in logs.into_iter().chain(facts) {
            // If the session has ended, `NodeLoopEvent::Disconnected` follows.
            let _ = session.send(report);
        }
    }

    /// Creates the folder of a new task. If that fails, the ledger records the task as failed to
    /// launch.
    fn prepare(&mut self, id: TaskId) {
        let wanted = self
            .desired
            .as_ref()
            .and_then(|desired| desired.tasks.get(&id));
        let (Some(launch), Some(wanted)) = (self.launches.get(&id), wanted) else {
            return;
        };
        if self.ledger.entries.contains_key(&id) {
            return;
        }
        if let Some(why) = self.disk_monitor.unfit() {
            self.ledger.refuse(launch, &wanted.peers, why);
        } else if let Err(error) = self.ledger.prepare(launch, &wanted.peers) {
            tracing::error!(task.id = %id, %error, "cannot make the folder of a task");
        }
    }

    /// Whether a daemon that stops all tasks may exit. All tasks must have ended. The scheduler
    /// must have acknowledged the reports, be disconnected, or have exceeded the time limit.
    fn may_leave(&mut self) -> bool {
        if self.ledger.entries.values().any(|entry| !entry.is_ended()) {
            return false;
        }
        let now_ms = clock::boottime_ms();
        let ended_at_ms = *self.ended_at_ms.get_or_insert(now_ms);
        self.session.is_none()
            || self.outbox.is_drained(&self.ledger)
            || now_ms >= ended_at_ms + LAST_REPORTS_MS
    }
}

/// Desired state of a daemon that leaves: all present tasks, to be stopped.
fn leaving(ledger: &Ledger) -> Desired {
    let tasks = ledger.observation().tasks.into_iter().map(|(id, task)| {
        (
            id,
            DesiredTask {
                gpus: task.gpus,
                peers: task.peers,
                stop: true,
                asks: false,
            },
        )
    });
    Desired {
        generation: ledger.generation,
        tasks: tasks.collect(),
    }
}
