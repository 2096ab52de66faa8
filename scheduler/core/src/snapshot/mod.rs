//! Input of a round: nodes, tenants and jobs at one instant, in a fixed order.
//!
//! A round is replayed from this value and the policy settings alone. Everything that a decision
//! depends on must be in one of the two.

mod history;
mod job;

use crate::learn::{CourseNoise, Observation};
pub use history::{PastDuration, Restarts, TrainingLength};
pub use job::{
    Adaptive, FailedReport, Finished, IntentOrigin, Progress, ReportedCheckpoint, SnapshotJob,
    SnapshotService, SnapshotTask, SpeedPoint, StudyMembership,
};
use muster_model::compute_capability::ComputeCapability;
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, NodeId, TenantId};
use muster_model::node::{GpuClass, NodeSpeed, is_part};
pub use muster_model::plan::StaleWait;
use muster_model::priority::PriorityClass;
use muster_model::spec::NodeTraits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Consistent state of the cluster at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSnapshot {
    pub round: u64,
    /// Instant of the snapshot, Unix time in milliseconds.
    pub now_ms: i64,
    pub nodes: Vec<SnapshotNode>,
    pub tenants: Vec<SnapshotTenant>,
    /// Jobs that have not ended: all jobs with resources or an intent to obey, and the queued jobs
    /// of the queue window.
    pub jobs: Vec<SnapshotJob>,
    /// Tenants with queued jobs outside of the queue window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<QueueRemainder>,
    /// Measured speeds of the jobs' families. If the nodes have several kinds of GPUs, also those
    /// of further families of the same tenants, which show how the kinds compare. Ordered by
    /// tenant and key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<SnapshotFamily>,
    /// GPU-seconds of the newest ended jobs, in ascending order, as at most 64 values. Rounds of
    /// earlier releases have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history_gpu_s: Vec<f64>,
    /// Priority classes of the installation without their descriptions, ordered by name. Proposed
    /// priorities keep to their ranges; nothing else reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub priority_classes: Vec<PriorityClass>,
}

/// Measured speeds of the jobs of one family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotFamily {
    pub tenant: TenantId,
    /// Key of the family ([`muster_model::family::Family`]).
    pub family: String,
    /// Means over the family's jobs.
    pub speeds: Vec<Observation>,
    /// Gradient noise over the course of the family's jobs, in order, where their coordinators
    /// choose the batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noises: Vec<CourseNoise>,
    /// Sums over all stops and starts of the family's jobs; `None` if none was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Restarts>,
}

/// Queued jobs of one tenant that this round does not consider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueRemainder {
    pub tenant: TenantId,
    /// Number of the tenant's queued jobs that the round considers.
    pub considered: u32,
    /// Number of the tenant's other queued jobs, as last counted.
    pub jobs: u32,
    /// Some of these jobs whose wait reason is not
    /// [`Wait::BehindEarlierJobs`](muster_model::wait::Wait::BehindEarlierJobs) yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<StaleWait>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotNode {
    pub id: NodeId,
    pub name: String,
    /// Whether the node has a session or its lease has not expired.
    pub up: bool,
    /// Whether the node is drained: it takes no new tasks, and its tasks move away.
    pub drained: bool,
    /// Name of the rack. Nodes with the same rack are nearer to each other than to other nodes.
    /// `None` if it is not configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Whether the node is excluded: it takes no new tasks, and its tasks stay.
    #[serde(default, skip_serializing_if = "is_false")]
    pub excluded: bool,
    /// Whether the node is cordoned by its cluster, or refuses new tasks by itself, for example
    /// because its disk is full. This is no job's failure, and Muster's administrators cannot clear
    /// it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cordoned: bool,
    /// Faults that were recorded for the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Number of GPUs or CPU slots; their indices are `0..gpus`.
    pub gpus: u32,
    /// Indices of GPUs in use outside of Muster; no task of Muster holds one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<u32>,
    /// GPUs released in the last minute by a job that has ended, waits or is suspended, with the
    /// time of their last release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freed: Vec<FreedGpu>,
    /// Model of the GPUs as the driver names it; a job is not spread over different models. The
    /// name shows whether it is a part of a GPU (MIG instance).
    pub gpu_model: String,
    /// Whether these are CPU slots in place of GPUs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cpu_slots: bool,
    /// Labels of the node to which constraints of jobs refer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Memory of the node's smallest GPU or CPU slot; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gpu_memory_bytes: u64,
    /// Lowest compute capability of the node's GPUs; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
    /// Whether the driver should move the GPU memory of suspended programs to the host.
    #[serde(default, skip_serializing_if = "is_false")]
    pub driver_suspend: bool,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Whether tasks of the node are pods. A task in a pod can have its own image and volumes.
    /// `None` if the executor is too old to report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<bool>,
    /// Whether tasks of the node can run in images, as pods or as processes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub images: bool,
    /// Time of the node's last message, Unix ms; `None` if it is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_ms: Option<i64>,
    /// Measured speed relative to the node's GPU kind; `None` if it is not known to deviate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<NodeSpeed>,
}

/// A released GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreedGpu {
    pub gpu: u32,
    pub at_ms: i64,
}

/// A fault on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Job whose task failed; `None` for a fault of the machine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    pub what: NodeFault,
    pub at_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotTenant {
    pub id: TenantId,
    pub name: String,
    /// Maximum number of GPUs that the tenant's jobs hold at one time; `None` for no limit.
    pub gpu_quota: Option<u32>,
    /// Weight of the tenant; its share of the cluster is its weight over the sum of all weights.
    pub weight: f64,
}

impl ClusterSnapshot {
    /// The best class of GPUs on any node, also on nodes that take no tasks now.
    #[must_use]
    pub fn best_gpu_class(&self) -> GpuClass {
        let best = self.nodes.iter().filter_map(SnapshotNode::gpu_class).max();
        best.unwrap_or(GpuClass::CpuSlot)
    }

    /// Sorts nodes by name, tenants by id, jobs by submission time and tasks by role. Two snapshots
    /// of the same facts are then equal byte for byte.
    pub fn sort(&mut self) {
        self.nodes
            .sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        for node in &mut self.nodes {
            node.faults.sort_by_key(|fault| (fault.at_ms, fault.job));
            node.freed.sort_by_key(|freed| freed.gpu);
            node.taken.sort_unstable();
        }
        self.tenants.sort_by_key(|tenant| tenant.id);
        self.left_out.sort_by_key(|left_out| left_out.tenant);
        self.families
            .sort_by(|a, b| (a.tenant, &a.family).cmp(&(b.tenant, &b.family)));
        for left_out in &mut self.left_out {
            left_out.untold.sort_by_key(|untold| untold.job);
        }
        self.jobs.sort_by_key(|job| (job.submitted_ms, job.id));
        for job in &mut self.jobs {
            job.tasks.sort_by_key(|task| (task.role, task.id));
            job.leaving.sort_by_key(|task| (task.role, task.id));
            job.tasks
                .iter_mut()
                .chain(&mut job.leaving)
                .for_each(|task| task.gpus.sort_unstable());
            job.speeds
                .sort_by_key(|point| (point.workers, point.ps_shards));
            job.progress.epoch_losses.sort_by_key(|&(epoch, _)| epoch);
        }
    }
}

impl SnapshotNode {
    /// Whether the node takes new tasks.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.up && !self.drained && !self.excluded && !self.cordoned
    }

    /// Whether the tasks of the node are known to be pods.
    #[must_use]
    pub fn has_pods(&self) -> bool {
        self.pods == Some(true)
    }

    /// Whether the node can run tasks that must be pods (`pods`) or have an image (`image`).
    #[must_use]
    pub fn hosts(&self, pods: bool, image: bool) -> bool {
        self.has_pods() || (!pods && (self.images || !image))
    }

    /// Class of the node's GPUs; `None` without GPUs.
    #[must_use]
    pub fn gpu_class(&self) -> Option<GpuClass> {
        if self.gpus == 0 {
            None
        } else if self.cpu_slots {
            Some(GpuClass::CpuSlot)
        } else if is_part(&self.gpu_model) {
            Some(GpuClass::Part)
        } else {
            Some(GpuClass::Gpu)
        }
    }

    /// Properties of the node to which constraints refer.
    #[must_use]
    pub fn traits(&self) -> NodeTraits<'_> {
        NodeTraits {
            name: &self.name,
            gpu_model: &self.gpu_model,
            class: self.gpu_class(),
            gpu_memory_bytes: self.gpu_memory_bytes,
            compute_capability: self.compute_capability,
            labels: &self.labels,
        }
    }

    /// Speed in percent of the typical node of the GPU kind.
    #[must_use]
    pub fn speed_percent(&self) -> u16 {
        self.speed
            .map_or(NodeSpeed::TYPICAL_PERCENT, |speed| speed.percent)
    }

    /// Number of GPUs that Muster can allocate.
    #[must_use]
    pub fn own_gpus(&self) -> u32 {
        let others = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
        self.gpus.saturating_sub(others)
    }

    /// Maximum number of GPUs of one task on this node: a process sees only one part of a GPU (MIG
    /// instance).
    #[must_use]
    pub fn gpus_of_a_task(&self) -> u32 {
        if is_part(&self.gpu_model) {
            self.own_gpus().min(1)
        } else {
            self.own_gpus()
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}
