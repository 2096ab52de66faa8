//! Rigid gangs in an order: each job that fits beside the jobs before it runs at its requested
//! size.

use super::allocation_state::{AllocationState, PlacementStyle};
use super::order::request;
use crate::problem::{PolicyDecision, SchedulingProblem, gpus_of};

/// Serves the jobs in the order of `queue`, from the capacity `start`. `queue` is called once per
/// walk, and a walk can be repeated. A queue names a job at most once and may read the allocations
/// so far.
///
/// A walk in which every job takes its place in turn decides which jobs run. A walk alone would
/// move running jobs without need. The chosen jobs are therefore placed again, with all running
/// jobs on their old nodes first. The walk itself is the answer in two cases: the new jobs do not
/// fit in this way (whole units, CPU, memory), or the next decision would then start another job.
/// The result is stable: a walk on it gives every job the same place.
pub fn run<'a, Q>(
    start: &AllocationState<'a>,
    style: PlacementStyle,
    queue: impl Fn() -> Q,
) -> AllocationState<'a>
where
    Q: FnMut(&AllocationState<'_>) -> Option<usize>,
{
    let (order, walked) = walk(start.clone(), style, queue());
    if let Some(settled) = settle(start, &order, &walked, style) {
        let given = settled.clone().into_given();
        let (_, again) = walk(start.clone().with_present(&given), style, queue());
        if again.into_given() == given {
            return settled;
        }
    }
    walked
}

/// Like [`run`], for an order that is known beforehand.
pub fn in_order(
    problem: &SchedulingProblem,
    style: PlacementStyle,
    order: &[usize],
) -> PolicyDecision {
    run(&AllocationState::beside_fixed(problem), style, || {
        let mut order = order.iter().copied();
        move |_: &AllocationState<'_>| order.next()
    })
    .decision()
}

/// Places each job in turn: on its present nodes if they are free, else where it fits. Also returns
/// the order.
fn walk<'a>(
    mut state: AllocationState<'a>,
    style: PlacementStyle,
    mut queue: impl FnMut(&AllocationState<'_>) -> Option<usize>,
) -> (Vec<usize>, AllocationState<'a>) {
    let mut order = Vec::new();
    while let Some(job) = queue(&state) {
        order.push(job);
        let of = &state.problem.jobs[job];
        if !of.is_movable() {
            continue;
        }
        if gpus_of(state.present(job)) == request(of) && state.can_keep(job) {
            state.keep(job);
        } else {
            state.place(job, request(of), style);
        }
    }
    (order, state)
}

/// Places the jobs that run after the walk. As many as possible keep their nodes.
fn settle<'a>(
    start: &AllocationState<'a>,
    order: &[usize],
    walked: &AllocationState<'a>,
    style: PlacementStyle,
) -> Option<AllocationState<'a>> {
    let mut state = start.clone();
    let mut anew: Vec<(usize, u16, u32)> = Vec::new();
    for &job in order {
        let Some(parts) = walked.given(job) else {
            continue;
        };
        let (kind, gpus) = (state.kind_of(parts)?, gpus_of(parts));
        let present = state.present(job);
        let stays = gpus_of(present) == gpus && state.kind_of(present) == Some(kind);
        if stays && state.can_keep(job) {
            state.keep(job);
        } else {
            anew.push((job, kind, gpus));
        }
    }
    let mut placed = anew.into_iter();
    placed
        .all(|(job, kind, gpus)| state.place_on(job, kind, gpus, style))
        .then_some(state)
}
