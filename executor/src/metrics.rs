//! Metrics of the daemon and its tasks, in the text format of Prometheus. They contain no name of a
//! tenant, user, job or task.

use crate::clock;
use crate::ledger::{Ledger, LedgerEntry, Life};
use axum::Router;
use axum::extract;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use muster_model::assignment::TaskLaunch;
use muster_model::id::TaskId;
use muster_model::task::{Outcome, Role};
use prometheus::{
    IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TEXT_FORMAT, TextEncoder,
    register_gauge_with_registry, register_int_counter_vec_with_registry,
    register_int_counter_with_registry, register_int_gauge_vec_with_registry,
    register_int_gauge_with_registry,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;

/// Values of the label `kind`.
const KINDS: [&str; 3] = ["worker", "ps_shard", "command"];

/// Value of the label `woken_by`: cause of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WokenBy {
    /// A change in a task's folder or of its pod.
    Task,
    Scheduler,
    Time,
}

impl WokenBy {
    const ALL: [Self; 3] = [Self::Task, Self::Scheduler, Self::Time];

    fn label(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Scheduler => "scheduler",
            Self::Time => "time",
        }
    }
}

/// Handle shared by the node loop and the session, which count, and by the HTTP server.
#[derive(Debug, Clone)]
pub struct ExecutorMetrics {
    all: Registry,
    /// Tasks that have not ended, by kind.
    tasks: IntGaugeVec,
    /// GPUs of these tasks.
    held: IntGauge,
    launches: IntCounterVec,
    /// Ended tasks by outcome.
    ends: IntCounterVec,
    connected: IntGauge,
    sessions: IntCounter,
    /// Polls of the node loop by cause.
    polls: IntCounterVec,
    state: Arc<Mutex<ExecutorMetricsState>>,
}

#[derive(Debug)]
struct ExecutorMetricsState {
    /// Tasks that `ends` has counted, and tasks that ended before this process started.
    ended: BTreeSet<TaskId>,
    /// Sending time of the newest acknowledged heartbeat, on the clock of leases, and the length of
    /// the lease that it granted.
    heard: Option<(u64, u64)>,
}

impl ExecutorMetrics {
    /// Returns the metrics of a daemon that starts with this ledger and this number of GPUs.
    #[must_use]
    pub fn of(ledger: &Ledger, gpus: usize) -> Self {
        let ended = ledger.entries.iter().filter(|(_, entry)| entry.is_ended());
        let state = ExecutorMetricsState {
            ended: ended.map(|(id, _)| *id).collect(),
            heard: None,
        };
        let metrics = Self::registered(state).expect("names that are names, each of them once");
        metrics.is_of(gpus).expect("two more of them");
        for kind in KINDS {
            // Creates each series before its first task.
            metrics.tasks.with_label_values(&[kind]).set(0);
            metrics.launches.with_label_values(&[kind]).reset();
        }
        for woken_by in WokenBy::ALL {
            metrics.polls.with_label_values(&[woken_by.label()]).reset();
        }
        metrics
    }

    fn registered(state: ExecutorMetricsState) -> prometheus::Result<Self> {
        let all = Registry::new();
        Ok(Self {
            tasks: register_int_gauge_vec_with_registry!(
                "muster_executor_tasks",
                "Tasks that have not ended, by kind.",
                &["kind"],
                all
            )?,
            held: register_int_gauge_with_registry!(
                "muster_executor_gpus_held",
                "Of these, those of tasks that have not ended.",
                all
            )?,
            launches: register_int_counter_vec_with_registry!(
                "muster_executor_task_launches_total",
                "Tasks that this process has launched, by kind; not those that it found running.",
                &["kind"],
                all
            )?,
            ends: register_int_counter_vec_with_registry!(
                "muster_executor_task_ends_total",
                "Tasks that have ended while this process ran, by how.",
                &["outcome"],
                all
            )?,
            connected: register_int_gauge_with_registry!(
                "muster_executor_connected",
                "Whether there is a session with a scheduler.",
                all
            )?,
            sessions: register_int_counter_with_registry!(
                "muster_executor_sessions_total",
                "Sessions that have begun: each but the first is one that was made anew.",
                all
            )?,
            polls: register_int_counter_vec_with_registry!(
                "muster_executor_looks_total",
                "Looks of the node's loop at all its tasks, by what has woken it.",
                &["woken_by"],
                all
            )?,
            all,
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// Registers metrics that are constant while the process lives.
    fn is_of(&self, gpus: usize) -> prometheus::Result<()> {
        register_gauge_with_registry!(
            "muster_executor_started_timestamp_seconds",
            "When this process started, Unix time: how often that changes is how often it was restarted.",
            self.all
        )?
        .set(seconds(clock::unix_ms().unsigned_abs()));
        register_int_gauge_with_registry!(
            "muster_executor_gpus",
            "GPUs that the node offers; CPU slots where they stand for GPUs.",
            self.all
        )?
        .set(whole(gpus));
        Ok(())
    }

    pub(crate) fn launched(&self, task: &TaskLaunch) {
        self.launches.with_label_values(&[kind(task)]).inc();
    }

    /// Records the states of all tasks.
    pub(crate) fn update(&self, ledger: &Ledger) {
        let there: Vec<&LedgerEntry> = ledger
            .entries
            .values()
            .filter(|entry| !entry.is_ended())
            .collect();
        for of in KINDS {
            let count = there.iter().filter(|entry| kind(&entry.launch) == of);
            self.tasks
                .with_label_values(&[of])
                .set(whole(count.count()));
        }
        let held: BTreeSet<u32> = there
            .iter()
            .flat_map(|entry| entry.launch.gpus.iter().copied())
            .collect();
        self.held.set(whole(held.len()));
        let mut state = self.lock();
        for (id, entry) in &ledger.entries {
            if let Life::Ended(outcome) = &entry.life
                && state.ended.insert(*id)
            {
                self.ends.with_label_values(&[how(outcome)]).inc();
            }
        }
        state.ended.retain(|id| ledger.entries.contains_key(id));
    }

    pub(crate) fn woken(&self, by: WokenBy) {
        self.polls.with_label_values(&[by.label()]).inc();
    }

    /// Records the start of a session.
    pub(crate) fn connected(&self) {
        self.connected.set(1);
        self.sessions.inc();
    }

    pub(crate) fn disconnected(&self) {
        self.connected.set(0);
    }

    /// Records an acknowledged heartbeat with its sending time and the length of the lease.
    pub(crate) fn heard(&self, sent_ms: u64, lease_ms: u64) {
        self.lock().heard = Some((sent_ms, lease_ms));
    }

    /// Answers `GET /metrics` until the process ends.
    pub async fn serve(self, listener: TcpListener) {
        let routes = Router::new().route("/metrics", get(show)).with_state(self);
        muster_connections::serve(listener, routes).await;
    }

    fn text(&self, now_ms: u64) -> prometheus::Result<String> {
        let mut families = self.all.gather();
        let heard = self.lock().heard;
        if let Some((sent_ms, lease_ms)) = heard {
            families.extend(lease(now_ms.saturating_sub(sent_ms), lease_ms)?.gather());
        }
        TextEncoder::new().encode_to_string(&families)
    }

    fn lock(&self) -> MutexGuard<'_, ExecutorMetricsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn show(extract::State(metrics): extract::State<ExecutorMetrics>) -> impl IntoResponse {
    let text = metrics.text(clock::boottime_ms());
    let text = text.expect("each family has a name and a value");
    ([(CONTENT_TYPE, TEXT_FORMAT)], text)
}

/// Returns the metrics of the lease; not called before the first acknowledged heartbeat.
fn lease(age_ms: u64, lease_ms: u64) -> prometheus::Result<Registry> {
    let present = Registry::new();
    register_gauge_with_registry!(
        "muster_executor_heartbeat_age_seconds",
        "Since the newest heartbeat was sent that a scheduler has acknowledged; nothing before the first.",
        present
    )?
    .set(seconds(age_ms));
    register_gauge_with_registry!(
        "muster_executor_lease_seconds",
        "How old that heartbeat may become: then tasks stop by themselves.",
        present
    )?
    .set(seconds(lease_ms));
    Ok(present)
}

fn kind(task: &TaskLaunch) -> &'static str {
    let [worker, shard, command] = KINDS;
    match (task.role, &task.spec.command) {
        (_, Some(_)) => command,
        (Role::Worker { .. }, None) => worker,
        (Role::PsShard { .. }, None) => shard,
    }
}

fn how(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Exited { code: 0, .. } => "succeeded",
        Outcome::Exited { .. } => "failed",
        Outcome::Signalled { .. } => "signalled",
        Outcome::LaunchFailed { .. } => "launch_failed",
        Outcome::LeaseExpired => "lease_expired",
        Outcome::NodeLost => "node_lost",
        Outcome::NeverStarted => "never_started",
        Outcome::Stopped { killed: false, .. } => "stopped",
        Outcome::Stopped { killed: true, .. } => "killed",
        Outcome::OutOfMemory => "out_of_memory",
        Outcome::Evicted { .. } => "evicted",
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exact to the millisecond for 285,000 years"
)]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
