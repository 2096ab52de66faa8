//! Tiresias' discretised two-dimensional least attained service (Gu et al., NSDI 2019), as the Pollux artefact's simulator has it.
//!
//! It lowers the mean completion time without knowing how long any job takes: whoever has had little (GPUs times seconds) comes
//! first. Service is discretised into two queues, each first come, first served, so that jobs of like service do not take turns at
//! displacing each other. Gangs run at the size that was asked for; whoever fits may overtake. On one kind of GPU the decisions
//! are the artefact's, node by node.
//!
//! Left out: consolidation only of models whose tensors are skewed (the artefact has none either) and promotion out of the lower
//! queue (the artefact's knob stands at "never"), so that under endless small jobs a large one may wait for ever.

use super::room::Style;
use super::{Share, gang, order};
use crate::problem::{Decision, Job, Problem};

/// GPU-seconds after which a job falls into the lower queue: 16 GPU-hours.
pub const DEMOTED_GPU_S: f64 = 57_600.0;

/// Least attained service in two queues.
#[derive(Debug, Clone, Copy)]
pub struct Tiresias;

impl Share for Tiresias {
    fn share(&self, problem: &Problem) -> Decision {
        // The upper queue is in order of submission, the lower one in that of demotion; whoever is seen there first comes last.
        let demoted_s = |job: &Job| {
            if job.attained_gpu_s < DEMOTED_GPU_S {
                f64::NEG_INFINITY
            } else {
                job.demoted_s.unwrap_or(problem.now_s)
            }
        };
        let keys: Vec<f64> = problem.jobs.iter().map(demoted_s).collect();
        let order = order::by_key(problem, &keys);
        gang::in_order(problem, Style::Emptiest, &order)
    }
}
