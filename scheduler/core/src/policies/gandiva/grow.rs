//! Growth into idle GPUs, and shrinking when another job needs them.

use super::{is_settled, time_left_s};
use crate::policies::order::maximum;
use crate::policies::room::AllocationState;
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
    let mut room = start.clone();
    // Only jobs that stay on one node grow.
    let alone = |job: usize| match given[job].as_deref() {
        Some(&[part]) if start.present(job) == [part] => Some((job, part)),
        _ => None,
    };
    let alone: Vec<(usize, NodeAllocation)> = (0..given.len()).filter_map(alone).collect();
    for (job, parts) in given.into_iter().enumerate() {
        if let Some(parts) = parts {
            room.give(job, parts);
        }
    }
    for &(job, part) in &alone {
        let grown = room.problem.jobs[job].held_gpus().saturating_sub(part.gpus);
        let idle = idle(&room, job, part).min(grown);
        extend(&mut room, job, part, idle);
    }
    for &(job, part) in &alone {
        let has_grown = room.problem.jobs[job].held_gpus() > part.gpus;
        if !has_grown && is_settled(start, job, Some(&[part])) {
            let more = most_useful(&room, job, part);
            extend(&mut room, job, part, more);
        }
    }
    room
}

/// Returns the idle GPUs of the node that the job may take.
fn idle(room: &AllocationState<'_>, job: usize, part: NodeAllocation) -> u32 {
    let of = &room.problem.jobs[job];
    let idle = room.tally.available(part.node as usize, &of.unit);
    let mut more = idle.min(maximum(of).saturating_sub(part.gpus));
    while more > 0 && !room.quota_allows(of.tenant, more) {
        more -= of.unit.gpus.max(1);
    }
    more
}

/// Returns the number of further GPUs with the earliest end, or 0 if it does not repay the restart.
fn most_useful(room: &AllocationState<'_>, job: usize, part: NodeAllocation) -> u32 {
    let of = &room.problem.jobs[job];
    let left_s = |gpus: u32| time_left_s(room, job, &[NodeAllocation { gpus, ..part }]);
    let sizes = (1..=idle(room, job, part)).filter(|more| more % of.unit.gpus.max(1) == 0);
    let paying = sizes.filter(|more| left_s(part.gpus) - left_s(part.gpus + more) > of.change_s());
    let best = paying.min_by(|a, b| left_s(part.gpus + a).total_cmp(&left_s(part.gpus + b)));
    best.unwrap_or(0)
}

fn extend(room: &mut AllocationState<'_>, job: usize, part: NodeAllocation, more: u32) {
    let gpus = part.gpus + more;
    if more == 0 || room.speed_on(job, &[NodeAllocation { gpus, ..part }]) <= 0.0 {
        return;
    }
    room.take_back(job);
    room.give(job, vec![NodeAllocation { gpus, ..part }]);
}
