//! Placement of sizes: shared by policies that first choose the kind and the number of GPUs of each
//! job.

use super::room::{Room, Style};
use crate::problem::{Job, Part, Problem, gpus_of, nodes_of};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Wanted size and kind of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    pub job: usize,
    pub kind: u16,
    pub gpus: u32,
}

/// Returns the movable jobs in groups of equal priority, the highest first. Each group is in order
/// of submission.
pub fn levels(problem: &Problem) -> Vec<Vec<usize>> {
    let jobs = 0..problem.jobs.len();
    let mut movable: Vec<usize> = jobs.filter(|&job| problem.jobs[job].is_movable()).collect();
    movable.sort_by_key(|&job| Reverse(problem.jobs[job].priority));
    let same = |a: &usize, b: &usize| problem.jobs[*a].priority == problem.jobs[*b].priority;
    movable.chunk_by(same).map(<[usize]>::to_vec).collect()
}

/// Returns the fewest nodes of a kind that hold a gang of whole units. Returns `None` if no unit
/// fits on a node.
pub fn fewest_nodes(room: &Room<'_>, job: &Job, kind: u16, gpus: u32) -> Option<u32> {
    let unit = job.unit.gpus.max(1);
    let &(_, node_gpus) = room.kinds().iter().find(|&&(of, _)| of == kind)?;
    let whole = node_gpus / unit * unit;
    (whole > 0).then(|| gpus.div_ceil(whole))
}

/// Returns the free GPUs by index of their kind.
pub fn free_by_kind(room: &Room<'_>) -> Vec<u32> {
    let mut free = vec![0; room.problem.kinds.len()];
    for (node, &gpus) in room.problem.nodes.iter().zip(&room.tally.free) {
        let kind = usize::from(node.kind);
        if free.len() <= kind {
            free.resize(kind + 1, 0);
        }
        free[kind] += gpus;
    }
    free
}

/// Returns the allocation of a job by this decision.
pub fn wish_of(room: &Room<'_>, job: usize) -> Option<Wish> {
    let parts = room.given(job)?;
    let kind = room.kind_of(parts)?;
    let gpus = gpus_of(parts);
    Some(Wish { job, kind, gpus })
}

/// Places every wish that fits.
///
/// A job whose size and kind are unchanged keeps its nodes. The others are placed largest first,
/// each on the fewest nodes. If that fails, kept jobs are displaced, as few as needed (Sia, SOSP
/// 2023). If that fails too, the job is spread over more nodes, where it can run so.
pub fn seat(room: &mut Room<'_>, wishes: &[Wish]) {
    let mut seating = Seating {
        room,
        wishes,
        seats: vec![Seat::None; wishes.len()],
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
        seating.seats[wish] = if sits { Seat::New } else { Seat::None };
    }
}

/// Places one job on the fewest nodes without displacing another. Returns whether it fits.
pub fn seat_tight(room: &mut Room<'_>, wish: Wish) -> bool {
    let Some(parts) = find_tight(room, wish) else {
        return false;
    };
    room.give(wish.job, parts);
    true
}

fn find_tight(room: &Room<'_>, wish: Wish) -> Option<Vec<Part>> {
    let job = &room.problem.jobs[wish.job];
    let nodes = fewest_nodes(room, job, wish.kind, wish.gpus)?;
    let parts = room.find(wish.job, wish.kind, wish.gpus, Style::Packed)?;
    (nodes_of(&parts) <= nodes).then_some(parts)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seat {
    None,
    /// Present nodes; the job may be displaced.
    Kept,
    New,
}

struct Seating<'a, 'p> {
    room: &'a mut Room<'p>,
    wishes: &'a [Wish],
    seats: Vec<Seat>,
    /// Wishes without a place: the largest first, among equals the first.
    waiting: BinaryHeap<(u32, Reverse<usize>)>,
}

impl Seating<'_, '_> {
    fn wait(&mut self, wish: usize) {
        self.waiting.push((self.wishes[wish].gpus, Reverse(wish)));
    }

    fn keep(&mut self, wish: usize) -> bool {
        let Wish { job, kind, gpus } = self.wishes[wish];
        let present = self.room.present(job);
        let here = |part: &Part| self.room.problem.nodes[part.node as usize].kind == kind;
        let same = gpus_of(present) == gpus && present.iter().all(here);
        if !same || !self.room.can_keep(job) {
            return false;
        }
        self.room.keep(job);
        self.seats[wish] = Seat::Kept;
        true
    }

    fn tight(&mut self, wish: usize) -> bool {
        seat_tight(self.room, self.wishes[wish])
    }

    fn wide(&mut self, wish: usize) -> bool {
        let Wish { job, kind, gpus } = self.wishes[wish];
        self.room.place_on(job, kind, gpus, Style::Packed)
    }

    /// Displaces the smallest kept job that makes enough room. If no single one does, displaces all
    /// of them.
    fn displace(&mut self, wish: usize) -> bool {
        let kind = self.wishes[wish].kind;
        let all = 0..self.wishes.len();
        let kept = all.filter(|&of| self.seats[of] == Seat::Kept && self.wishes[of].kind == kind);
        let mut kept: Vec<usize> = kept.collect();
        kept.sort_by_key(|&of| (self.wishes[of].gpus, Reverse(of)));
        kept.chunks(1).any(|one| self.displace_for(one, wish))
            || (kept.len() > 1 && self.displace_for(&kept, wish))
    }

    fn displace_for(&mut self, kept: &[usize], wish: usize) -> bool {
        for &other in kept {
            self.room.take_back(self.wishes[other].job);
        }
        let sits = self.tight(wish);
        for &other in kept {
            if sits {
                self.seats[other] = Seat::None;
                self.wait(other);
            } else {
                self.room.keep(self.wishes[other].job);
            }
        }
        sits
    }
}
