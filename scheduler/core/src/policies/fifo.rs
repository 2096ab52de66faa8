//! First in, first out for whole gangs, with EASY backfill (Lifka, JSSPP 1995), as in batch systems
//! such as Slurm.
//!
//! Only a job of higher priority displaces a running job. The first gang that does not fit gets a
//! reservation for the time at which enough other jobs should have ended. A later job starts before
//! it only if it does not delay the reservation: it ends in time, or it fits beside it. End times
//! come from the outlooks; batch systems use the limit that the owner states.
//!
//! Reservations for further jobs (conservative backfill) are omitted. End times are estimates, so a
//! reservation can move, but no job is overtaken without a bound.

use super::allocation_state::{AllocationState, PlacementStyle};
use super::order::request;
use super::{PolicyCapabilities, SchedulingPolicy};
use crate::problem::{NodeAllocation, PolicyDecision, SchedulingProblem, gpus_of};
use std::cmp::Reverse;

/// Policy that serves gangs in order of submission.
#[derive(Debug, Clone, Copy)]
pub struct Fifo;

/// Maximum number of passes. A start changes the next reservation, so the decision is repeated on
/// its own result until no job starts. Two passes are usual.
const PASSES: usize = 8;

impl SchedulingPolicy for Fifo {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        let mut given = pass(AllocationState::beside_fixed(problem)).into_given();
        for _ in 1..PASSES {
            let next =
                pass(AllocationState::beside_fixed(problem).with_present(&given)).into_given();
            if next == given {
                break;
            }
            given = next;
        }
        pass(AllocationState::beside_fixed(problem).with_present(&given)).decision()
    }

    fn capabilities(&self) -> PolicyCapabilities {
        PolicyCapabilities {
            bounded_waiting: true,
            takes_turns: false,
            gathers: false,
            ..PolicyCapabilities::default()
        }
    }
}

/// Reserved time and place of the first job that does not fit.
struct Reservation<'a> {
    at_s: f64,
    /// Resources that are free at that time beside the reserved job.
    state: AllocationState<'a>,
}

fn pass(mut state: AllocationState<'_>) -> AllocationState<'_> {
    let problem = state.problem;
    let mut order: Vec<usize> = (0..problem.jobs.len()).collect();
    order.sort_by_key(|&job| (Reverse(problem.jobs[job].priority), !runs(&state, job)));
    let mut first: Option<Reservation<'_>> = None;
    for (turn, &job) in order.iter().enumerate() {
        if !problem.jobs[job].is_movable() {
            continue;
        }
        if runs(&state, job) && state.can_keep(job) {
            state.keep(job);
            continue;
        }
        let Some(parts) = seek(&state, job, &order[turn + 1..]) else {
            first = first.or_else(|| reserve(&state, job));
            continue;
        };
        let spared = match &mut first {
            Some(first) => spare(&state, first, job, parts),
            None => Some(parts),
        };
        if let Some(parts) = spared {
            state.give(job, parts);
        }
    }
    state
}

/// Returns a place for the job: beside running jobs of lower priority if possible, else in their
/// place.
fn seek(state: &AllocationState<'_>, job: usize, lower: &[usize]) -> Option<Vec<NodeAllocation>> {
    let size = request(&state.problem.jobs[job]);
    let mut running = lower.iter().filter(|&&other| runs(state, other)).peekable();
    if running.peek().is_some() {
        let mut beside = state.clone();
        for &other in running {
            if state.problem.jobs[other].is_movable() && beside.can_keep(other) {
                beside.keep(other);
            }
        }
        if let Some(parts) = beside.seek(job, size, PlacementStyle::Packed) {
            return Some(parts);
        }
    }
    state.seek(job, size, PlacementStyle::Packed)
}

/// Whether the job holds its requested size.
fn runs(state: &AllocationState<'_>, job: usize) -> bool {
    gpus_of(state.present(job)) == request(&state.problem.jobs[job])
}

/// Returns the time at which the job fits, if the others end as estimated and no other job starts.
/// Returns `None` if the job never fits.
fn reserve<'a>(state: &AllocationState<'a>, job: usize) -> Option<Reservation<'a>> {
    let problem = state.problem;
    let mut ends: Vec<(f64, usize)> = (0..problem.jobs.len())
        .filter_map(|other| {
            let fixed = !problem.jobs[other].is_movable();
            let parts = if fixed {
                Some(&problem.jobs[other].present[..])
            } else {
                state.given(other)
            };
            let end_s = end_s(state, other, parts?);
            end_s.is_finite().then_some((end_s, other))
        })
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let size = request(&problem.jobs[job]);
    let mut then = state.clone();
    for (at_s, other) in ends {
        then.end(other);
        if then.place(job, size, PlacementStyle::Packed) {
            return Some(Reservation { at_s, state: then });
        }
    }
    None
}

/// Returns a place in which the job does not delay the first job of the queue. Either it ends
/// before the reservation, or it fits beside it and is counted there.
fn spare(
    state: &AllocationState<'_>,
    first: &mut Reservation<'_>,
    job: usize,
    parts: Vec<NodeAllocation>,
) -> Option<Vec<NodeAllocation>> {
    if end_s(state, job, &parts) <= first.at_s {
        return Some(parts);
    }
    let mut beside = state.clone();
    beside.tally = state.tally.common(&first.state.tally);
    let of = &state.problem.jobs[job];
    let parts = beside.seek(job, request(of), PlacementStyle::Packed)?;
    let fits = first.state.quota_allows(of.tenant, gpus_of(&parts));
    fits.then(|| first.state.give(job, parts.clone()))?;
    Some(parts)
}

/// Returns the end time of a job on these GPUs, including the rest of its start.
fn end_s(state: &AllocationState<'_>, job: usize, parts: &[NodeAllocation]) -> f64 {
    let of = &state.problem.jobs[job];
    let now_s = state.problem.now_s;
    let begun_s = if of.present == parts {
        of.since_s
    } else {
        now_s
    };
    let ready_s = (begun_s + of.restart_s).max(now_s);
    ready_s + of.outlook.work_left / state.speed_on(job, parts)
}
