//! What a simulated run leaves: the times of every job, who held what when, and how long each decision took. The measures, the
//! pictures and the comparison are made from this alone, whatever rules the run followed.

use serde::{Deserialize, Serialize};

/// One workload under one policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub policy: String,
    pub workload: String,
    /// Names and GPUs of the nodes.
    pub nodes: Vec<RunNode>,
    /// In the workload's order.
    pub jobs: Vec<JobRun>,
    /// Who held what when, in the order of the ends.
    pub spans: Vec<Span>,
    /// Wall-clock seconds of every decision, estimates included.
    pub decision_s: Vec<f64>,
    /// When the last job ended, or when the run was given up.
    pub end_s: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunNode {
    pub name: String,
    pub kind: String,
    pub gpus: u32,
}

/// What became of one job. Times are seconds since the workload's beginning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRun {
    pub name: String,
    pub application: String,
    pub tenant: String,
    pub submitted_s: f64,
    pub started_s: Option<f64>,
    /// `None` when the run was given up before.
    pub finished_s: Option<f64>,
    /// Changes of its allocation after the first.
    pub restarts: u32,
    /// GPU-seconds held.
    pub gpu_s: f64,
    /// The fastest possible run on the empty cluster, seconds, waiting and starting included: no policy can beat it.
    pub alone_s: f64,
    /// The least GPU-seconds of work that any shape needs.
    pub least_gpu_s: f64,
    /// GPUs that its owner asked for, and the seconds that it would take on them with nobody else there.
    pub request_gpus: u32,
    pub request_s: f64,
}

/// GPUs of one node in one job's hands for a while.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    pub job: u32,
    pub node: u32,
    pub gpus: u32,
    pub from_s: f64,
    pub to_s: f64,
}
