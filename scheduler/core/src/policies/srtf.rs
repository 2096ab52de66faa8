//! Shortest remaining time first: the job that would end soonest runs first, at its requested size.
//!
//! With correct estimates the policy lowers the mean completion time of rigid gangs as far as an
//! order can. Long jobs can wait without a bound under an endless stream of short ones. The
//! remaining time is the one on the job's fastest kind.
//!
//! The size of the gang is not weighed. Shortest remaining GPU-time first would serve small gangs
//! before wide ones.

use super::allocation_state::{AllocationState, PlacementStyle};
use super::order::{self, request};
use super::{SchedulingPolicy, gang};
use crate::problem::{PolicyDecision, SchedulingProblem};

/// Policy that serves the shortest remaining time first.
#[derive(Debug, Clone, Copy)]
pub struct Srtf;

impl SchedulingPolicy for Srtf {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        let order = order::by_key(problem, &times_left_s(problem));
        gang::in_order(problem, PlacementStyle::Packed, &order)
    }
}

/// Returns the remaining seconds of each job at its requested size; infinite where it cannot run.
pub fn times_left_s(problem: &SchedulingProblem) -> Vec<f64> {
    let state = AllocationState::beside_fixed(problem);
    (0..problem.jobs.len())
        .map(|job| {
            let of = &problem.jobs[job];
            let speed = state.best_speed(job, request(of));
            of.outlook.work_left / speed
        })
        .collect()
}
