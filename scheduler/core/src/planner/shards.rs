//! Number of PS shards of running jobs whose workers stay. It is not part of the policy's problem:
//! shards use no GPUs, and the best number follows from the job's own speed.
//!
//! A better number is adopted in place under the rules for workers. No earlier decision is in
//! progress, the job is not in its cooldown, and the change repays its cost. A job that can only
//! restart keeps its number until its next start.

use super::fixpoint::RoundFixpoint;
use super::free::{Availability, FreeNode, HostCapacity};
use super::hysteresis::{in_cooldown, is_settled};
use super::in_place;
use super::place;
use super::planned_job::PlannedJob;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use super::time::seconds_of;
use muster_model::job::Intent;

/// Changes the number of shards of jobs that gain by it. Returns whether any job was changed.
pub(crate) fn adopt(round: &mut RoundState<'_>, fixpoint: &RoundFixpoint) -> bool {
    if !is_settled(round) {
        return false;
    }
    let mut left: Option<Vec<FreeNode>> = None;
    let mut any = false;
    for index in 0..round.jobs.len() {
        let Some(best) = better(round, &round.jobs[index]) else {
            continue;
        };
        let free = left.get_or_insert_with(|| beside_waiting(round, &fixpoint.free));
        let live = &round.jobs[index];
        let Some(change) = in_place::reshard(live, free, best) else {
            continue;
        };
        let (had, gets) = (live.size.1, change.shards_after(live));
        if !pays(round, live, gets) {
            continue;
        }
        round.resize(
            index,
            &change,
            format!("from {had} to {gets} PS shards: worth the change"),
        );
        for held in &round.jobs[index].joining {
            free[held.node as usize].hold(held);
        }
        any = true;
    }
    any
}

/// Best number of shards for the present workers, if it differs from the present number and may
/// change.
fn better(round: &RoundState<'_>, live: &PlannedJob<'_>) -> Option<u32> {
    let (workers, ps_shards) = live.size;
    let is_settled = live.scheduling_state == SchedulingState::Running
        && live.job.intent == Intent::Run
        && live.member.is_some()
        && in_place::is_able(live)
        && !in_cooldown(round, live);
    let best = live.sizing.ps_shards(workers);
    (ps_shards > 0 && best > 0 && best != ps_shards && is_settled).then_some(best)
}

/// Whether this number of shards saves enough of the remaining time, after the cost of the change.
fn pays(round: &RoundState<'_>, live: &PlannedJob<'_>, ps_shards: u32) -> bool {
    let (policy, workers) = (round.policy, live.size.0);
    let now_s = live.estimate.time_s(live.size);
    let then_s = live.estimate.time_s((workers, ps_shards));
    let saved_s = now_s - then_s - seconds_of(policy.in_place_cost_ms);
    saved_s > 0.0 && saved_s >= policy.min_gain * now_s
}

/// Resources of `free` that shards may use. CPU and memory that waiting jobs need beside free GPUs
/// are subtracted.
pub(crate) fn beside_waiting(round: &RoundState<'_>, free: &[FreeNode]) -> Vec<FreeNode> {
    let mut left = free.to_vec();
    let waiting = round
        .jobs
        .iter()
        .filter(|live| live.scheduling_state.waits() && live.job.intent == Intent::Run)
        .filter(|live| !live.job.is_cpu_only());
    let mut shapes = Vec::new();
    for live in waiting {
        let shape = live.shape.least();
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    for node in &mut left {
        let kept = shapes.iter().map(|shape| {
            let workers = place::units(node, shape, Availability::Later);
            HostCapacity::worker(&shape.worker).times(workers)
        });
        let kept = kept.reduce(|a, b| HostCapacity {
            cpu_milli: a.cpu_milli.max(b.cpu_milli),
            memory_bytes: a.memory_bytes.max(b.memory_bytes),
        });
        node.take_room(kept.unwrap_or_default(), Availability::Now);
    }
    left
}
