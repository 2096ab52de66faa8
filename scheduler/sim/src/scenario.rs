//! What is simulated: a cluster, jobs with their true speeds, and what goes wrong when.

use muster_model::spec::{Consistency, Range};
use serde::{Deserialize, Serialize};

/// One simulation; times are milliseconds from its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub nodes: Vec<SimNode>,
    pub tenants: Vec<SimTenant>,
    pub jobs: Vec<SimJob>,
    pub incidents: Vec<Incident>,
    /// From a start to all tasks up.
    pub launch_ms: i64,
    /// From an order to stop until the tasks are gone and the checkpoint is written.
    pub stop_ms: i64,
    /// From an order to stand still until all workers do.
    #[serde(default = "suspend_ms")]
    pub suspend_ms: i64,
    /// What a job on several racks keeps of its speed; 0 to 1.
    #[serde(default = "all")]
    pub across_racks: f64,
    /// What jobs use of their GPUs, as their nodes would measure it; `None`: nobody measures, and nothing is packed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// Between rounds that nothing else causes.
    pub round_ms: i64,
    /// The simulation gives up here.
    pub until_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimNode {
    pub name: String,
    pub gpus: u32,
    /// Where it stands; `None`: nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimTenant {
    pub name: String,
    pub gpu_quota: Option<u32>,
}

/// What is to be known of jobs that may share GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// Memory of each GPU.
    pub gpu_memory_bytes: u64,
    /// How often jobs tell their steps, and nodes what is used.
    pub sample_ms: i64,
    /// Of every job of the scenario, in its order.
    pub uses: Vec<GpuUse>,
}

/// What a job of one worker uses of its GPU while it is alone there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuUse {
    /// Share of the GPU's time, 0 to 1: the rest of each step it waits for data, the host or the network.
    pub busy: f64,
    /// The most memory that it has there.
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimJob {
    pub name: String,
    /// Index of its tenant.
    pub tenant: usize,
    pub priority: i32,
    pub submitted_ms: i64,
    pub workers: Range,
    pub ps_shards: Range,
    pub gpus_per_worker: u32,
    pub retries: u32,
    /// Its tasks train on while others join or leave.
    #[serde(default)]
    pub in_place: bool,
    pub consistency: Consistency,
    pub batch: u32,
    pub steps: u64,
    /// A job that is stopped in order loses nothing; one that fails goes back to the last multiple of this.
    pub checkpoint_steps: u64,
    pub speed: TrueSpeed,
}

/// Seconds a step: `parallel_s / w + serial_s + exchange_s * w / p + per_worker_s * w`, the worker count capped where more cores
/// are not there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrueSpeed {
    pub parallel_s: f64,
    pub serial_s: f64,
    pub exchange_s: f64,
    pub per_worker_s: f64,
    /// Workers beyond this bring nothing.
    pub useful_workers: u32,
}

/// Something that happens to the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Incident {
    pub at_ms: i64,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    /// Every task there is lost.
    NodeLost {
        node: usize,
    },
    NodeBack {
        node: usize,
    },
    Drain {
        node: usize,
    },
    Uncordon {
        node: usize,
    },
    /// The chief of the job, if it runs, exits with code 1.
    TaskFails {
        job: usize,
    },
    Pause {
        job: usize,
    },
    Resume {
        job: usize,
    },
    Cancel {
        job: usize,
    },
    /// From now on the job uses this of its GPU ([`GpuUse`]); nothing where nobody measures.
    Uses {
        job: usize,
        busy_percent: u32,
        memory_bytes: u64,
    },
}

fn suspend_ms() -> i64 {
    100
}

fn all() -> f64 {
    1.0
}

impl TrueSpeed {
    /// Steps per second.
    #[must_use]
    pub fn steps_per_s(&self, workers: u32, ps_shards: u32) -> f64 {
        let (w, p) = (f64::from(workers.max(1)), f64::from(ps_shards.max(1)));
        let useful = f64::from(workers.clamp(1, self.useful_workers.max(1)));
        let step_s = self.parallel_s / useful
            + self.serial_s
            + self.exchange_s * w / p
            + self.per_worker_s * w;
        1.0 / step_s
    }
}
