//! Input of a simulation: a cluster, jobs with their true speeds, and incidents with their times.

mod goodput;

pub use goodput::{ChosenBatch, CourseStretch, GoodputTable, GradientStatistics, TimedBatch};
use muster_model::spec::{Consistency, Range};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// One simulation. Times are milliseconds from its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub nodes: Vec<SimNode>,
    pub tenants: Vec<SimTenant>,
    pub jobs: Vec<SimJob>,
    pub incidents: Vec<Incident>,
    /// Delay from a start until all tasks are up.
    pub launch_ms: i64,
    /// Delay from a stop order until the tasks have exited and the checkpoint is written.
    pub stop_ms: i64,
    /// Delay from a suspend order until all workers are suspended.
    #[serde(default = "suspend_ms")]
    pub suspend_ms: i64,
    /// Factor on the speed of a job on several racks; 0 to 1.
    #[serde(default = "all")]
    pub across_racks: f64,
    /// Measurements of GPU use. With `None` the nodes do not measure, and nothing is packed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// Maximum interval between rounds; a round starts after it without an event.
    pub round_ms: i64,
    /// The simulation ends at this time.
    pub until_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimNode {
    pub name: String,
    pub gpus: u32,
    /// Model of the GPUs.
    #[serde(default = "gpu", skip_serializing_if = "is_gpu")]
    pub gpu_model: String,
    /// `None`: the node reports no rack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Speed relative to other nodes with these GPUs, within [`NODE_SPEEDS`]. A job is as slow as
    /// the slowest node of its workers.
    #[serde(default = "all", skip_serializing_if = "is_all")]
    pub speed: f64,
}

/// Range of the speeds of nodes.
pub const NODE_SPEEDS: RangeInclusive<f64> = 0.1..=10.0;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimTenant {
    pub name: String,
    pub gpu_quota: Option<u32>,
}

/// Measurements that packing needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// Memory of each GPU.
    pub gpu_memory_bytes: u64,
    /// Interval at which jobs report their steps and nodes report GPU use.
    pub sample_ms: i64,
    /// GPU use of every job, in the order of the scenario.
    pub uses: Vec<GpuUse>,
}

/// GPU use of a job of one worker that is alone on its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuUse {
    /// Share of the GPU's time, 0 to 1. In the rest of a step the job waits for data, the host or
    /// the network.
    pub busy: f64,
    /// Peak memory on the GPU.
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimJob {
    pub name: String,
    /// Index of the tenant.
    pub tenant: usize,
    pub priority: i32,
    pub submitted_ms: i64,
    pub workers: Range,
    pub ps_shards: Range,
    /// 0 for workers that hold only CPU and memory.
    pub gpus_per_worker: u32,
    pub retries: u32,
    /// The remaining tasks continue while others join or leave.
    #[serde(default)]
    pub in_place: bool,
    pub consistency: Consistency,
    pub batch: u32,
    pub steps: u64,
    /// Interval of checkpoints. An orderly stop loses no steps; a failed job returns to the last
    /// multiple.
    pub checkpoint_steps: u64,
    /// Delay from a start until all tasks are up; `None` for that of the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_ms: Option<i64>,
    /// Key of the family. Jobs of a tenant with the same key share what is learned of their speeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    pub speed: TrueSpeed,
}

/// True speed of a job at every size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TrueSpeed {
    Formula(SpeedFormula),
    Table(SpeedTable),
    Goodput(GoodputTable),
}

/// Steps per second of a job by GPU kind, number of nodes and number of workers:
/// `by_kind[kind][nodes - 1][workers - 1]`. Beyond the table the last row and the last value hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedTable {
    pub by_kind: BTreeMap<String, Vec<Vec<f64>>>,
}

/// Placement of a job's tasks, as far as its speed depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskPlacement<'a> {
    /// Model of the GPUs.
    pub kind: &'a str,
    /// Number of nodes on which the workers are.
    pub nodes: u32,
    pub workers: u32,
    pub ps_shards: u32,
}

/// Seconds per step: `parallel_s / w + serial_s + exchange_s * w / p + per_worker_s * w`. In the
/// first term `w` is capped at `useful_workers`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedFormula {
    pub parallel_s: f64,
    pub serial_s: f64,
    pub exchange_s: f64,
    pub per_worker_s: f64,
    /// Number of workers above which `parallel_s` does not shrink further.
    pub useful_workers: u32,
}

/// Incident in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Incident {
    pub at_ms: i64,
    pub what: IncidentKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum IncidentKind {
    /// All tasks of the node are lost.
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
    /// The coordinator of the job exits with code 1 if it runs.
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
    /// The job's GPU use changes to these values ([`GpuUse`]). Has no effect without `sharing`.
    Uses {
        job: usize,
        busy_percent: u32,
        memory_bytes: u64,
    },
}

fn gpu() -> String {
    "gpu".to_owned()
}

fn is_gpu(model: &str) -> bool {
    model == "gpu"
}

fn suspend_ms() -> i64 {
    100
}

fn all() -> f64 {
    1.0
}

fn is_all(speed: &f64) -> bool {
    *speed == 1.0
}

impl TrueSpeed {
    /// Steps per second at a step of the job; 0 on a GPU kind that the table does not contain.
    #[must_use]
    pub fn steps_per_s(&self, at: TaskPlacement<'_>, step: f64) -> f64 {
        match self {
            Self::Formula(formula) => formula.steps_per_s(at.workers, at.ps_shards),
            Self::Table(table) => table.steps_per_s(at),
            Self::Goodput(table) => table
                .chosen(at, step)
                .map_or(0.0, |chosen| chosen.steps_per_s),
        }
    }

    /// Seconds for the first `steps` steps on one placement; infinite at speed 0.
    #[must_use]
    pub fn seconds(&self, at: TaskPlacement<'_>, steps: f64) -> f64 {
        let (mut step, mut seconds) = (0.0, 0.0);
        while step < steps {
            let until = self.constant_until(step).min(steps);
            seconds += (until - step) / self.steps_per_s(at, step);
            step = until;
        }
        seconds
    }

    /// Step up to which the speed on a placement does not change.
    #[must_use]
    pub fn constant_until(&self, step: f64) -> f64 {
        match self {
            Self::Formula(_) | Self::Table(_) => f64::INFINITY,
            Self::Goodput(table) => table.constant_until(step),
        }
    }
}

impl SpeedTable {
    fn steps_per_s(&self, at: TaskPlacement<'_>) -> f64 {
        let rows = self.by_kind.get(at.kind).map_or(&[][..], Vec::as_slice);
        let row = nth_or_last(rows, at.nodes).map_or(&[][..], Vec::as_slice);
        nth_or_last(row, at.workers).copied().unwrap_or(0.0)
    }
}

/// Element with this number, from 1; the last one if there are fewer.
fn nth_or_last<T>(elements: &[T], number: u32) -> Option<&T> {
    let index = number.saturating_sub(1) as usize;
    elements.get(index).or_else(|| elements.last())
}

impl SpeedFormula {
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
