//! Pollux (Qiao et al., OSDI 2021): genetic search over allocation matrices (GPUs of every job on
//! every node). The objective is the harmonic mean of the jobs' speedups over their fair shares.
//!
//! As in Pollux: the speedup, the restart factor, the limits of growth and of nodes shared by
//! spread jobs, population, generations, crossover over jobs, mutation and repair.
//!
//! Differences:
//!
//! - The goodput is the one of the job's [`ScalingModel`](crate::problem::ScalingModel).
//! - Mutations are fewer.
//! - The artefact also sorts by a second objective, which never decides. It is omitted.
//! - The artefact starts from the population of its previous decision. This policy is pure. It
//!   starts from the present allocation, from equal shares, and from mutations of both.
//! - Each priority is decided on what the higher ones leave.
//!
//! Repeated searches find different allocations, so there is one search per instant. While the
//! allocation of a job dates from this instant, all jobs keep theirs.

mod genome;
mod search;
mod speedup;
#[cfg(test)]
mod tests;

use super::SchedulingPolicy;
use super::allocation_state::AllocationState;
use super::wish_placement;
use crate::problem::{PolicyDecision, SchedulingProblem};
use search::GeneticSearch;

/// Policy of goodput by a genetic search.
#[derive(Debug, Clone, Copy)]
pub struct Pollux;

impl SchedulingPolicy for Pollux {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        let mut state = AllocationState::beside_fixed(problem);
        if decided_now(problem) {
            keep_all(&mut state);
            return state.decision();
        }
        for level in wish_placement::levels(problem) {
            for (job, parts) in GeneticSearch::new(&state, level).run() {
                if !parts.is_empty() {
                    state.give(job, parts);
                }
            }
        }
        state.decision()
    }
}

/// Whether an allocation changed at this instant. Fixed jobs are not allocated by this policy and
/// do not count.
fn decided_now(problem: &SchedulingProblem) -> bool {
    problem.jobs.iter().any(|job| {
        let submitted_now = job.present.is_empty() && job.since_s <= job.submitted_s;
        !job.fixed && job.since_s >= problem.now_s && !submitted_now
    })
}

fn keep_all(state: &mut AllocationState<'_>) {
    for job in 0..state.problem.jobs.len() {
        if state.problem.jobs[job].is_movable() && state.can_keep(job) {
            state.keep(job);
        }
    }
}
