//! SLAQ's sharing by quality (Zhang et al., SoCC 2017): GPUs go where they lower the loss most in the next round.
//!
//! It raises the mean quality over all jobs while they train: young jobs, whose loss falls fast, get much, and those that only
//! polish get their minimum. The fall is predicted by the fitted curve and divided by the job's largest loss, so that jobs of
//! different losses compare. Completion times are not its aim, and suffer.
//!
//! A job that has no curve yet is taken to lose its loss evenly over its work. Left out: SLAQ's own fits (the outlook's is
//! Optimus'), and CPU cores, which SLAQ shares out where we have GPUs.

use super::Share;
use super::grow::{self, Step};
use super::room::Room;
use crate::problem::{Decision, Problem};

/// Sizes by the fall of the loss.
#[derive(Debug, Clone, Copy)]
pub struct Slaq;

impl Share for Slaq {
    fn share(&self, problem: &Problem) -> Decision {
        grow::sizes(problem, quality_gained).place(problem)
    }
}

/// How much further the loss falls in the next round, as a part of the largest loss.
fn quality_gained(room: &Room<'_>, step: Step) -> f64 {
    let outlook = &room.problem.jobs[step.job].outlook;
    // Decisions without a period, which only events ask for, look a minute ahead.
    let period_s = if room.problem.round_s > 0.0 {
        room.problem.round_s
    } else {
        60.0
    };
    let after = |gpus| {
        let work = period_s * room.speed(step.job, step.kind, gpus);
        work.min(outlook.work_left)
    };
    let (less, more) = (after(step.from), after(step.to));
    match outlook.loss.filter(|loss| loss.first > 0.0) {
        Some(loss) => {
            let done = outlook.work_done;
            (loss.at(done + less) - loss.at(done + more)) / loss.first
        }
        None => (more - less) / (outlook.work_done + outlook.work_left),
    }
}
