//! SLAQ's sharing by quality (Zhang et al., SoCC 2017): GPUs go to the jobs whose loss falls most
//! in the next round.
//!
//! The policy raises the mean quality over all jobs during training. Young jobs, whose loss falls
//! fast, get many GPUs. Jobs near convergence get their minimum. The predicted fall is divided by
//! the job's largest loss, so that jobs with different losses can be compared. Completion times are
//! not an objective and can become longer.
//!
//! Before a job's losses determine a curve the loss is assumed to fall evenly over the work. SLAQ's
//! own fit is omitted (the outlook has the one of Optimus). SLAQ shares CPU cores; this policy
//! shares GPUs.

use super::SchedulingPolicy;
use super::allocation_state::AllocationState;
use super::grow::{self, GrowthStep};
use crate::problem::{PolicyDecision, SchedulingProblem};

/// Policy that sizes jobs by the fall of their loss.
#[derive(Debug, Clone, Copy)]
pub struct Slaq;

impl SchedulingPolicy for Slaq {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        grow::sizes(problem, quality_gained).place(problem)
    }
}

/// Returns the additional fall of the loss in the next round, relative to the largest loss.
fn quality_gained(state: &AllocationState<'_>, step: GrowthStep) -> f64 {
    let outlook = &state.problem.jobs[step.job].outlook;
    // Decisions without a period are caused by events only. They look one minute ahead.
    let period_s = if state.problem.round_s > 0.0 {
        state.problem.round_s
    } else {
        60.0
    };
    let [less, more] = [step.from, step.to].map(|gpus| {
        let work = period_s * state.speed(step.job, step.kind, gpus);
        work.min(outlook.work_left)
    });
    match outlook.loss.filter(|loss| loss.first > 0.0) {
        Some(loss) => {
            let done = outlook.work_done;
            (loss.at(done + less) - loss.at(done + more)) / loss.first
        }
        None => (more - less) / (outlook.work_done + outlook.work_left),
    }
}
