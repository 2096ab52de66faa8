//! The node loop, on one thread: poll, compare, act, report.
//!
//! Only this loop accesses the ledger. All other threads send it an [`Order`], so it needs no locks
//! and a slow disk delays no heartbeat. It sleeps until the next order as long as the kernel
//! notifies it of changes in all task folders.

use crate::clock;
use crate::config::Config;
use crate::error::ExecutorError;
use crate::launch::Launcher;
use crate::ledger::{Entry, Ledger, Life};
use crate::meter::Meter;
use crate::metrics::{Metrics, WokenBy};
use crate::order::{Assigned, Order};
use crate::pace::{LONGEST_MS, Pace, SOON_MS};
use crate::reconcile::{Desired, DesiredTask, Step, steps};
use crate::report::Outbox;
use crate::space::Space;
use crate::watcher::Watcher;
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
struct Pending {
    assigned: Assigned,
    /// Time of the next try.
    at_ms: u64,
    pause_ms: u64,
}

#[derive(Debug)]
pub struct Node {
    config: Config,
    ledger: Ledger,
    launcher: Launcher,
    watcher: Watcher,
    meter: Meter,
    metrics: Metrics,
    pace: Pace,
    outbox: Outbox,
    desired: Option<Desired>,
    launches: BTreeMap<TaskId, TaskLaunch>,
    session: Option<UnboundedSender<Report>>,
    space: Space,
    /// An assignment whose generation could not be stored yet.
    pending: Option<Pending>,
    /// Generation of the ledger, for the session's `Hello`.
    generation: Arc<AtomicU64>,
    is_leaving: bool,
    /// Time at which the last task had ended while the daemon leaves.
    ended_at_ms: Option<u64>,
}

impl Node {
    #[must_use]
    pub fn new(
        config: Config,
        ledger: Ledger,
        launcher: Launcher,
        watcher: Watcher,
        (meter, metrics): (Meter, Metrics),
        space: Space,
    ) -> Self {
        let generation = Arc::new(AtomicU64::new(ledger.generation));
        Self {
            config,
            ledger,
            launcher,
            watcher,
            meter,
            metrics,
            pace: Pace::default(),
            outbox: Outbox::default(),
            desired: None,
            launches: BTreeMap::new(),
            session: None,
            space,
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

    /// Runs until [`Order::Leave`].
    pub fn run(mut self, orders: &Receiver<Order>) {
        self.look();
        loop {
            let left = self.pace.left(clock::boottime_ms());
            let mut order = match orders.recv_timeout(left) {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut woken_by = None;
            while let Some(next) = order {
                if matches!(next, Order::Leave { stop_tasks: false }) {
                    return;
                }
                let from = next.from();
                self.take(next);
                if self.pace.left(clock::boottime_ms()).is_zero() {
                    woken_by = woken_by.or(Some(from));
                }
                order = orders.try_recv().ok();
            }
            let now_ms = clock::boottime_ms();
            if !self.pace.left(now_ms).is_zero() {
                continue;
            }
            self.metrics.woken(woken_by.unwrap_or(WokenBy::Time));
            self.pace.looked(now_ms, self.longest_ms());
            self.look();
            self.assign_again(now_ms);
            self.act();
            self.metrics.look(&self.ledger);
            self.report();
            if self.is_leaving && self.may_leave() {
                return;
            }
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Acknowledged(_) => self.pace.look_by(0),
            Order::Grown if self.session.is_none() => {}
            Order::Grown => {
                let interval_ms = self.config.report_interval_ms;
                self.pace.look_by(self.outbox.due_ms(interval_ms));
            }
            _ => self.pace.stir(),
        }
        match order {
            Order::Connected(session) => {
                self.outbox.restart();
                self.session = Some(session);
            }
            Order::ReportAll => self.ledger.report_all(),
            Order::Disconnected => self.session = None,
            Order::Acknowledged(number) => self.outbox.acknowledge(number, &mut self.ledger),
            Order::Assigned(assigned) => {
                self.pending = None;
                self.assign(assigned);
            }
            Order::End(id, outcome) => self.end(id, outcome),
            Order::Leave { .. } => self.is_leaving = true,
            Order::Look | Order::Grown => {}
        }
    }

    /// Longest poll interval. It is short while a task exists whose changes cause no notification.
    fn longest_ms(&self) -> u64 {
        let report_ms = self.config.report_interval_ms;
        let of_task = |(id, entry): (&TaskId, &Entry)| match entry.life {
            _ if self.watcher.hears(*id) || entry.is_ended() => LONGEST_MS,
            // Its end wakes the loop; only its reports cause no notification.
            Life::Running(_) if self.launcher.tells_of_ends() => report_ms.max(SOON_MS),
            _ => SOON_MS,
        };
        let longest_ms = if self.is_leaving { SOON_MS } else { LONGEST_MS };
        let of_tasks = self.ledger.entries.iter().map(of_task).min();
        of_tasks.unwrap_or(LONGEST_MS).min(longest_ms)
    }

    fn assign(&mut self, assigned: Assigned) {
        let newest = self.ledger.generation;
        if assigned.generation < newest {
            tracing::warn!(
                generation = assigned.generation,
                newest,
                "refused an assignment older than the newest"
            );
            return;
        }
        if let Err(error) = self.ledger.take_on(assigned.generation) {
            self.put_off(assigned, &error);
            return;
        }
        self.generation
            .store(assigned.generation, Ordering::Relaxed);
        let tasks = assigned.tasks.iter().map(|task| {
            let wanted = DesiredTask {
                gpus: task.launch.gpus.clone(),
                peers: task.peers.clone(),
                stop: task.stop,
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
                entry.shipped.forgotten_at_unix_ms = None;
            }
        }
    }

    /// Postpones an assignment. A restarted daemon must know the newest generation, so the loop
    /// acts on an assignment only after the generation is stored.
    fn put_off(&mut self, assigned: Assigned, error: &ExecutorError) {
        let before_ms = self.pending.as_ref().map(|pending| pending.pause_ms);
        let pause_ms = before_ms.map_or(FIRST_PAUSE_MS, |before_ms| {
            (before_ms * 2).min(LONGEST_PAUSE_MS)
        });
        let generation = assigned.generation;
        tracing::error!(error = %chain(error), generation, pause_ms, "an assignment waits: its generation cannot be kept");
        let at_ms = clock::boottime_ms() + pause_ms;
        self.pace.look_by(at_ms);
        self.pending = Some(Pending {
            assigned,
            at_ms,
            pause_ms,
        });
    }

    fn assign_again(&mut self, now_ms: u64) {
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
            entry.doom(outcome);
            self.launcher.stop(entry);
        }
    }

    fn look(&mut self) {
        self.watcher.follow(&self.ledger);
        for entry in self
            .ledger
            .entries
            .values_mut()
            .filter(|entry| !entry.is_forgotten())
        {
            let carrier = self.launcher.carrier(entry);
            entry.refresh(carrier);
        }
        self.launcher.tidy(&self.ledger);
        self.space.follow(&self.ledger);
        if self.space.unfit().is_some() {
            // Folders of ended tasks, kept for inspection, are removed before a running task is
            // ended.
            self.ledger.prune(0, 0);
        }
        if self.meter.is_asked() {
            self.meter.watch(self.ledger.watched());
        }
    }

    fn act(&mut self) {
        let seen = self.ledger.seen();
        let due = if self.is_leaving {
            steps(Some(&leaving(&self.ledger)), &seen)
        } else {
            steps(self.desired.as_ref(), &seen)
        };
        for step in due {
            tracing::debug!(?step, "executor.reconcile");
            self.perform(step);
        }
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Launch(id) => {
                self.prepare(id);
                if let Some(entry) = self
                    .ledger
                    .entries
                    .get_mut(&id)
                    .filter(|entry| !entry.is_ended())
                {
                    self.metrics.launched(&entry.launch);
                    self.launcher.launch(entry);
                }
            }
            Step::Withdraw(id) => {
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
            Step::WritePeers(id) => {
                let wanted = self
                    .desired
                    .as_ref()
                    .and_then(|desired| desired.tasks.get(&id));
                if let (Some(wanted), Some(entry)) = (wanted, self.ledger.entries.get_mut(&id)) {
                    self.launcher.write_peers(entry, &wanted.peers);
                }
            }
            Step::Stop(id) => {
                if let Some(entry) = self.ledger.entries.get_mut(&id) {
                    self.launcher.stop(entry);
                }
            }
            Step::Forget(id) => self.forget(id),
        }
    }

    fn forget(&mut self, id: TaskId) {
        let Some(entry) = self.ledger.entries.get_mut(&id) else {
            return;
        };
        entry.shipped.forgotten_at_unix_ms = Some(clock::unix_ms());
        entry.keep_shipped();
        self.outbox.forget(id);
        self.ledger
            .prune(self.config.keep_ended_tasks, self.config.keep_ended_bytes);
    }

    fn report(&mut self) {
        let Some(session) = self.session.clone() else {
            return;
        };
        let (interval_ms, now_ms) = (self.config.report_interval_ms, clock::boottime_ms());
        let facts = self
            .outbox
            .facts(&self.ledger, interval_ms, now_ms, clock::unix_ms());
        let logs = self.outbox.logs(&mut self.ledger, interval_ms, now_ms);
        for report in facts.into_iter().chain(logs) {
            // If the session has ended, `Order::Disconnected` follows.
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
        if let Some(why) = self.space.unfit() {
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
    let tasks = ledger.seen().tasks.into_iter().map(|(id, task)| {
        (
            id,
            DesiredTask {
                gpus: task.gpus,
                peers: task.peers,
                stop: true,
            },
        )
    });
    Desired {
        generation: ledger.generation,
        tasks: tasks.collect(),
    }
}
