//! GPUs, CPU and memory as one vector, for policies that weigh them against each other.

use crate::problem::{Job, Problem};

/// GPUs, thousandths of a core, bytes.
pub type Resources = [f64; 3];

/// All that the cluster has on nodes with GPUs.
pub fn whole(problem: &Problem) -> Resources {
    let nodes = || problem.nodes.iter().filter(|node| node.gpus > 0);
    [
        nodes().map(|node| f64::from(node.gpus)).sum(),
        nodes().map(|node| node.cpu_milli as f64).sum(),
        nodes().map(|node| node.memory_bytes as f64).sum(),
    ]
}

/// What a job takes with so many GPUs.
pub fn demand(job: &Job, gpus: u32) -> Resources {
    let units = f64::from(gpus / job.unit.gpus.max(1));
    [
        f64::from(gpus),
        units * job.unit.cpu_milli as f64,
        units * job.unit.memory_bytes as f64,
    ]
}

/// Shares of the whole; 0 of what there is not.
pub fn shares(of: &Resources, whole: &Resources) -> Resources {
    let share = |index: usize| {
        if whole[index] > 0.0 {
            of[index] / whole[index]
        } else {
            0.0
        }
    };
    [share(0), share(1), share(2)]
}
