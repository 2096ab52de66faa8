//! Hysteresis. A running job is not resized while an earlier decision is in progress, during its
//! cooldown, or into GPUs released a moment ago.
//!
//! This module holds predicates only; `policy_guard` asks the policy again.

use super::cost;
use super::planned_job::PlannedJob;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use crate::plan::Action;
use crate::problem::{NodeAllocation, PolicyDecision, gpus_of};
use muster_model::job::Charge;

/// Whether no earlier decision is in progress: no job has still to stop, to find its place again or
/// to complete a resize in place. A job that starts does not count, because its GPUs are decided.
pub(crate) fn is_settled(round: &RoundState<'_>) -> bool {
    let mut jobs = round.jobs.iter().filter(|live| !live.job.is_cpu_only());
    jobs.all(|live| match live.scheduling_state {
        SchedulingState::Returning | SchedulingState::Displaced => false,
        SchedulingState::Resting | SchedulingState::Ending => live.holdings.is_empty(),
        SchedulingState::Running => {
            !live.is_resizing || live.ran_ms(round.now_ms) >= round.policy.min_run_ms
        }
        SchedulingState::Starting | SchedulingState::Queued | SchedulingState::Suspended => true,
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
    gpus_of(gets) > job.held_gpus()
        && gets.iter().any(|part| {
            let more = part.gpus.saturating_sub(gpus_on(&job.present, part.node));
            more > 0 && round.free[part.node as usize].needs_fresh(more)
        })
}

/// Number of GPUs on one node.
pub(crate) fn gpus_on(parts: &[NodeAllocation], node: u32) -> u32 {
    let there = parts.iter().filter(|part| part.node == node);
    there.map(|part| part.gpus).sum()
}

/// Whether a running job is in its cooldown: it was placed, resized or resumed a moment ago.
pub(crate) fn in_cooldown(round: &RoundState<'_>, live: &PlannedJob<'_>) -> bool {
    let policy = round.policy;
    let turned_ms = live.job.turned_ms.unwrap_or(i64::MIN);
    let went_on_ms = u64::try_from(round.now_ms.saturating_sub(turned_ms)).unwrap_or(0);
    let quantum_ms = policy
        .slicing
        .map_or(policy.min_run_ms, |slicing| slicing.quantum_ms);
    went_on_ms < quantum_ms
        || in_backoff(round, live)
        || live
            .actions
            .iter()
            .any(|action| matches!(action, Action::Continue { .. }))
        || live.ran_ms(round.now_ms) < cost::cooldown_ms(live, policy)
}

/// Whether the job is in back-off after a node refused its growth. The back-off is twice the
/// minimum cooldown and doubles with each further rejection, up to `backoff_max_ms`. Each failed
/// growth holds GPUs for about ten seconds that other jobs could use.
pub(crate) fn in_backoff(round: &RoundState<'_>, live: &PlannedJob<'_>) -> bool {
    let policy = round.policy;
    // The job's row does not contain the rejections of this round yet.
    let refused = live.actions.iter().any(|action| {
        matches!(
            action,
            Action::Resize {
                charge: Charge::Refusal,
                ..
            }
        )
    });
    let put_off = live.job.put_off.saturating_add(u32::from(refused));
    let doubled = policy.min_run_ms.saturating_mul(1 << put_off.min(32));
    let rest_ms = doubled.min(policy.backoff_max_ms.max(policy.min_run_ms));
    live.scheduling_state == SchedulingState::Running
        && put_off > 0
        && live.ran_ms(round.now_ms) < rest_ms
}

/// Whether a job that usually resizes in place has run too short a time for a restart for speed.
pub(crate) fn is_too_soon_to_restart(round: &RoundState<'_>, live: &PlannedJob<'_>) -> bool {
    live.ran_ms(round.now_ms) < cost::restart_cooldown_ms(live, round.policy)
}
