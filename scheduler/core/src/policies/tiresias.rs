//! Tiresias' discretised two-dimensional least attained service (Gu et al., NSDI 2019), as in the
//! simulator of the Pollux artefact.
//!
//! The policy lowers the mean completion time without knowledge of durations: the job with the
//! least attained service (GPUs times seconds) comes first. Service is discretised into two queues.
//! Each queue is first come, first served, so jobs of similar service do not displace each other
//! alternately. Gangs run at their requested size, and a job that fits may overtake. On one GPU
//! kind the decisions equal the artefact's, node by node.
//!
//! Differences from the paper:
//!
//! - Placement does not depend on the skew of a model's tensors. The artefact omits this too.
//! - No job is promoted out of the lower queue (the artefact's setting is "never"). Under endless
//!   small jobs a large job can wait without a bound.

use super::allocation_state::PlacementStyle;
use super::{SchedulingPolicy, gang, order};
use crate::problem::{PolicyDecision, SchedulingProblem};
pub use muster_model::service::DEMOTED_GPU_S;

/// Policy of least attained service in two queues.
#[derive(Debug, Clone, Copy)]
pub struct Tiresias;

impl SchedulingPolicy for Tiresias {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        // The upper queue is in order of submission, the lower one in order of demotion. A job that
        // this decision demotes comes last.
        let keys: Vec<f64> = problem
            .jobs
            .iter()
            .map(|job| {
                if job.attained_gpu_s < DEMOTED_GPU_S {
                    f64::NEG_INFINITY
                } else {
                    job.demoted_s.unwrap_or(problem.now_s)
                }
            })
            .collect();
        let order = order::by_key(problem, &keys);
        gang::in_order(problem, PlacementStyle::Emptiest, &order)
    }
}
