//! Hysteresis. A running job is not resized while an earlier decision is in progress, during its
//! cooldown, or into GPUs released a moment ago.
//!
//! This module holds predicates only; `policy_guard` asks the policy again.

use super::cost;
use super::planned_job::PlannedJob;
use super::round_state::{RoundState, seconds_of};
use super::scheduling_state::SchedulingState;
use crate::plan::Action;
use crate::policy::Policy;
use crate::problem::{PolicyDecision, gpus_of};
use muster_model::job::Charge;

/// Whether no earlier decision is in progress. A decision has its effect only when all jobs that
/// stopped for it have started again.
pub(crate) fn is_settled(round: &RoundState<'_>) -> bool {
    round.jobs.iter().all(|live| match live.scheduling_state {
        SchedulingState::Starting => round.ran_ms(live) >= round.policy.min_run_ms,
        SchedulingState::Returning | SchedulingState::Displaced => false,
        SchedulingState::Resting | SchedulingState::Ending => live.holdings.is_empty(),
        SchedulingState::Running => {
            !live.is_resizing || round.ran_ms(live) >= round.policy.min_run_ms
        }
        SchedulingState::Queued | SchedulingState::Suspended => true,
    })
}

/// Whether a running job would grow into GPUs that were released a moment ago.
pub(crate) fn grows_too_soon(
    round: &RoundState<'_>,
    decision: &PolicyDecision,
    member: usize,
) -> bool {
    let job = &round.problem.jobs[member];
    let gets = decision.holds(&round.problem, member);
    let had = |node: u32| -> u32 {
        let there = job.present.iter().filter(|part| part.node == node);
        there.map(|part| part.gpus).sum()
    };
    gpus_of(gets) > job.held_gpus()
        && gets.iter().any(|part| {
            let more = part.gpus.saturating_sub(had(part.node));
            more > 0 && round.free[part.node as usize].needs_fresh(more)
        })
}

/// Whether a running job is in its cooldown: it was placed, resized or resumed a moment ago.
pub(crate) fn in_cooldown(round: &RoundState<'_>, live: &PlannedJob<'_>) -> bool {
    let policy = round.policy;
    let turned_ms = live.job.turned_ms.unwrap_or(i64::MIN);
    let went_on_ms = u64::try_from(round.now_ms.saturating_sub(turned_ms)).unwrap_or(0);
    let quantum_ms = policy
        .slicing
        .map_or(policy.min_run_ms, |slicing| slicing.quantum_ms);
    let goes_on = |action: &Action| matches!(action, Action::Continue { .. });
    went_on_ms < quantum_ms
        || in_backoff(round, live)
        || live.actions.iter().any(goes_on)
        || round.ran_ms(live) < cooldown_ms(round, live)
}

/// Whether the job is in back-off after a node refused its growth. The back-off is twice the
/// minimum cooldown and doubles with each further rejection, up to `backoff_max_ms`. Each failed
/// growth holds GPUs for about ten seconds that other jobs could use.
pub(crate) fn in_backoff(round: &RoundState<'_>, live: &PlannedJob<'_>) -> bool {
    let policy = round.policy;
    let is_refusal = |action: &Action| {
        let charged = Charge::Refusal;
        matches!(action, Action::Resize { charge, .. } if *charge == charged)
    };
    // The job's row does not contain the rejections of this round yet.
    let refused = live.actions.iter().any(is_refusal);
    let put_off = live.job.put_off.saturating_add(u32::from(refused));
    let doubled = policy.min_run_ms.saturating_mul(1 << put_off.min(32));
    let rest_ms = doubled.min(policy.backoff_max_ms.max(policy.min_run_ms));
    live.scheduling_state == SchedulingState::Running && put_off > 0 && round.ran_ms(live) < rest_ms
}

/// Whether a job that usually resizes in place has run too short a time for a restart for speed.
pub(crate) fn is_too_soon_to_restart(round: &RoundState<'_>, live: &PlannedJob<'_>) -> bool {
    round.ran_ms(live) < restart_cooldown_ms(round, live)
}

/// Factor by which the gain of a change must exceed its cost. It is 2 at the end of the cooldown
/// and falls to 1 after twice that time.
pub(crate) fn restart_cost_factor(round: &RoundState<'_>, live: &PlannedJob<'_>) -> f64 {
    if live.scheduling_state != SchedulingState::Running {
        return 1.0;
    }
    let (rest_ms, ran_ms) = (cooldown_ms(round, live), round.ran_ms(live));
    (2.0 * rest_ms as f64 / ran_ms.max(1) as f64).clamp(1.0, 2.0)
}

/// Cooldown in milliseconds, so long that the next resize costs at most `resize_share` of it.
fn cooldown_ms(round: &RoundState<'_>, live: &PlannedJob<'_>) -> u64 {
    if live.job.in_place {
        amortised_ms(round.policy, seconds_of(round.policy.in_place_cost_ms))
    } else {
        restart_cooldown_ms(round, live)
    }
}

fn restart_cooldown_ms(round: &RoundState<'_>, live: &PlannedJob<'_>) -> u64 {
    amortised_ms(round.policy, cost::restart(live, round.policy).total_s())
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
