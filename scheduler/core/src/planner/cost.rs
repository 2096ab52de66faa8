//! Restart cost: stop of a job and start from its checkpoint. It is measured for each job. Before
//! that it is that of the job's family, else of other jobs, else assumed. The cooldown after a
//! change is proportional to it.
//!
//! The caller decides whether a move repays its cost.

use super::planned_job::PlannedJob;
use super::restart_times::mean;
use super::scheduling_state::SchedulingState;
use super::time::seconds_of;
use crate::policy::Policy;
use muster_model::job::JobState;

/// Seconds without progress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RestartCost {
    /// From the stop order until the GPUs are free, including the last checkpoint.
    pub stop_s: f64,
    /// From the start order until the job trains again.
    pub start_s: f64,
    /// For the repetition of lost steps.
    pub lost_s: f64,
    /// Whether stops and starts of this job were both measured.
    pub measured: bool,
}

impl RestartCost {
    pub(crate) fn total_s(&self) -> f64 {
        self.stop_s + self.start_s + self.lost_s
    }
}

/// Returns the restart cost of a job. Where neither the job nor another one was measured, stop and
/// start each cost half of `resize_cost_ms`. Before a measurement no lost work is assumed.
pub(crate) fn restart(live: &PlannedJob<'_>, policy: &Policy) -> RestartCost {
    let half_s = seconds_of(policy.resize_cost_ms) / 2.0;
    let (known, times) = (live.job.restarts.unwrap_or_default(), live.restart_times);
    let speed = live.estimate.steps_per_s(live.size.0.max(1), live.size.1);
    // The report of a program is more exact than the mean of earlier losses.
    let lost_s = match mean(known.lost_steps, known.resumed) {
        Some(steps) if speed > 0.0 && live.job.reported.is_none() => steps / speed,
        _ => 0.0,
    };
    RestartCost {
        stop_s: times.stop_s.unwrap_or(half_s),
        start_s: times.start_s.unwrap_or(half_s),
        lost_s,
        measured: known.stops > 0 && known.starts > 0,
    }
}

/// Whether a restart is expected to lose all work: the job runs a user's program that has neither
/// reported a checkpoint nor ever continued from one. The built-in engine writes a checkpoint when
/// it stops.
pub(crate) fn begins_anew(live: &PlannedJob<'_>) -> bool {
    let resumed = live.job.restarts.unwrap_or_default().resumed;
    live.job.command.is_some() && resumed == 0 && live.job.reported.is_none()
}

/// Seconds of work that a restart is expected to lose, in addition to [`RestartCost::lost_s`]: the
/// time since the last checkpoint that the program reported, or since its start. A program that
/// answered the newest request for a checkpoint loses at most the time until that answer.
pub(crate) fn at_risk_s(live: &PlannedJob<'_>, now_ms: i64) -> f64 {
    let started_ms = live.placed_ms.unwrap_or(now_ms);
    let since_ms = match live.job.reported {
        Some(reported) if live.job.command.is_some() => reported.at_ms.max(started_ms),
        _ if begins_anew(live) => started_ms,
        _ => return 0.0,
    };
    let unsaved_ms = u64::try_from(now_ms.saturating_sub(since_ms)).unwrap_or(0);
    seconds_of(unsaved_ms.min(answer_ms(live).unwrap_or(u64::MAX)))
}

/// Milliseconds that the program needs to answer a request for a checkpoint; `None` if it is not
/// asked before a stop now, or left the newest request unanswered.
fn answer_ms(live: &PlannedJob<'_>) -> Option<u64> {
    let is_asked = live.job.state == JobState::Running;
    let request = live.job.preemption.checkpoint_on_request;
    request.filter(|_| is_asked).and(live.job.answer_ms)
}

/// Seconds from a stop order until the job is stopped if its program does not answer the request
/// for a checkpoint.
pub(crate) fn longest_stop_s(live: &PlannedJob<'_>, policy: &Policy) -> f64 {
    let request = live.job.preemption.checkpoint_on_request;
    let asks_s = request.map_or(0.0, |request| f64::from(request.timeout_s));
    restart(live, policy).stop_s + asks_s
}

/// Seconds of work that a stop of the job now is expected to lose. 0 for the built-in engine, whose
/// measured losses come from failures.
pub(crate) fn work_at_risk_s(live: &PlannedJob<'_>, policy: &Policy, now_ms: i64) -> f64 {
    if live.job.command.is_none() {
        return 0.0;
    }
    restart(live, policy).lost_s + at_risk_s(live, now_ms)
}

/// Factor by which the gain of a change must exceed its cost. It is 2 at the end of the cooldown
/// and falls to 1 after twice that time.
pub(crate) fn restart_cost_factor(live: &PlannedJob<'_>, policy: &Policy, now_ms: i64) -> f64 {
    if live.scheduling_state != SchedulingState::Running {
        return 1.0;
    }
    let (rest_ms, ran_ms) = (cooldown_ms(live, policy), live.ran_ms(now_ms));
    (2.0 * rest_ms as f64 / ran_ms.max(1) as f64).clamp(1.0, 2.0)
}

/// Cooldown in milliseconds, so long that the next resize costs at most `resize_share` of it. The
/// workers of an elastic launcher restart from their checkpoint, so their resize counts as a
/// restart.
pub(crate) fn cooldown_ms(live: &PlannedJob<'_>, policy: &Policy) -> u64 {
    if live.job.trains_on() {
        amortised_ms(policy, seconds_of(policy.in_place_cost_ms))
    } else {
        restart_cooldown_ms(live, policy)
    }
}

/// Cooldown of a job that changes by restarts.
pub(crate) fn restart_cooldown_ms(live: &PlannedJob<'_>, policy: &Policy) -> u64 {
    amortised_ms(policy, restart(live, policy).total_s())
}

fn amortised_ms(policy: &Policy, cost_s: f64) -> u64 {
    let amortised_s = if policy.resize_share > 0.0 {
        cost_s / policy.resize_share
    } else {
        0.0
    };
    // The cast saturates, so an infinite cost gives the longest cooldown.
    policy.min_run_ms.max((amortised_s * 1000.0) as u64)
}
