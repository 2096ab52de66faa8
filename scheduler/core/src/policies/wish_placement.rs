//! Placement of sizes: shared by policies that first choose the kind and the number of GPUs of each
//! job.

use super::allocation_state::{AllocationState, PlacementStyle};
use crate::problem::{NodeAllocation, ProblemJob, SchedulingProblem, gpus_of, nodes_of};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Wanted size and kind of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeWish {
    pub job: usize,
    pub kind: u16,
    pub gpus: u32,
}

/// Returns the movable jobs in groups of equal priority, the highest first. Each group is in order
/// of submission.
pub fn levels(problem: &SchedulingProblem) -> Vec<Vec<usize>> {
    let jobs = 0..problem.jobs.len();
    let mut movable: Vec<usize> = jobs.filter(|&job| problem.jobs[job].is_movable()).collect();
    movable.sort_by_key(|&job| Reverse(problem.jobs[job].priority));
    movable
        .chunk_by(|a, b| problem.jobs[*a].priority == problem.jobs[*b].priority)
        .map(<[usize]>::to_vec)
        .collect()
}

/// Returns the fewest nodes of a kind that hold a gang of whole units. Returns `None` if no unit
/// fits on a node.
pub fn fewest_nodes(
    state: &AllocationState<'_>,
    job: &ProblemJob,
    kind: u16,
    gpus: u32,
) -> Option<u32> {
    let unit = job.unit.gpus.max(1);
    let &(_, node_gpus) = state.kinds().iter().find(|&&(of, _)| of == kind)?;
    let whole = node_gpus / unit * unit;
    (whole > 0).then(|| gpus.div_ceil(whole))
}

/// Returns the free GPUs by index of their kind.
pub fn free_by_kind(state: &AllocationState<'_>) -> Vec<u32> {
    let mut free = vec![0; state.problem.kinds.len()];
    for (node, &gpus) in state.problem.nodes.iter().zip(&state.tally.free) {
        let kind = usize::from(node.kind);
        if free.len() <= kind {
            free.resize(kind + 1, 0);
        }
        free[kind] += gpus;
    }
    free
}

/// Returns the allocation of a job by this decision.
pub fn wish_of(state: &AllocationState<'_>, job: usize) -> Option<SizeWish> {
    let parts = state.given(job)?;
    let kind = state.kind_of(parts)?;
    let gpus = gpus_of(parts);
    Some(SizeWish { job, kind, gpus })
}

/// Places every wish that fits.
///
/// A job whose size and kind are unchanged keeps its nodes. The others are placed largest first,
/// each on the fewest nodes. If that fails, kept jobs are displaced, as few as needed (Sia, SOSP
/// 2023). If that fails too, the job is spread over more nodes, where it can run so.
pub fn place_wishes(state: &mut AllocationState<'_>, wishes: &[SizeWish]) {
    let mut seating = WishPlacer {
        state,
        wishes,
        seats: vec![WishPlacement::None; wishes.len()],
        waiting: BinaryHeap::new(),
    };
    for wish in 0..wishes.len() {
        if !seating.keep(wish) {
            seating.wait(wish);
        }
    }
    while let Some((_, Reverse(wish))) = seating.waiting.pop() {
        if seating.keep(wish) {
            continue;
        }
        let sits = seating.tight(wish) || seating.displace(wish) || seating.wide(wish);
        seating.seats[wish] = if sits {
            WishPlacement::New
        } else {
            WishPlacement::None
        };
    }
}

/// Places one job on the fewest nodes without displacing another. Returns whether it fits.
pub fn place_tight(state: &mut AllocationState<'_>, wish: SizeWish) -> bool {
    let Some(parts) = find_tight(state, wish) else {
        return false;
    };
    state.give(wish.job, parts);
    true
}

fn find_tight(state: &AllocationState<'_>, wish: SizeWish) -> Option<Vec<NodeAllocation>> {
    let job = &state.problem.jobs[wish.job];
    let nodes = fewest_nodes(state, job, wish.kind, wish.gpus)?;
    let parts = state.find(wish.job, wish.kind, wish.gpus, PlacementStyle::Packed)?;
    (nodes_of(&parts) <= nodes).then_some(parts)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WishPlacement {
    None,
    /// Present nodes; the job may be displaced.
    Kept,
    New,
}

struct WishPlacer<'a, 'p> {
    state: &'a mut AllocationState<'p>,
    wishes: &'a [SizeWish],
    seats: Vec<WishPlacement>,
    /// Wishes without a place: the largest first, among equals the first.
    waiting: BinaryHeap<(u32, Reverse<usize>)>,
}

impl WishPlacer<'_, '_> {
    fn wait(&mut self, wish: usize) {
        self.waiting.push((self.wishes[wish].gpus, Reverse(wish)));
    }

    fn keep(&mut self, wish: usize) -> bool {
        let SizeWish { job, kind, gpus } = self.wishes[wish];
        let present = self.state.present(job);
        let mut kinds = present.iter().map(|part| self.state.problem.kind_of(part));
        let same = gpus_of(present) == gpus && kinds.all(|here| here == kind);
        if !same || !self.state.can_keep(job) {
            return false;
        }
        self.state.keep(job);
        self.seats[wish] = WishPlacement::Kept;
        true
    }

    fn tight(&mut self, wish: usize) -> bool {
        place_tight(self.state, self.wishes[wish])
    }

    fn wide(&mut self, wish: usize) -> bool {
        let SizeWish { job, kind, gpus } = self.wishes[wish];
        self.state.place_on(job, kind, gpus, PlacementStyle::Packed)
    }

    /// Displaces the smallest kept job that makes enough room. If no single one does, displaces all
    /// of them.
    fn displace(&mut self, wish: usize) -> bool {
        let kind = self.wishes[wish].kind;
        let all = 0..self.wishes.len();
        let kept =
            all.filter(|&of| self.seats[of] == WishPlacement::Kept && self.wishes[of].kind == kind);
        let mut kept: Vec<usize> = kept.collect();
        kept.sort_by_key(|&of| (self.wishes[of].gpus, Reverse(of)));
        kept.chunks(1).any(|one| self.displace_for(one, wish))
            || (kept.len() > 1 && self.displace_for(&kept, wish))
    }

    fn displace_for(&mut self, kept: &[usize], wish: usize) -> bool {
        for &other in kept {
            self.state.take_back(self.wishes[other].job);
        }
        let sits = self.tight(wish);
        for &other in kept {
            if sits {
                self.seats[other] = WishPlacement::None;
                self.wait(other);
            } else {
                self.state.keep(self.wishes[other].job);
            }
        }
        sits
    }
}
