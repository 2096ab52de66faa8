//! What the daemon counts of itself and of its tasks, in the text format of Prometheus. No tenant, user, job or task is named in it.

use crate::clock;
use crate::ledger::{Entry, Ledger, Life};
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use muster_model::assignment::TaskLaunch;
use muster_model::id::TaskId;
use muster_model::task::{Outcome, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;

/// What tasks are, as the label `kind` has them.
const KINDS: [&str; 3] = ["worker", "ps_shard", "command"];

/// Shared by the node's loop and the session, which tell, and by whoever shows it.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    started_unix_ms: i64,
    /// That the node offers.
    gpus: u64,
    /// Of these, those of tasks that have not ended.
    held: u64,
    /// Tasks that have not ended, by kind.
    tasks: BTreeMap<&'static str, u64>,
    launches: BTreeMap<&'static str, u64>,
    /// By outcome.
    ends: BTreeMap<&'static str, u64>,
    /// Tasks whose end is in `ends`, or came before this process did.
    ended: BTreeSet<TaskId>,
    is_connected: bool,
    sessions: u64,
    /// When the newest heartbeat was sent that a scheduler has acknowledged, on the clock of leases; and how long it holds the lease.
    heard: Option<(u64, u64)>,
}

impl Metrics {
    /// Of a daemon that starts with what the ledger has, on a node of so many GPUs.
    #[must_use]
    pub fn of(ledger: &Ledger, gpus: usize) -> Self {
        let ended = ledger.entries.iter().filter(|(_, entry)| entry.is_ended());
        let counts = Counts {
            started_unix_ms: clock::unix_ms(),
            gpus: gpus as u64,
            ended: ended.map(|(id, _)| *id).collect(),
            ..Counts::default()
        };
        Self(Arc::new(Mutex::new(counts)))
    }

    pub(crate) fn launched(&self, task: &TaskLaunch) {
        *self.lock().launches.entry(kind(task)).or_default() += 1;
    }

    /// How all tasks are at the moment.
    pub(crate) fn look(&self, ledger: &Ledger) {
        let mut counts = self.lock();
        let there: Vec<&Entry> = ledger
            .entries
            .values()
            .filter(|entry| !entry.is_ended())
            .collect();
        counts.tasks.clear();
        for entry in &there {
            *counts.tasks.entry(kind(&entry.launch)).or_default() += 1;
        }
        let held: BTreeSet<u32> = there
            .iter()
            .flat_map(|entry| entry.launch.gpus.iter().copied())
            .collect();
        counts.held = held.len() as u64;
        for (id, entry) in &ledger.entries {
            if let Life::Ended(outcome) = &entry.life
                && counts.ended.insert(*id)
            {
                *counts.ends.entry(how(outcome)).or_default() += 1;
            }
        }
        counts.ended.retain(|id| ledger.entries.contains_key(id));
    }

    /// A session has begun, or another.
    pub(crate) fn connected(&self) {
        let mut counts = self.lock();
        counts.is_connected = true;
        counts.sessions += 1;
    }

    pub(crate) fn disconnected(&self) {
        self.lock().is_connected = false;
    }

    /// A heartbeat that was sent then is acknowledged, and holds the lease for so long.
    pub(crate) fn heard(&self, sent_ms: u64, lease_ms: u64) {
        self.lock().heard = Some((sent_ms, lease_ms));
    }

    /// Answers `GET /metrics` until the process ends.
    ///
    /// # Errors
    /// When the listener breaks.
    pub async fn serve(self, listener: TcpListener) -> std::io::Result<()> {
        let routes = Router::new().route("/metrics", get(show)).with_state(self);
        axum::serve(listener, routes).await
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn show(State(metrics): State<Metrics>) -> impl IntoResponse {
    let text = metrics.lock().text(clock::boottime_ms());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

impl Counts {
    fn text(&self, now_ms: u64) -> String {
        let mut text = Text::default();
        text.metric(
            "muster_executor_started_timestamp_seconds",
            "gauge",
            "When this process started, Unix time: how often that changes is how often it was restarted.",
            [("", seconds(self.started_unix_ms.unsigned_abs()))],
        );
        text.metric(
            "muster_executor_connected",
            "gauge",
            "Whether there is a session with a scheduler.",
            [("", u64::from(self.is_connected))],
        );
        text.metric(
            "muster_executor_sessions_total",
            "counter",
            "Sessions that have begun: each but the first is one that was made anew.",
            [("", self.sessions)],
        );
        let heard = self.heard.iter();
        text.metric(
            "muster_executor_heartbeat_age_seconds",
            "gauge",
            "Since the newest heartbeat was sent that a scheduler has acknowledged; nothing before the first.",
            heard.clone().map(|(sent_ms, _)| ("", seconds(now_ms.saturating_sub(*sent_ms)))),
        );
        text.metric(
            "muster_executor_lease_seconds",
            "gauge",
            "How old that heartbeat may become: then tasks stop by themselves.",
            heard.map(|(_, lease_ms)| ("", seconds(*lease_ms))),
        );
        text.metric(
            "muster_executor_gpus",
            "gauge",
            "GPUs that the node offers; CPU slots where they stand for GPUs.",
            [("", self.gpus)],
        );
        text.metric(
            "muster_executor_gpus_held",
            "gauge",
            "Of these, those of tasks that have not ended.",
            [("", self.held)],
        );
        text.metric(
            "muster_executor_tasks",
            "gauge",
            "Tasks that have not ended, by kind.",
            by_kind(&self.tasks),
        );
        text.metric(
            "muster_executor_task_launches_total",
            "counter",
            "Tasks that this process has launched, by kind; not those that it found running.",
            by_kind(&self.launches),
        );
        let ends = self.ends.iter();
        text.metric(
            "muster_executor_task_ends_total",
            "counter",
            "Tasks that have ended while this process ran, by how.",
            ends.map(|(outcome, count)| (format!("{{outcome=\"{outcome}\"}}"), *count)),
        );
        text.0
    }
}

/// The text format of Prometheus.
#[derive(Default)]
struct Text(String);

impl Text {
    fn metric<L: Display, V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, V)>,
    ) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }
}

/// All kinds, so that a series is there before its first task.
fn by_kind(counts: &BTreeMap<&'static str, u64>) -> impl Iterator<Item = (String, u64)> {
    KINDS.into_iter().map(|kind| {
        let count = counts.get(kind).copied().unwrap_or(0);
        (format!("{{kind=\"{kind}\"}}"), count)
    })
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
