//! Details of Gavel in Sia's artefact (SOSP 2023) that [`super::Gavel`] does otherwise.

use super::fractions::TimeFraction;
use crate::policies::allocation_state::AllocationState;
use crate::policies::wish_placement::SizeWish;
use crate::problem::{NodeAllocation, gpus_of};
use std::cmp::Reverse;

/// Gives equal jobs equal fractions: their mean. The artefact's solver is an interior point method,
/// whose optimum treats equal jobs alike. A vertex of the simplex method gives one of them all.
pub(super) fn split_ties(fractions: &mut [Vec<TimeFraction>]) {
    let mut done = vec![false; fractions.len()];
    for first in 0..fractions.len() {
        if done[first] {
            continue;
        }
        let equals: Vec<usize> = (first..fractions.len())
            .filter(|&other| are_equal(&fractions[first], &fractions[other]))
            .collect();
        for kind in 0..fractions[first].len() {
            let sum: f64 = equals
                .iter()
                .map(|&job| fractions[job][kind].fraction)
                .sum();
            for &job in &equals {
                fractions[job][kind].fraction = sum / equals.len() as f64;
            }
        }
        for job in equals {
            done[job] = true;
        }
    }
}

/// Whether two jobs have the same size and the same speed on the same kinds.
fn are_equal(one: &[TimeFraction], other: &[TimeFraction]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(a, b)| {
            a.wish.kind == b.wish.kind && a.wish.gpus == b.wish.gpus && a.speed == b.speed
        })
}

/// Places the wishes as the artefact does: large jobs first, those of unchanged size and kind on
/// their nodes, the others on the next free GPUs in the order of the nodes.
pub(super) fn place_in_order(state: &mut AllocationState<'_>, wishes: &[SizeWish]) {
    let mut wishes = wishes.to_vec();
    wishes.sort_by_key(|wish| Reverse(wish.gpus));
    for same_size in wishes.chunk_by(|a, b| a.gpus == b.gpus) {
        for wish in same_size {
            if is_unchanged(state, *wish) && state.can_keep(wish.job) {
                state.keep(wish.job);
            }
        }
        for wish in same_size {
            if state.given(wish.job).is_none() {
                place_first(state, *wish);
            }
        }
    }
}

fn is_unchanged(state: &AllocationState<'_>, wish: SizeWish) -> bool {
    let present = state.present(wish.job);
    gpus_of(present) == wish.gpus && state.kind_of(present) == Some(wish.kind)
}

/// Gives a job the first free GPUs of the kind in whole units, if there are enough.
fn place_first(state: &mut AllocationState<'_>, wish: SizeWish) {
    let unit = state.problem.jobs[wish.job].unit.gpus.max(1);
    let mut missing = wish.gpus;
    let mut parts = Vec::new();
    for (index, node) in (0_u32..).zip(&state.problem.nodes) {
        let free = state.tally.free[index as usize].min(missing) / unit * unit;
        if node.kind == wish.kind && free > 0 {
            missing -= free;
            parts.push(NodeAllocation {
                node: index,
                gpus: free,
            });
        }
    }
    let fits = state
        .tally
        .holds(&parts, &state.problem.jobs[wish.job].unit);
    if missing == 0 && fits {
        state.give(wish.job, parts);
    }
}
