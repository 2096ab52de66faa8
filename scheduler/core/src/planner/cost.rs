//! Restart cost: stop of a job and start from its checkpoint. It is measured for each job, and
//! assumed before that.
//!
//! The caller decides whether a move repays its cost.

use super::planned_job::PlannedJob;
use super::round_state::seconds_of;
use crate::policy::Policy;

/// Seconds without progress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RestartCost {
    /// From the stop order until the GPUs are free, including the last checkpoint.
    pub stop_s: f64,
    /// From the start order until the job trains again.
    pub start_s: f64,
    /// For the repetition of lost steps.
    pub lost_s: f64,
    /// Whether stops and starts were both measured.
    pub measured: bool,
}

impl RestartCost {
    pub(crate) fn total_s(&self) -> f64 {
        self.stop_s + self.start_s + self.lost_s
    }
}

/// Returns the restart cost of a job. Before a measurement, stop and start each cost half of
/// `resize_cost_ms`, and no lost work is assumed.
pub(crate) fn restart(live: &PlannedJob<'_>, policy: &Policy) -> RestartCost {
    let half_s = seconds_of(policy.resize_cost_ms) / 2.0;
    let known = live.job.restarts.unwrap_or_default();
    let mean = |sum: f64, count: u32| (count > 0).then(|| (sum / f64::from(count)).max(0.0));
    let (stop_s, start_s) = (
        mean(known.stop_s, known.stops),
        mean(known.start_s, known.starts),
    );
    let speed = live.estimate.steps_per_s(live.size.0.max(1), live.size.1);
    let lost_s = match mean(known.lost_steps, known.resumed) {
        Some(steps) if speed > 0.0 => steps / speed,
        _ => 0.0,
    };
    RestartCost {
        stop_s: stop_s.unwrap_or(half_s),
        start_s: start_s.unwrap_or(half_s),
        lost_s,
        measured: stop_s.is_some() && start_s.is_some(),
    }
}

/// Whether a restart is expected to lose all work: the job runs a user's program that has never
/// continued from a checkpoint. The built-in engine writes a checkpoint when it stops.
pub(crate) fn begins_anew(live: &PlannedJob<'_>) -> bool {
    let resumed = live.job.restarts.unwrap_or_default().resumed;
    live.job.command.is_some() && resumed == 0
}

/// Seconds of work that a restart is expected to lose.
pub(crate) fn at_risk_s(live: &PlannedJob<'_>, now_ms: i64) -> f64 {
    if !begins_anew(live) {
        return 0.0;
    }
    let since_ms = live.placed_ms.unwrap_or(now_ms);
    seconds_of(u64::try_from(now_ms.saturating_sub(since_ms)).unwrap_or(0))
}
