//! Gathering of scattered gangs.

use super::{is_settled, time_left_s};
use crate::policies::allocation_state::{AllocationState, PlacementStyle};
use crate::problem::{NodeAllocation, gpus_of, nodes_of};
use std::cmp::Reverse;

/// Moves gangs from several nodes onto one, where other jobs may have to migrate for it. A gang
/// moves only if it then ends earlier by more than the cost of all these restarts. `start` has the
/// present allocations, `given` the planned ones. Returns `None` if no gang moves.
pub fn scattered<'a>(
    start: &AllocationState<'a>,
    given: &[Option<Vec<NodeAllocation>>],
) -> Option<Vec<Option<Vec<NodeAllocation>>>> {
    let mut state = start.clone();
    for (job, parts) in given.iter().enumerate() {
        if let Some(parts) = parts {
            state.give(job, parts.clone());
        }
    }
    let mut moved = false;
    // One move can enable the next. Each one gathers a gang, so the loop ends.
    while let Some(next) = (0..given.len()).find_map(|job| consolidate(start, &state, job)) {
        state = next;
        moved = true;
    }
    moved.then(|| state.into_given())
}

/// Returns the state in which the gang is on one node.
fn consolidate<'a>(
    start: &AllocationState<'a>,
    state: &AllocationState<'a>,
    job: usize,
) -> Option<AllocationState<'a>> {
    let parts = state.given(job)?;
    let starts_now = parts != start.present(job);
    if nodes_of(parts) < 2 || !(starts_now || is_settled(start, job, Some(parts))) {
        return None;
    }
    let own_cost_s = if starts_now {
        0.0
    } else {
        state.problem.jobs[job].change_s()
    };
    let mut without = state.clone();
    without.take_back(job);
    emptiest_first(&without, state.kind_of(parts)?)
        .into_iter()
        .find_map(|node| {
            let mut trial = without.clone();
            let together = [NodeAllocation {
                node,
                gpus: gpus_of(parts),
            }];
            let cost_s = own_cost_s + vacate(start, &mut trial, job, &together)?;
            let saved_s = time_left_s(state, job, parts) - time_left_s(state, job, &together);
            if saved_s <= cost_s {
                return None;
            }
            trial.give(job, together.to_vec());
            Some(trial)
        })
}

fn emptiest_first(state: &AllocationState<'_>, kind: u16) -> Vec<u32> {
    let nodes = (0..).zip(state.problem.nodes.iter().zip(&state.tally.free));
    let mut nodes: Vec<(u32, u32)> = nodes
        .filter(|(_, (node, _))| node.kind == kind)
        .map(|(index, (_, &free))| (index, free))
        .collect();
    nodes.sort_by_key(|&(index, free)| (Reverse(free), index));
    nodes.into_iter().map(|(index, _)| index).collect()
}

/// Moves small jobs from the node elsewhere until the gang fits there. Returns the cost of their
/// restarts, or `None` if the gang does not fit.
fn vacate(
    start: &AllocationState<'_>,
    state: &mut AllocationState<'_>,
    gang: usize,
    place: &[NodeAllocation],
) -> Option<f64> {
    let node = place[0].node;
    let unit = &state.problem.jobs[gang].unit;
    let mut movers: Vec<(u32, usize)> = (0..state.problem.jobs.len())
        .filter(|&job| is_settled(start, job, state.given(job)))
        .filter_map(|job| match *state.given(job)? {
            [part] if part.node == node => Some((part.gpus, job)),
            _ => None,
        })
        .collect();
    movers.sort_unstable();
    let mut movers = movers.into_iter();
    let mut cost_s = 0.0;
    while !state.tally.holds(place, unit) {
        let (gpus, job) = movers.next()?;
        let kind = state.problem.nodes[node as usize].kind;
        // Search while the job still holds its GPUs, so that these do not count as room for it.
        let elsewhere = state.find(job, kind, gpus, PlacementStyle::Affine)?;
        if nodes_of(&elsewhere) > 1 || elsewhere[0].node == node {
            return None;
        }
        state.take_back(job);
        state.give(job, elsewhere);
        cost_s += state.problem.jobs[job].change_s();
    }
    Some(cost_s)
}
