//! Optimus' marginal gains (Peng et al., EuroSys 2018), as in the simulator of the Pollux artefact
//! ("Optimus+Oracle").
//!
//! The policy lowers the sum of the completion times. Every job gets its minimum. Each further GPU
//! goes to the job whose remaining time falls most by it. Under the artefact's conditions the
//! decisions equal the artefact's, node by node: units of one GPU, minimum 1, one kind, no quotas,
//! one priority. The caller supplies the curves: the truth in a simulation, estimates in a live
//! cluster.
//!
//! Differences from the paper:
//!
//! - PS shards are not counted one by one. A unit is one worker with its part of them.
//! - The factor that restrains jobs at the start of their training is omitted. It is in the paper
//!   but not in the prototype.
//! - The cost of a restart is not considered, as in the paper.

use super::allocation_state::AllocationState;
use super::grow::{self, GrowthStep};
use super::{PolicyCapabilities, SchedulingPolicy};
use crate::problem::{PolicyDecision, SchedulingProblem};

/// Policy that sizes jobs by the time that a further GPU saves.
#[derive(Debug, Clone, Copy)]
pub struct Optimus;

impl SchedulingPolicy for Optimus {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        grow::sizes(problem, seconds_saved).place(problem)
    }

    fn capabilities(&self) -> PolicyCapabilities {
        PolicyCapabilities {
            takes_turns: false,
            gathers: false,
            ..PolicyCapabilities::default()
        }
    }
}

/// Returns the seconds by which the job ends earlier.
fn seconds_saved(state: &AllocationState<'_>, step: GrowthStep) -> f64 {
    let now_s = 1.0 / state.speed(step.job, step.kind, step.from);
    let then_s = 1.0 / state.speed(step.job, step.kind, step.to);
    (now_s - then_s) * state.problem.jobs[step.job].outlook.work_left
}
