//! Multi-resource packing of Tetris (Grandl et al., SIGCOMM 2014).
//!
//! The next gang is always the one with the best score: alignment minus remaining work. Alignment
//! is the scalar product of the demand for GPUs, CPU and memory with the free resources, both as
//! shares of the cluster. It packs more jobs into the cluster, because plentiful resources are used
//! first. The weight of the work makes both terms equal on average. The work term lowers completion
//! times.
//!
//! Differences from the paper:
//!
//! - Alignment is computed with the whole cluster and not with one machine, because a gang spans
//!   machines.
//! - Disk, network and the fairness knob are omitted. So is the barrier knob for the last tasks of
//!   a stage, which gangs do not have.
//!
//! Large gangs score well in an empty cluster, but can wait without a bound in a full one.

use super::allocation_state::{AllocationState, PlacementStyle};
use super::order::request;
use super::resources::{self, ResourceVector};
use super::srtf::times_left_s;
use super::{SchedulingPolicy, gang};
use crate::problem::{PolicyDecision, SchedulingProblem, gpus_of};

/// Policy that serves the best aligned and shortest job first.
#[derive(Debug, Clone, Copy)]
pub struct Tetris;

impl SchedulingPolicy for Tetris {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        let start = AllocationState::beside_fixed(problem);
        let candidates = candidates(problem);
        gang::run(&start, PlacementStyle::Packed, || {
            let mut packing = TetrisQueue::begin(problem, candidates.clone());
            move |state: &AllocationState<'_>| packing.next(state)
        })
        .decision()
    }
}

#[derive(Debug, Clone, Copy)]
struct TetrisCandidate {
    job: usize,
    /// Demand as shares of the cluster.
    demand: ResourceVector,
    /// GPU-seconds left, as seconds of the whole cluster.
    work_s: f64,
}

/// Returns the movable jobs that can run on some kind.
fn candidates(problem: &SchedulingProblem) -> Vec<TetrisCandidate> {
    let whole = resources::whole(problem);
    let times_left_s = times_left_s(problem);
    let able = (0..problem.jobs.len())
        .filter(|&job| problem.jobs[job].is_movable() && times_left_s[job].is_finite());
    able.map(|job| {
        let of = &problem.jobs[job];
        let demand = resources::shares(&resources::demand(of, request(of)), &whole);
        TetrisCandidate {
            job,
            demand,
            work_s: times_left_s[job] * demand[0],
        }
    })
    .collect()
}

struct TetrisQueue<'a> {
    problem: &'a SchedulingProblem,
    left: Vec<TetrisCandidate>,
    /// Free shares of the cluster.
    free: ResourceVector,
    /// Weight of one second of the whole cluster's work.
    work_weight: f64,
    asked: Option<TetrisCandidate>,
}

impl<'a> TetrisQueue<'a> {
    fn begin(problem: &'a SchedulingProblem, left: Vec<TetrisCandidate>) -> Self {
        let whole = resources::whole(problem);
        let mut free = [1.0; 3];
        for job in problem.jobs.iter().filter(|job| !job.is_movable()) {
            let held = resources::demand(job, gpus_of(&job.present));
            take(&mut free, &resources::shares(&held, &whole));
        }
        let work_s: f64 = left.iter().map(|candidate| candidate.work_s).sum();
        let alignments = left.iter().map(|candidate| dot(&candidate.demand, &free));
        let alignment: f64 = alignments.sum();
        Self {
            problem,
            free,
            work_weight: if work_s > 0.0 {
                alignment / work_s
            } else {
                0.0
            },
            left,
            asked: None,
        }
    }

    fn next(&mut self, state: &AllocationState<'_>) -> Option<usize> {
        if let Some(asked) = self.asked.filter(|asked| state.given(asked.job).is_some()) {
            take(&mut self.free, &asked.demand);
        }
        let candidates = self.left.iter().enumerate();
        let (index, _) = candidates.min_by(|(_, a), (_, b)| {
            let ((a_priority, a_score), (b_priority, b_score)) = (self.key(a), self.key(b));
            // The better candidate is the lesser one, because `min_by` returns the first of equals.
            let by_priority = b_priority.cmp(&a_priority);
            by_priority.then(b_score.total_cmp(&a_score))
        })?;
        // `remove` keeps the order, which decides ties.
        let asked = self.left.remove(index);
        self.asked = Some(asked);
        Some(asked.job)
    }

    /// Returns the priority and the score of a candidate.
    fn key(&self, candidate: &TetrisCandidate) -> (i32, f64) {
        let score = dot(&candidate.demand, &self.free) - self.work_weight * candidate.work_s;
        (self.problem.jobs[candidate.job].priority, score)
    }
}

fn take(free: &mut ResourceVector, demand: &ResourceVector) {
    for (free, demand) in free.iter_mut().zip(demand) {
        *free -= demand;
    }
}

fn dot(a: &ResourceVector, b: &ResourceVector) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
