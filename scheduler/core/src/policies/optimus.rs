//! Optimus' marginal gains (Peng et al., EuroSys 2018), as the Pollux artefact's simulator has them ("Optimus+Oracle").
//!
//! It lowers the sum of the completion times: every job gets its minimum, then GPU by GPU goes to the job whose remaining time
//! falls most by it. Under the artefact's conditions (units of one GPU, minimum 1, one kind, no quotas, one priority) the decisions
//! are the artefact's, node by node; what the curves say is the caller's: an oracle's truth there, estimates in a live cluster.
//!
//! Left out: parameter servers are not counted one by one, because a unit here is one worker with its part of them; the factor
//! that holds back jobs at the start of their training, which is in the paper but not in the prototype; and the cost of a restart,
//! which neither weighs.

use super::grow::{self, Step};
use super::room::Room;
use super::{Promises, Share};
use crate::problem::{Decision, Problem};

/// Sizes by the time that a further GPU saves.
#[derive(Debug, Clone, Copy)]
pub struct Optimus;

impl Share for Optimus {
    fn share(&self, problem: &Problem) -> Decision {
        grow::sizes(problem, seconds_saved).place(problem)
    }

    fn promises(&self) -> Promises {
        Promises {
            takes_turns: false,
            gathers: false,
            ..Promises::default()
        }
    }
}

/// Seconds by which the job ends earlier.
fn seconds_saved(room: &Room<'_>, step: Step) -> f64 {
    let step_s = |gpus| 1.0 / room.speed(step.job, step.kind, gpus);
    (step_s(step.from) - step_s(step.to)) * room.problem.jobs[step.job].outlook.work_left
}
