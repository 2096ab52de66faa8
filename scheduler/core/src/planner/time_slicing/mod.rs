//! Time slicing: jobs that do not fit together use the same GPUs alternately and keep their
//! processes (Gandiva, Xiao et al., OSDI 2018, section 3.1). The code calls a time slice a turn.
//!
//! It runs around the policy and does not depend on it. Before the policy, the suspended job with
//! the longest wait resumes if its own GPUs are free. Otherwise its free GPUs are reserved. After
//! the policy, waiting jobs replace jobs whose slice has expired. The waiting jobs start or resume
//! in the round in which the GPUs are free.
//!
//! A gang is suspended and resumed as a whole. Reserved GPUs are lent to time-sliced jobs, which
//! are suspended again as soon as the slice can begin. The only state of a job is the time of its
//! last suspension or resumption, and whether its GPUs are lent.

mod fair_share;
mod rotation;
pub(crate) mod slice_forecast;
mod slice_start;

use super::fixpoint::RoundFixpoint;
use super::free::{FreeNode, NodeGpuMasks, count_gpus};
use super::gang::GangShape;
use super::place;
use super::planned_job::PlannedJob;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use crate::policy::Slicing;
use muster_model::job::{Intent, JobState};
pub(crate) use rotation::after_policy;
pub(crate) use slice_start::before_policy;
use std::collections::BTreeMap;

/// Maximum number of waiting jobs that a round considers. Each costs a pass over all running jobs.
const CONSIDERED: usize = 64;

/// A job that waits for GPUs, in the order of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SliceWaiter {
    /// Position in the line. A job that never had a slice counts as one quantum older. Otherwise
    /// the first of several new jobs would suspend a job, which would then precede the later new
    /// jobs and reserve its own GPUs. The bonus is limited to one quantum so that a stream of new
    /// jobs does not starve suspended jobs.
    place_ms: i64,
    since_ms: i64,
    /// Tie-break: a queued job precedes a suspended job, because a job was already suspended for
    /// it.
    is_suspended: bool,
    index: usize,
}

/// Number of suspended jobs, or jobs about to be suspended, by node and GPU.
fn suspended_by_gpu(round: &RoundState<'_>) -> BTreeMap<(u32, u32), u32> {
    let mut suspended = BTreeMap::new();
    for index in 0..round.jobs.len() {
        if round.jobs[index].scheduling_state == SchedulingState::Suspended {
            for gpu in each(&round.jobs[index].home()) {
                *suspended.entry(gpu).or_default() += 1;
            }
        }
    }
    suspended
}

/// Whether a job fits the empty cluster. A job that never fits does not delay others. The empty
/// cluster decides, because the free resources change with every plan.
fn could_run(round: &RoundState<'_>, index: usize) -> bool {
    round.could_run.get_or_init(|| all_that_could_run(round))[index]
}

fn all_that_could_run(round: &RoundState<'_>) -> Vec<bool> {
    let mut known: Vec<(GangShape, bool)> = Vec::new();
    let jobs = round.jobs.iter();
    jobs.map(|live| {
        live.scheduling_state != SchedulingState::Queued || fits_alone(round, live, &mut known)
    })
    .collect()
}

/// Whether the smallest gang fits the empty cluster and its tenant's quota. Answers for shapes are
/// kept in `known`.
fn fits_alone(
    round: &RoundState<'_>,
    live: &PlannedJob<'_>,
    known: &mut Vec<(GangShape, bool)>,
) -> bool {
    let (quota, least) = (round.quota(live), live.shape.least());
    if quota.is_some_and(|quota| least.min_gpus() > quota) {
        return false;
    }
    let same = known.iter().find(|(shape, _)| *shape == least);
    match same {
        Some(&(_, fits)) => fits,
        // Each test reads all nodes.
        None if known.len() == CONSIDERED => true,
        None => {
            let fits = place::fits_empty(round, &least);
            known.push((least, fits));
            fits
        }
    }
}

/// GPUs that a job needs to run.
fn needs(round: &RoundState<'_>, index: usize) -> u32 {
    match round.jobs[index].scheduling_state {
        SchedulingState::Suspended => count_gpus(&round.jobs[index].home()),
        _ => round.jobs[index].shape.min_gpus(),
    }
}

fn quota_has_room(round: &RoundState<'_>, index: usize, gpus: u32) -> bool {
    let live = &round.jobs[index];
    let held = round.held[live.tenant as usize];
    let quota = round.quota(live);
    quota.is_none_or(|quota| held.saturating_add(gpus) <= quota)
}

/// After the policy: resumes suspended jobs on GPUs that the policy did not use. Returns whether
/// any job was resumed; the policy then has to see it.
pub(crate) fn resume_on_free_gpus(round: &mut RoundState<'_>, fixpoint: &RoundFixpoint) -> bool {
    let mut resumed = Vec::new();
    let mut taken = NodeGpuMasks::new();
    for waiter in suspended_waiters(round) {
        let home = round.jobs[waiter.index].home();
        let is_free = home.iter().all(|(node, gpus)| {
            let taken = taken.get(node).copied().unwrap_or(0);
            fixpoint.free[*node as usize].now & !taken & gpus == *gpus
        });
        if is_free && round.resume(waiter.index, "its GPUs are free") {
            for (node, gpus) in home {
                *taken.entry(node).or_default() |= gpus;
            }
            resumed.push(waiter.index);
        }
    }
    resumed.iter().for_each(|&index| round.enlist(index));
    !resumed.is_empty()
}

/// Suspended jobs that wait only for their time slice, longest wait first.
pub(crate) fn waiting_for_slice(round: &RoundState<'_>) -> Vec<usize> {
    let waiters = suspended_waiters(round).into_iter();
    waiters.map(|waiter| waiter.index).collect()
}

/// Whether a queued job waits for its first time slice.
pub(crate) fn has_newcomers(round: &RoundState<'_>) -> bool {
    let slicing = round.policy.slicing;
    slicing.is_some_and(|slicing| !queued(round, slicing).is_empty())
}

/// Milliseconds since the job's present time slice began.
pub(crate) fn slice_age_ms(round: &RoundState<'_>, live: &PlannedJob<'_>) -> i64 {
    round.now_ms.saturating_sub(live.job.slice_began_ms())
}

/// Jobs whose whole gang is suspended and whose intent is to run, longest wait first.
fn suspended_waiters(round: &RoundState<'_>) -> Vec<SliceWaiter> {
    let jobs = round.jobs.iter().enumerate();
    let mut waiters: Vec<SliceWaiter> = jobs
        .filter(|(_, live)| live.scheduling_state == SchedulingState::Suspended)
        .filter(|(_, live)| live.actions.is_empty())
        .filter(|(_, live)| live.job.intent == Intent::Run && live.job.are_workers_suspended())
        .map(|(index, live)| SliceWaiter {
            place_ms: live.job.slice_began_ms(),
            since_ms: live.job.slice_began_ms(),
            is_suspended: true,
            index,
        })
        .collect();
    waiters.sort_unstable();
    waiters
}

/// Queued jobs for which other jobs may be suspended. They can be suspended themselves, so that the
/// others need not wait for their end.
fn queued(round: &RoundState<'_>, slicing: Slicing) -> Vec<SliceWaiter> {
    let quantum_ms = i64::try_from(slicing.quantum_ms).unwrap_or(i64::MAX);
    let jobs = round.jobs.iter().enumerate();
    jobs.filter(|(_, live)| live.scheduling_state == SchedulingState::Queued)
        .filter(|(_, live)| live.job.takes_turns())
        .filter(|(_, live)| live.job.intent == Intent::Run)
        .filter(|(index, _)| could_run(round, *index))
        .map(|(index, live)| {
            // A job that enters the queue in this round waits from now on.
            let since_ms = match live.job.state {
                JobState::Queued => live.job.slice_began_ms(),
                _ => round.now_ms,
            };
            let is_new = live.job.turned_ms.is_none() && live.job.placed_ms.is_none();
            let ahead_ms = if is_new { quantum_ms } else { 0 };
            SliceWaiter {
                place_ms: since_ms.saturating_sub(ahead_ms),
                since_ms,
                is_suspended: false,
                index,
            }
        })
        .collect()
}

/// Whether a running job may grow into GPUs reserved for a suspended job. It already uses GPUs of
/// that job, so its growth does not delay the slice.
pub(crate) fn may_grow_on_loan(round: &RoundState<'_>, index: usize) -> bool {
    let Some((owner, _)) = round.reserved else {
        return false;
    };
    let (live, owner_stands) = (
        &round.jobs[index],
        round.jobs[owner].scheduling_state == SchedulingState::Suspended,
    );
    owner_stands && live.job.takes_turns() && overlaps(live, &round.jobs[owner].home())
}

/// Marks as free later what a job leaves when it is suspended: GPUs and its workers' CPU. It keeps
/// its memory.
fn vacate(free: &mut [FreeNode], live: &PlannedJob<'_>) {
    for held in &live.holdings {
        let mut left = *held;
        left.room.memory_bytes = 0;
        let workers = held.gpus.count_ones() / live.shape.worker.gpus.max(1);
        left.room.cpu_milli = gang_cpu(live, workers);
        free[held.node as usize].release_later(&left);
    }
}

fn gang_cpu(live: &PlannedJob<'_>, workers: u32) -> i64 {
    let each = i64::try_from(live.shape.worker.cpu_milli).unwrap_or(i64::MAX);
    each.saturating_mul(i64::from(workers))
}

fn overlaps(live: &PlannedJob<'_>, home: &NodeGpuMasks) -> bool {
    let held = live
        .holdings
        .iter()
        .chain(&live.leaving)
        .chain(&live.joining);
    held.into_iter().any(|held| {
        home.get(&held.node)
            .is_some_and(|gpus| gpus & held.gpus != 0)
    })
}

/// Each GPU, by node and index.
fn each(gpus: &NodeGpuMasks) -> impl Iterator<Item = (u32, u32)> + use<> {
    let each = gpus.iter().flat_map(|(&node, &set)| {
        let of_node = (0..u64::BITS).filter(move |gpu| set >> gpu & 1 == 1);
        of_node.map(move |gpu| (node, gpu))
    });
    each.collect::<Vec<_>>().into_iter()
}
