//! Record of a simulated run: the times of every job, the GPUs that it held and the duration of
//! each decision.
//!
//! Measures, pictures and comparisons use only this record, under all rules.

use serde::{Deserialize, Serialize};

/// One workload under one policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulationRun {
    pub policy: String,
    pub workload: String,
    /// Names and GPUs of the nodes.
    pub nodes: Vec<RunNode>,
    /// In the order of the workload.
    pub jobs: Vec<JobRun>,
    /// Allocations over time, ordered by their ends.
    pub spans: Vec<AllocationSpan>,
    /// Seconds of every decision, estimates included, by the clock that the caller passed.
    pub decision_s: Vec<f64>,
    /// End of the last job, or of the simulation if that was earlier.
    pub end_s: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunNode {
    pub name: String,
    pub kind: String,
    pub gpus: u32,
}

/// Result of one job. Times are seconds from the start of the workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRun {
    pub name: String,
    pub application: String,
    pub tenant: String,
    pub submitted_s: f64,
    pub started_s: Option<f64>,
    /// `None` if the run ended before the job.
    pub finished_s: Option<f64>,
    /// Changes of the allocation after the first.
    pub restarts: u32,
    /// GPU-seconds held.
    pub gpu_s: f64,
    /// Lower bound of the completion time: the fastest run on the empty cluster, in seconds. It
    /// includes the wait for the first decision and the start.
    pub alone_s: f64,
    /// Minimum GPU-seconds of work over all shapes.
    pub least_gpu_s: f64,
    /// GPUs that the user requested, and the job's seconds on them in an empty cluster.
    pub request_gpus: u32,
    pub request_s: f64,
}

/// GPUs of one node that one job holds for an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllocationSpan {
    pub job: u32,
    pub node: u32,
    pub gpus: u32,
    pub from_s: f64,
    pub to_s: f64,
}
