//! Growth into idle GPUs, and shrinking when another job needs them.

use super::{is_settled, time_left_s};
use crate::policies::allocation_state::AllocationState;
use crate::policies::order::maximum;
use crate::problem::NodeAllocation;

/// Grows jobs into idle GPUs.
///
/// A job that had grown keeps what no other job took of its growth. Then other jobs grow if they
/// end earlier by more than the cost of the restart. `start` has the present allocations without
/// growth, and `given` the planned ones, so growth can always be withdrawn.
pub fn into_idle<'a>(
    start: &AllocationState<'a>,
    given: Vec<Option<Vec<NodeAllocation>>>,
) -> AllocationState<'a> {
    let mut state = start.clone();
    // Only jobs that stay on one node grow.
    let alone: Vec<(usize, NodeAllocation)> = (0..given.len())
        .filter_map(|job| match given[job].as_deref() {
            Some(&[part]) if start.present(job) == [part] => Some((job, part)),
            _ => None,
        })
        .collect();
    for (job, parts) in given.into_iter().enumerate() {
        if let Some(parts) = parts {
            state.give(job, parts);
        }
    }
    for &(job, part) in &alone {
        let grown = state.problem.jobs[job]
            .held_gpus()
            .saturating_sub(part.gpus);
        let idle = idle(&state, job, part).min(grown);
        extend(&mut state, job, part, idle);
    }
    for &(job, part) in &alone {
        let has_grown = state.problem.jobs[job].held_gpus() > part.gpus;
        if !has_grown && is_settled(start, job, Some(&[part])) {
            let more = most_useful(&state, job, part);
            extend(&mut state, job, part, more);
        }
    }
    state
}

/// Returns the idle GPUs of the node that the job may take.
fn idle(state: &AllocationState<'_>, job: usize, part: NodeAllocation) -> u32 {
    let of = &state.problem.jobs[job];
    let idle = state.tally.available(part.node as usize, &of.unit);
    let mut more = idle.min(maximum(of).saturating_sub(part.gpus));
    while more > 0 && !state.quota_allows(of.tenant, more) {
        more -= of.unit.gpus.max(1);
    }
    more
}

/// Returns the number of further GPUs with the earliest end, or 0 if it does not repay the restart.
fn most_useful(state: &AllocationState<'_>, job: usize, part: NodeAllocation) -> u32 {
    let of = &state.problem.jobs[job];
    let sizes = (1..=idle(state, job, part)).filter(|more| more % of.unit.gpus.max(1) == 0);
    let present_s = time_left_s(state, job, &[part]);
    let paying = sizes
        .map(|more| (more, grown_time_left_s(state, job, part, more)))
        .filter(|(_, left_s)| present_s - left_s > of.change_s());
    let best = paying.min_by(|(_, a_s), (_, b_s)| a_s.total_cmp(b_s));
    best.map_or(0, |(more, _)| more)
}

/// Returns the remaining seconds of a job that holds `more` further GPUs of its node.
fn grown_time_left_s(
    state: &AllocationState<'_>,
    job: usize,
    part: NodeAllocation,
    more: u32,
) -> f64 {
    let gpus = part.gpus + more;
    time_left_s(state, job, &[NodeAllocation { gpus, ..part }])
}

fn extend(state: &mut AllocationState<'_>, job: usize, part: NodeAllocation, more: u32) {
    let gpus = part.gpus + more;
    if more == 0 || state.speed_on(job, &[NodeAllocation { gpus, ..part }]) <= 0.0 {
        return;
    }
    state.take_back(job);
    state.give(job, vec![NodeAllocation { gpus, ..part }]);
}
