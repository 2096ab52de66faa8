//! Metrics of the daemon in the text format of Prometheus. They name no tenant, user, job or node.

use crate::clock;
use crate::round::result::RoundResult;
use muster_core::plan::Action;
use prometheus::{
    Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
    register_histogram_with_registry, register_int_counter_vec_with_registry,
    register_int_counter_with_registry, register_int_gauge_vec_with_registry,
    register_int_gauge_with_registry,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Upper bounds of the histogram of round times, in seconds.
const BUCKETS_S: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Metrics; [`Metrics::registered`] gives their names and descriptions.
#[derive(Debug)]
pub struct Metrics {
    all: Registry,
    leading: IntGauge,
    sessions: IntGauge,
    connections: IntGauge,
    idle: IntGauge,
    took: Histogram,
    /// By outcome: `idle`, `committed` or `failed`.
    outcomes: IntCounterVec,
    ended_unix_s: IntGauge,
    /// By action, as named by [`verb`].
    decisions: IntCounterVec,
    conflicts: IntCounter,
    refusals: IntCounter,
    /// By wait reason.
    queue: IntGaugeVec,
    horizon: IntGauge,
    /// End of the newest round, or start of the leadership before it; `None` if this process does
    /// not lead. Locked while a round is counted and while the text is written, so that a round
    /// never shows partially.
    ended_at: Mutex<Option<Instant>>,
}

/// Values that [`Metrics::text`] reads when it is called, because no event reports them.
#[derive(Debug, Clone, Copy)]
pub struct Present {
    pub leads: bool,
    /// Connections to Postgres.
    pub connections: u32,
    /// Idle connections among them.
    pub idle: usize,
}

/// Open node session; counted until it is dropped.
#[derive(Debug)]
pub struct OpenSession(Arc<Metrics>);

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.sessions.dec();
    }
}

/// Guard that is held while this process leads and rounds must therefore end regularly.
#[derive(Debug)]
pub struct RoundsDue<'a>(&'a Metrics);

impl Drop for RoundsDue<'_> {
    fn drop(&mut self) {
        self.0.rounds_end();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::registered().expect("names that are names, each of them once")
    }
}

impl Metrics {
    fn registered() -> prometheus::Result<Self> {
        let all = Registry::new();
        Ok(Self {
            leading: register_int_gauge_with_registry!(
                "muster_scheduler_leading",
                "Whether this process leads.",
                all
            )?,
            sessions: register_int_gauge_with_registry!(
                "muster_scheduler_sessions",
                "Sessions of nodes that are open here.",
                all
            )?,
            connections: register_int_gauge_with_registry!(
                "muster_scheduler_database_connections",
                "Connections to Postgres.",
                all
            )?,
            idle: register_int_gauge_with_registry!(
                "muster_scheduler_database_connections_idle",
                "Of these, idle.",
                all
            )?,
            took: register_histogram_with_registry!(
                "muster_scheduler_round_seconds",
                "Time of a round, from its snapshot to its commit.",
                BUCKETS_S.to_vec(),
                all
            )?,
            outcomes: register_int_counter_vec_with_registry!(
                "muster_scheduler_rounds_total",
                "Rounds, by what came of them.",
                &["outcome"],
                all
            )?,
            ended_unix_s: register_int_gauge_with_registry!(
                "muster_scheduler_round_ended_timestamp_seconds",
                "When the newest round ended here, Unix time; 0 before the first.",
                all
            )?,
            decisions: register_int_counter_vec_with_registry!(
                "muster_scheduler_decisions_total",
                "Decisions on jobs, by what was decided.",
                &["action"],
                all
            )?,
            conflicts: register_int_counter_with_registry!(
                "muster_scheduler_conflicts_total",
                "Decisions that came too late, because something had changed meanwhile.",
                all
            )?,
            refusals: register_int_counter_with_registry!(
                "muster_scheduler_refusals_total",
                "Rules that plans broke: what broke them was not carried out.",
                all
            )?,
            queue: register_int_gauge_vec_with_registry!(
                "muster_scheduler_queue_jobs",
                "Jobs of the queue after the newest round, by why they wait; of the leader alone.",
                &["reason"],
                all
            )?,
            horizon: register_int_gauge_with_registry!(
                "muster_scheduler_event_horizon_age_seconds",
                "How long the oldest event has waited that no stream shows yet; of the leader alone.",
                all
            )?,
            ended_at: Mutex::default(),
            all,
        })
    }

    #[must_use]
    pub fn open_session(self: &Arc<Self>) -> OpenSession {
        self.sessions.inc();
        OpenSession(Arc::clone(self))
    }

    /// Starts the leadership of this process; it ends when the returned guard is dropped.
    #[must_use]
    pub fn rounds_begin(&self) -> RoundsDue<'_> {
        *self.lock() = Some(clock::instant());
        RoundsDue(self)
    }

    /// Clears the metrics that only a leader has.
    fn rounds_end(&self) {
        let mut ended_at = self.lock();
        *ended_at = None;
        self.queue.reset();
        self.horizon.set(0);
    }

    /// Counts a completed round, which took `took`.
    pub fn round(&self, round: &RoundResult, took: Duration) {
        let mut ended_at = self.lock();
        let outcome = if round.is_idle() { "idle" } else { "committed" };
        *ended_at = Some(self.took(outcome, took));
        for decision in &round.plan.decisions {
            let verb = verb(&decision.action);
            self.decisions.with_label_values(&[verb]).inc();
        }
        self.conflicts.inc_by(round.outcome.conflicts.len() as u64);
        self.refusals.inc_by(round.refusals);
        self.queue.reset();
        for (reason, jobs) in &round.queue {
            let jobs = i64::try_from(*jobs).unwrap_or(i64::MAX);
            self.queue.with_label_values(&[reason]).set(jobs);
        }
    }

    /// Sets the age of the oldest event that streams do not show yet.
    pub fn event_horizon(&self, waited: Duration) {
        let waited_s = i64::try_from(waited.as_secs()).unwrap_or(i64::MAX);
        self.horizon.set(waited_s);
    }

    /// Counts a failed round, which took `took`.
    pub fn round_failed(&self, took: Duration) {
        let mut ended_at = self.lock();
        *ended_at = Some(self.took("failed", took));
    }

    /// Counts the outcome and the time of a round that has just ended. Returns its end.
    fn took(&self, outcome: &'static str, took: Duration) -> Instant {
        self.outcomes.with_label_values(&[outcome]).inc();
        self.took.observe(took.as_secs_f64());
        self.ended_unix_s.set(clock::now().unix_timestamp());
        clock::instant()
    }

    /// Time since the end of the newest round, or since the start of the leadership before it;
    /// `None` if this process does not lead.
    #[must_use]
    pub fn since_round(&self) -> Option<Duration> {
        self.lock().map(|at| at.elapsed())
    }

    /// Text in the format [`prometheus::TEXT_FORMAT`].
    #[must_use]
    pub fn text(&self, present: Present) -> String {
        self.leading.set(i64::from(present.leads));
        self.connections.set(i64::from(present.connections));
        let idle = i64::try_from(present.idle).unwrap_or(i64::MAX);
        self.idle.set(idle);
        let families = {
            let _no_round = self.lock();
            self.all.gather()
        };
        let text = TextEncoder::new().encode_to_string(&families);
        text.expect("each family has a name and a value")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.ended_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Label of an action in the metrics.
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
        Action::GiveUp { .. } => "give_up",
        Action::Judge { .. } => "judge",
        Action::Displace { .. } => "displace",
        Action::Suspect { .. } => "suspect",
        Action::Idle { .. } => "idle",
        Action::Wait { .. } => "wait",
    }
}
