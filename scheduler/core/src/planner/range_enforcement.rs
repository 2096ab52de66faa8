//! Enforces a range of workers or shards that the owner changed while the job runs.
//!
//! Above the new maximum the job shrinks, in place at once, even in its cooldown. The policy does
//! not decide on sizes that the owner excludes. Below the new minimum the job continues, and its
//! size counts as its minimum for the policy. It grows into GPUs that no waiting job could use.
//! Stopping it would take away what the owner already has. Giving it precedence would let jobs
//! overtake others by asking for little first. In both cases the job stops only when a place for it
//! is reserved.
//!
//! Shards use no GPUs, so they do not compete with waiting jobs for GPUs. CPU and memory beside
//! free GPUs stay reserved for waiting jobs.

use super::fixpoint::RoundFixpoint;
use super::free::{Availability, FreeNode};
use super::gang::{self, GangPlacement};
use super::hysteresis::in_backoff;
use super::in_place::{self, InPlace};
use super::migration;
use super::observations::done_workers;
use super::place;
use super::planned_job::PlannedJob;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use super::shards;
use crate::problem::NodeAllocation;
use muster_model::job::Intent;
use std::cmp::Reverse;

/// Maximum number of jobs per round for which a restart is tried; each round tries other jobs. A
/// trial costs as much as a round, and a tenant may change the ranges of thousands of jobs.
const TRIED: usize = 16;

/// Shrinks jobs above their maximum. A job with too many workers and shards gives up workers first,
/// by a restart if it cannot be resized in place. Shards change only in place, as soon as they can.
pub(crate) fn enforce_ranges(round: &mut RoundState<'_>) {
    let mut tried = 0;
    for index in in_rotation(round) {
        let live = &round.jobs[index];
        let (had, most) = (live.size.0, live.job.workers.max);
        if !is_settled(live) {
            continue;
        }
        if had <= most {
            if let Some((change, why)) = fewer_shards(round, index) {
                round.resize(index, &change, why);
            }
            continue;
        }
        let surplus = live.shape.gpus(had - most);
        let why = why_smaller(had, "workers", most);
        match in_place::shrink(live, surplus) {
            Some(change) => round.resize(index, &change, why),
            None if tried == TRIED => {}
            None => {
                tried += 1;
                let free = migration::once_stopped(round, index);
                let mut sizes = (round.jobs[index].job.workers.min..=most).rev();
                if let Some(placed) =
                    sizes.find_map(|workers| place_anew(round, index, &free, workers))
                {
                    round.relocate(index, placed, why);
                }
            }
        }
    }
}

/// Change to the maximum number of shards, if the job has more.
fn fewer_shards(round: &RoundState<'_>, index: usize) -> Option<(in_place::TaskSetChange, String)> {
    let live = &round.jobs[index];
    let (had, most) = (live.size.1, live.job.ps_shards.max);
    if had <= most {
        return None;
    }
    let change = in_place::reshard(live, &round.free, most)?;
    Some((change, why_smaller(had, "PS shards", most)))
}

fn why_smaller(had: u32, what: &str, most: u32) -> String {
    format!("from {had} {what} to the {most} that its owner lets it have now")
}

/// Grows jobs below their minimum into free GPUs that no waiting job could use. In place they grow
/// as far as possible, by a restart only to the whole minimum. Returns whether any job grows.
pub(crate) fn grow(round: &mut RoundState<'_>, fixpoint: &RoundFixpoint) -> bool {
    let mut free = fixpoint.free.clone();
    let (mut any, mut tried) = (false, 0);
    for index in in_rotation(round) {
        let live = &round.jobs[index];
        let (had, wanted) = (live.size.0, live.job.workers.min);
        let is_short = had < wanted || live.size.1 < live.job.ps_shards.min;
        if !is_settled(live) || in_backoff(round, live) || !is_short {
            continue;
        }
        let grows = had < wanted && !is_waited_for(round, fixpoint, live);
        // The workers of a job without GPUs are not placed by GPUs, so they restart as one gang.
        let restarts = live.job.is_cpu_only() && had < wanted;
        if live.job.in_place && !restarts {
            let larger = grows
                .then(|| more_workers(round, index, &free))
                .flatten()
                .or_else(|| more_shards(round, index, &free));
            if let Some((change, why)) = larger {
                round.resize(index, &change, why);
                // Promised resources are still missing for the next job.
                for held in &round.jobs[index].joining {
                    free[held.node as usize].hold(held);
                }
                any = true;
            }
        } else if tried < TRIED && grows {
            tried += 1;
            if let Some(placed) = larger_anew(round, index, &free, wanted) {
                let why = why_larger(had, wanted, "workers", wanted);
                let to = placed.holdings(&round.jobs[index].shape);
                round.relocate(index, placed, why);
                if !round.jobs[index].job.is_cpu_only() {
                    // GPUs that are free now may be part of its own place.
                    return true;
                }
                for held in &to {
                    free[held.node as usize].keep(held);
                }
                any = true;
            }
        }
    }
    any
}

/// Change to as many workers as there is room for, up to the minimum.
fn more_workers(
    round: &RoundState<'_>,
    index: usize,
    free: &[FreeNode],
) -> Option<(in_place::TaskSetChange, String)> {
    let live = &round.jobs[index];
    let (had, wanted) = (live.size.0, live.job.workers.min);
    let mut sizes = (had + 1..=wanted).rev();
    sizes.find_map(|workers| {
        let change = larger(round, index, free, workers).filter(|_| live.shape.takes(workers))?;
        Some((change, why_larger(had, workers, "workers", wanted)))
    })
}

/// Change to as many shards as there is room for beside waiting jobs, up to the minimum.
fn more_shards(
    round: &RoundState<'_>,
    index: usize,
    free: &[FreeNode],
) -> Option<(in_place::TaskSetChange, String)> {
    let live = &round.jobs[index];
    let (had, wanted) = (live.size.1, live.job.ps_shards.min);
    if had >= wanted {
        return None;
    }
    let free = shards::beside_waiting(round, free);
    let change = in_place::reshard(live, &free, wanted)?;
    let gets = change.shards_after(live);
    Some((change, why_larger(had, gets, "PS shards", wanted)))
}

fn why_larger(had: u32, gets: u32, what: &str, wanted: u32) -> String {
    format!("from {had} to {gets} {what}: its owner wants {wanted} at least")
}

/// All jobs; each round starts with another one.
fn in_rotation(round: &RoundState<'_>) -> impl Iterator<Item = usize> + use<> {
    let jobs = round.jobs.len();
    let steps = usize::try_from(round.snapshot.round).unwrap_or(0);
    let first = steps.wrapping_mul(TRIED) % jobs.max(1);
    (first..jobs).chain(0..first)
}

/// Whether a job waits for GPUs that this job may not overtake.
///
/// Jobs of lower priority do not count. Jobs that wait only for their tenant's quota count if this
/// job has the same tenant. The policy may keep GPUs for a job without parts in its decision, such
/// as an overdue job or the first job of `fifo`.
fn is_waited_for(round: &RoundState<'_>, fixpoint: &RoundFixpoint, live: &PlannedJob<'_>) -> bool {
    let quota = round.quota(live);
    round.jobs.iter().any(|other| {
        let waits =
            other.scheduling_state.waits() || other.scheduling_state == SchedulingState::Suspended;
        if !waits || other.job.intent != Intent::Run || other.priority < live.priority {
            return false;
        }
        // They compete for other resources.
        if other.job.is_cpu_only() != live.job.is_cpu_only() {
            return false;
        }
        let is_own = other.tenant == live.tenant;
        let is_served = other
            .member
            .is_some_and(|member| fixpoint.promised.contains_key(&member));
        if is_served {
            return is_own && quota.is_some();
        }
        (is_own || !quota_is_short(round, other)) && place::could_ever_run(round, other)
    })
}

/// Whether the jobs of its tenant that stay leave less quota than the job's minimum.
pub(crate) fn quota_is_short(round: &RoundState<'_>, waits: &PlannedJob<'_>) -> bool {
    let of_tenant = round.jobs.iter().filter(|live| live.tenant == waits.tenant);
    let kept: u32 = of_tenant
        .filter(|live| live.scheduling_state.stays())
        .map(PlannedJob::charged)
        .sum();
    let quota = round.quota(waits);
    quota.is_some_and(|quota| kept.saturating_add(waits.shape.min_gpus()) > quota)
}

/// Whether a running job has a size outside of its owner's range. A command with finished workers
/// is never outside.
pub(crate) fn is_outside(live: &PlannedJob<'_>) -> bool {
    live.scheduling_state == SchedulingState::Running
        && done_workers(live.job) == 0
        && !live.allows_size(live.size)
}

/// Whether nothing is in progress for the job, and it has no finished workers, which a restart
/// would run again.
fn is_settled(live: &PlannedJob<'_>) -> bool {
    let moves = live.is_resizing || live.destination.is_some();
    live.scheduling_state == SchedulingState::Running && !moves && done_workers(live.job) == 0
}

/// Change to this number of workers in place: first on its present nodes, then on the nodes with
/// the most room.
fn larger(
    round: &RoundState<'_>,
    index: usize,
    free: &[FreeNode],
    workers: u32,
) -> Option<in_place::TaskSetChange> {
    let live = &round.jobs[index];
    let per_worker = live.shape.worker.gpus.max(1);
    let mut parts: Vec<NodeAllocation> = round.dense(index).present;
    let kind = free[parts.first()?.node as usize].kind;
    let mut nodes: Vec<(bool, u32, u32)> = (0_u32..)
        .zip(free)
        .filter(|(_, node)| node.kind == kind)
        .map(|(at, node)| (at, place::units(node, &live.shape, Availability::Now)))
        .map(|(at, units)| (parts.iter().any(|part| part.node == at), units, at))
        .collect();
    nodes.sort_by_key(|&(has_some, units, at)| (Reverse(has_some), Reverse(units), at));
    let mut missing = workers - live.size.0;
    for (_, units, node) in nodes {
        let more = units.min(missing);
        let gpus = more * per_worker;
        if more == 0 || free[node as usize].needs_fresh(gpus) {
            continue;
        }
        missing -= more;
        match parts.iter_mut().find(|part| part.node == node) {
            Some(part) => part.gpus += gpus,
            None => parts.push(NodeAllocation { node, gpus }),
        }
    }
    let gpus = live.shape.gpus(workers - live.size.0);
    if missing > 0 || !has_quota(round, live, gpus) {
        return None;
    }
    match in_place::resize(live, free, &parts, live.size.1) {
        InPlace::Now(change) => Some(change),
        InPlace::Later | InPlace::Never => None,
    }
}

/// Place for the restart with more workers, once the job's own tasks have ended.
fn larger_anew(
    round: &RoundState<'_>,
    index: usize,
    free: &[FreeNode],
    workers: u32,
) -> Option<GangPlacement> {
    let live = &round.jobs[index];
    if !has_quota(round, live, live.shape.gpus(workers - live.size.0)) {
        return None;
    }
    let mut free = free.to_vec();
    for held in &live.holdings {
        let node = &mut free[held.node as usize];
        node.release_later(held);
        node.give_back(held);
    }
    // The smallest allowed number from the minimum on.
    let mut sizes = workers..=live.job.workers.max;
    let workers = sizes.find(|&workers| live.shape.takes(workers))?;
    place_anew(round, index, &free, workers)
}

/// Place for this number of workers, with the present number of shards limited to the owner's
/// range.
fn place_anew(
    round: &RoundState<'_>,
    index: usize,
    free: &[FreeNode],
    workers: u32,
) -> Option<GangPlacement> {
    let live = &round.jobs[index];
    if !live.shape.takes(workers) {
        return None;
    }
    let shards = live.job.ps_shards;
    let size = (workers, live.size.1.clamp(shards.min, shards.max));
    let shares = place::find(free, &live.shape, size, Availability::Now)?;
    Some(gang::take(
        &mut free.to_vec(),
        &live.shape,
        &shares,
        Availability::Now,
    ))
}

fn has_quota(round: &RoundState<'_>, live: &PlannedJob<'_>, gpus: u32) -> bool {
    let held = round.held[live.tenant as usize];
    let quota = round.quota(live);
    quota.is_none_or(|quota| held.saturating_add(gpus) <= quota)
}
