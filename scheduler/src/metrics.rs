//! What the daemon counts of itself, in the text format of Prometheus. No tenant, user, job or node is named in it.

use crate::clock;
use crate::round::Round;
use muster_core::plan::Action;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Upper bounds of the buckets of rounds' times.
const BUCKETS_S: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

#[derive(Debug, Default)]
pub struct Metrics {
    rounds: Mutex<Rounds>,
    sessions: AtomicI64,
}

#[derive(Debug, Default)]
struct Rounds {
    buckets: [u64; BUCKETS_S.len()],
    sum_s: f64,
    /// By what came of them.
    outcomes: BTreeMap<&'static str, u64>,
    /// By what was decided.
    decisions: BTreeMap<&'static str, u64>,
    /// Decisions that came too late.
    conflicts: u64,
    /// Rules that plans broke.
    refusals: u64,
    /// Jobs of the queue after the newest round, by why they wait.
    queue: BTreeMap<&'static str, u64>,
    /// When the newest one ended, or the first was to begin.
    ended_at: Option<Instant>,
    ended_unix_s: i64,
}

/// What the process is at the moment, beside what it has counted.
#[derive(Debug, Clone, Copy)]
pub struct Present {
    pub leads: bool,
    /// Connections to Postgres.
    pub connections: u32,
    /// Of these, idle.
    pub idle: usize,
}

/// An open node session, counted while it lives.
#[derive(Debug)]
pub struct OpenSession(Arc<Metrics>);

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    #[must_use]
    pub fn open_session(self: &Arc<Self>) -> OpenSession {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        OpenSession(Arc::clone(self))
    }

    /// From now on rounds are due.
    pub fn rounds_begin(&self) {
        self.lock().ended_at = Some(clock::instant());
    }

    /// Another process leads.
    pub fn rounds_end(&self) {
        let mut rounds = self.lock();
        rounds.ended_at = None;
        rounds.queue.clear();
    }

    pub fn round(&self, round: &Round, took: Duration) {
        let mut rounds = self.lock();
        rounds.took(if round.is_idle() { "idle" } else { "committed" }, took);
        for decision in &round.plan.decisions {
            *rounds.decisions.entry(verb(&decision.action)).or_default() += 1;
        }
        rounds.conflicts += round.outcome.conflicts.len() as u64;
        rounds.refusals += round.refusals;
        rounds.queue.clone_from(&round.queue);
    }

    pub fn round_failed(&self, took: Duration) {
        self.lock().took("failed", took);
    }

    /// Since when no round has ended although this process leads.
    #[must_use]
    pub fn since_round(&self) -> Option<Duration> {
        self.lock().ended_at.map(|at| at.elapsed())
    }

    #[must_use]
    pub fn text(&self, present: Present) -> String {
        let rounds = self.lock();
        let mut text = Text::default();
        let number = |value: i64| [("", value)];
        text.metric(
            "muster_scheduler_leading",
            "gauge",
            "Whether this process leads.",
            number(i64::from(present.leads)),
        );
        text.metric(
            "muster_scheduler_sessions",
            "gauge",
            "Sessions of nodes that are open here.",
            number(self.sessions.load(Ordering::Relaxed)),
        );
        rounds.tell(&mut text);
        text.metric(
            "muster_scheduler_database_connections",
            "gauge",
            "Connections to Postgres.",
            number(i64::from(present.connections)),
        );
        text.metric(
            "muster_scheduler_database_connections_idle",
            "gauge",
            "Of these, idle.",
            number(i64::try_from(present.idle).unwrap_or(i64::MAX)),
        );
        text.0
    }

    fn lock(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rounds {
    fn took(&mut self, outcome: &'static str, took: Duration) {
        let took_s = took.as_secs_f64();
        *self.outcomes.entry(outcome).or_default() += 1;
        self.sum_s += took_s;
        for (bucket, bound) in self.buckets.iter_mut().zip(BUCKETS_S) {
            *bucket += u64::from(took_s <= bound);
        }
        self.ended_at = Some(clock::instant());
        self.ended_unix_s = clock::now().unix_timestamp();
    }

    fn tell(&self, text: &mut Text) {
        let count: u64 = self.outcomes.values().sum();
        text.histogram(
            "muster_scheduler_round_seconds",
            "Time of a round, from its snapshot to its commit.",
            (&self.buckets, count, self.sum_s),
        );
        text.metric(
            "muster_scheduler_rounds_total",
            "counter",
            "Rounds, by what came of them.",
            labelled("outcome", &self.outcomes),
        );
        text.metric(
            "muster_scheduler_round_ended_timestamp_seconds",
            "gauge",
            "When the newest round ended here, Unix time; 0 before the first.",
            [("", self.ended_unix_s)],
        );
        text.metric(
            "muster_scheduler_decisions_total",
            "counter",
            "Decisions on jobs, by what was decided.",
            labelled("action", &self.decisions),
        );
        text.metric(
            "muster_scheduler_conflicts_total",
            "counter",
            "Decisions that came too late, because something had changed meanwhile.",
            [("", self.conflicts)],
        );
        text.metric(
            "muster_scheduler_refusals_total",
            "counter",
            "Rules that plans broke: what broke them was not carried out.",
            [("", self.refusals)],
        );
        text.metric(
            "muster_scheduler_queue_jobs",
            "gauge",
            "Jobs of the queue after the newest round, by why they wait; of the leader alone.",
            labelled("reason", &self.queue),
        );
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

    fn histogram(&mut self, name: &str, help: &str, (buckets, count, sum_s): (&[u64], u64, f64)) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} histogram");
        for (within, bound) in buckets.iter().zip(BUCKETS_S) {
            let _ = writeln!(self.0, "{name}_bucket{{le=\"{bound}\"}} {within}");
        }
        let _ = writeln!(self.0, "{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(self.0, "{name}_sum {sum_s}\n{name}_count {count}");
    }
}

fn labelled<'c>(
    label: &'c str,
    counts: &'c BTreeMap<&'static str, u64>,
) -> impl Iterator<Item = (String, u64)> + 'c {
    let one = move |(value, count): (&&str, &u64)| (format!("{{{label}=\"{value}\"}}"), *count);
    counts.iter().map(one)
}

fn verb(action: &Action) -> &'static str {
    match action {
        Action::Start { .. } => "start",
        Action::Resize { .. } => "resize",
        Action::Up => "up",
        Action::Suspend { .. } => "suspend",
        Action::Continue { .. } => "continue",
        Action::Stop { .. } => "stop",
        Action::Release => "release",
        Action::Hold => "hold",
        Action::Resume => "resume",
        Action::Cancel => "cancel",
        Action::Judge { .. } => "judge",
        Action::Suspect { .. } => "suspect",
        Action::Wait { .. } => "wait",
    }
}
