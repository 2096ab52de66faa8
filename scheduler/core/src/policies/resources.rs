//! GPUs, CPU and memory as one vector, for policies that compare them.

use crate::problem::{ProblemJob, SchedulingProblem};

/// GPUs, thousandths of a core, bytes.
pub type ResourceVector = [f64; 3];

/// Returns the resources of all nodes with GPUs.
pub fn whole(problem: &SchedulingProblem) -> ResourceVector {
    let nodes = problem.nodes.iter().filter(|node| node.gpus > 0);
    [
        nodes.clone().map(|node| f64::from(node.gpus)).sum(),
        nodes.clone().map(|node| node.cpu_milli as f64).sum(),
        nodes.map(|node| node.memory_bytes as f64).sum(),
    ]
}

/// Returns the resources that a job takes with `gpus` GPUs.
pub fn demand(job: &ProblemJob, gpus: u32) -> ResourceVector {
    let units = f64::from(gpus / job.unit.gpus.max(1));
    [
        f64::from(gpus),
        units * job.unit.cpu_milli as f64,
        units * job.unit.memory_bytes as f64,
    ]
}

/// Returns the shares of the whole; 0 for a resource that the cluster does not have.
pub fn shares(of: &ResourceVector, whole: &ResourceVector) -> ResourceVector {
    std::array::from_fn(|index| {
        if whole[index] > 0.0 {
            of[index] / whole[index]
        } else {
            0.0
        }
    })
}
