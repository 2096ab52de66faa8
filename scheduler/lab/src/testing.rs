//! Small runs for tests of measures and pictures.

use crate::run::{JobRun, RunNode, SimulationRun};

/// Job without a name; it did not start.
pub fn job(submitted_s: f64, alone_s: f64, least_gpu_s: f64) -> JobRun {
    JobRun {
        name: String::new(),
        application: "cifar10".to_owned(),
        tenant: "default".to_owned(),
        submitted_s,
        started_s: None,
        finished_s: None,
        restarts: 0,
        gpu_s: 0.0,
        alone_s,
        least_gpu_s,
        request_gpus: 1,
        request_s: alone_s,
    }
}

/// Job that ran from its submission to `finished_s`.
pub fn ran(submitted_s: f64, finished_s: f64) -> JobRun {
    JobRun {
        started_s: Some(submitted_s),
        finished_s: Some(finished_s),
        gpu_s: finished_s - submitted_s,
        ..job(submitted_s, 1.0, 1.0)
    }
}

/// Run on one node with `gpus` GPUs.
pub fn run(gpus: u32, jobs: Vec<JobRun>) -> SimulationRun {
    let end_s = jobs
        .iter()
        .filter_map(|job| job.finished_s)
        .fold(0.0, f64::max);
    SimulationRun {
        policy: "fifo".to_owned(),
        workload: "w".to_owned(),
        nodes: vec![RunNode {
            name: "node-0".to_owned(),
            kind: "gpu".to_owned(),
            gpus,
        }],
        jobs,
        spans: Vec::new(),
        decision_s: Vec::new(),
        end_s,
    }
}
