//! The scheduling problem: the cluster and its jobs at one instant, in the dense form that policies
//! read.
//!
//! Jobs, nodes, GPU kinds and tenants are indices. A policy therefore reads as its algorithm, and a
//! decision takes milliseconds also on large clusters. A live round and every simulator translate
//! their state into a problem and the decision back. A policy sees nothing else, so a policy that
//! is compared on traces is the one that runs in production. All times are seconds since an origin
//! that the translator chooses.

mod decision;
mod free_resources;
mod node_set;
mod scaling_model;

pub use decision::{NodeAllocation, PolicyDecision, SizeValue, gpus_of, nodes_of};
pub use free_resources::FreeResources;
pub use node_set::{AllowedNodes, NodeSet};
pub use scaling_model::{FittedLoss, KindSpeedCurve, ScalingModel};

use std::sync::Arc;

/// Consistent view of the cluster at `now_s`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SchedulingProblem {
    pub now_s: f64,
    /// Longest time until the next decision, in seconds. An event can cause an earlier decision.
    pub round_s: f64,
    /// Names of the GPU kinds. `ProblemNode::kind` and the index of a curve refer to this list.
    pub kinds: Vec<String>,
    pub nodes: Vec<ProblemNode>,
    /// Sets of nodes on which single jobs may run ([`Demand::nodes`]).
    pub node_sets: Arc<[NodeSet]>,
    pub tenants: Vec<ProblemTenant>,
    /// Jobs in order of submission.
    pub jobs: Vec<ProblemJob>,
    /// GPU-seconds that each finished job used in total, newest last. Input of the Gittins index.
    pub history_gpu_s: Vec<f64>,
}

/// Machine with GPUs of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProblemNode {
    pub kind: u16,
    /// GPUs that policies may allocate. A node that is down or drained has none.
    pub gpus: u32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Rack of the node. Nodes of one rack have a faster connection to each other.
    pub rack: u32,
    /// Measured speed in percent of the typical node of the kind; 100 if none is known.
    pub speed_percent: u16,
}

/// Owner of jobs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProblemTenant {
    /// Weight of the tenant. Its share is its weight over the sum of the weights of its siblings.
    pub weight: f64,
    /// Maximum number of GPUs that the tenant's jobs hold at one time.
    pub gpu_quota: Option<u32>,
    /// Parent tenant, for example an organisation. Siblings divide the share of their parent.
    pub parent: Option<u32>,
}

/// Job that has not ended and may run.
#[derive(Debug, Clone, PartialEq)]
pub struct ProblemJob {
    pub tenant: u32,
    /// Priority. A job of higher priority precedes every job of lower priority.
    pub priority: i32,
    pub submitted_s: f64,
    /// Demand of one worker with its part of the PS shards. Sizes are multiples of its GPUs.
    pub unit: Demand,
    /// Size of the smallest gang that may run, in GPUs.
    pub min_gpus: u32,
    pub max_gpus: u32,
    /// Size that the owner requested. Policies without elasticity allocate this size.
    pub request_gpus: u32,
    /// GPUs that the job holds now, in the order of their allocation.
    pub present: Vec<NodeAllocation>,
    /// Time of the present allocation. Without one: time of the last release, or of the submission.
    pub since_s: f64,
    /// Whether the job keeps its allocation in this decision: it starts or was placed a moment ago.
    pub fixed: bool,
    /// GPU-seconds held so far.
    pub attained_gpu_s: f64,
    /// Time of the first decision in which `attained_gpu_s` had reached
    /// [`DEMOTED_GPU_S`](crate::policies::tiresias::DEMOTED_GPU_S). It orders the lower queue of
    /// Tiresias. `None` before that decision, in that decision, and where the time is not recorded.
    pub demoted_s: Option<f64>,
    /// Seconds held so far, by GPU kind.
    pub held_s: Vec<f64>,
    /// Number of changes of the allocation after the first.
    pub restarts: u32,
    /// Seconds without progress that a change of the allocation costs.
    pub restart_s: f64,
    /// Factor on `restart_s` in the cost of a change now: 1, and more soon after the last change.
    pub restart_cost_factor: f64,
    /// Seconds of work that a change now would lose, in addition to `restart_s`.
    pub at_risk_s: f64,
    /// Whether the job can be stopped and can continue from its state. If not, it is never
    /// displaced or resized.
    pub preemptible: bool,
    /// Study and expected gain, if the job is a trial.
    pub trial: Option<ProblemTrial>,
    pub outlook: ScalingModel,
}

/// Trial of a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProblemTrial {
    /// Index of the study.
    pub study: u32,
    /// Expected gain of more GPU time, relative to the other trials of the study: 0 (none) to 1.
    pub gain: f64,
}

/// Resources of one unit of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub gpus: u32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Nodes on which the job may run.
    pub nodes: AllowedNodes,
}

impl SchedulingProblem {
    /// Returns the number of GPUs that policies may allocate.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.gpus).sum()
    }

    /// Returns the GPU kind of an allocation.
    pub(crate) fn kind_of(&self, part: &NodeAllocation) -> u16 {
        self.nodes[part.node as usize].kind
    }

    /// Returns the number of GPUs of one kind.
    #[must_use]
    pub fn gpus_of_kind(&self, kind: u16) -> u32 {
        let of_kind = self.nodes.iter().filter(|node| node.kind == kind);
        of_kind.map(|node| node.gpus).sum()
    }

    /// Returns the number of GPUs of the largest node of a kind: the largest gang on a single node.
    #[must_use]
    pub fn node_gpus(&self, kind: u16) -> u32 {
        let of_kind = self.nodes.iter().filter(|node| node.kind == kind);
        of_kind.map(|node| node.gpus).max().unwrap_or(0)
    }
}

impl ProblemJob {
    /// Returns the number of GPUs that the job holds.
    #[must_use]
    pub fn held_gpus(&self) -> u32 {
        gpus_of(&self.present)
    }

    /// Returns the seconds that a change of the allocation must save now.
    #[must_use]
    pub fn change_s(&self) -> f64 {
        self.restart_s * self.restart_cost_factor + self.at_risk_s
    }

    /// Returns the seconds since the submission.
    #[must_use]
    pub fn age_s(&self, now_s: f64) -> f64 {
        (now_s - self.submitted_s).max(0.0)
    }

    /// Whether a policy may take away or change the allocation.
    #[must_use]
    pub fn is_movable(&self) -> bool {
        !self.fixed && (self.preemptible || self.present.is_empty())
    }
}

impl Demand {
    /// One GPU. CPU and memory are not counted.
    pub const GPU: Self = Self {
        gpus: 1,
        cpu_milli: 0,
        memory_bytes: 0,
        nodes: AllowedNodes::ALL,
    };
}
