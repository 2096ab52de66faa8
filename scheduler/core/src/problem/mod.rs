//! What a policy decides on: the cluster and its jobs at one instant, in dense numbers.
//!
//! Jobs, nodes, GPU kinds and tenants are indices, so that a policy reads as its algorithm and a decision on a hundred thousand GPUs
//! takes milliseconds. A live round and every simulator translate into this and back; a policy sees nothing else, so one that is
//! compared on traces is the very one that runs. All times are seconds since an origin that the translator chooses.

mod decision;
mod outlook;
mod tally;

pub use decision::{Decision, Part, Worth, gpus_of, nodes_of};
pub use outlook::{Curve, Loss, Outlook};
pub use tally::Tally;

/// One consistent view of the cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Problem {
    pub now_s: f64,
    /// When the next decision falls due at the latest, if nothing happens before.
    pub round_s: f64,
    /// GPU kinds by name; a node's and a curve's `kind` is an index into this.
    pub kinds: Vec<String>,
    pub nodes: Vec<Node>,
    pub tenants: Vec<Tenant>,
    /// In order of submission.
    pub jobs: Vec<Job>,
    /// GPU-seconds that finished jobs had taken in all, newest last: what Gittins' index is computed from.
    pub history_gpu_s: Vec<f64>,
}

/// A machine with GPUs of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Node {
    pub kind: u16,
    /// GPUs that may be given away. A node that is down or drained has none.
    pub gpus: u32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Nodes of one rack are nearer to each other.
    pub rack: u32,
}

/// An owner of jobs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tenant {
    /// Its share among its siblings is its weight over the sum of theirs.
    pub weight: f64,
    /// GPUs that its jobs may hold at once.
    pub gpu_quota: Option<u32>,
    /// The tenant (an organisation, say) whose share it divides with its siblings.
    pub parent: Option<u32>,
}

/// One job that has not ended and may run.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub tenant: u32,
    /// Higher comes first, strictly.
    pub priority: i32,
    pub submitted_s: f64,
    /// What one worker takes with its part of the parameter-server shards. Sizes are multiples of its GPUs.
    pub unit: Demand,
    /// The smallest gang that may run, GPUs.
    pub min_gpus: u32,
    pub max_gpus: u32,
    /// What its owner asked for: the size that policies without elasticity give.
    pub request_gpus: u32,
    /// What it holds now, in the order in which it was given.
    pub present: Vec<Part>,
    /// When it was given that; of a job that holds nothing, when it lost what it had or was submitted.
    pub since_s: f64,
    /// Keeps what it has in this round, come what may: it starts, or it was placed a moment ago.
    pub fixed: bool,
    /// GPU-seconds held so far.
    pub attained_gpu_s: f64,
    /// When a decision first saw [`DEMOTED_GPU_S`](crate::policies::tiresias::DEMOTED_GPU_S) in that: Tiresias' lower queue is in
    /// this order. `None` before, in the decision that sees it first, and where nobody wrote it down.
    pub demoted_s: Option<f64>,
    /// Seconds held so far, by GPU kind.
    pub held_s: Vec<f64>,
    /// Times that its allocation was changed after the first.
    pub restarts: u32,
    /// Seconds without progress that a change of its allocation costs.
    pub restart_s: f64,
    /// Factor on `restart_s` in the cost of a change now; 1, and more soon after the last change.
    pub haste: f64,
    /// Seconds of work that a change now would lose besides.
    pub at_risk_s: f64,
    /// Whether it can be stopped and come back where it was. If not, it is never displaced or resized.
    pub preemptible: bool,
    /// Of a study's trial: what it promises.
    pub trial: Option<Trial>,
    pub outlook: Outlook,
}

/// A job that is one of many of a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// Its study, as an index.
    pub study: u32,
    /// What more time on GPUs is expected to bring beside the study's other trials; 0 (nothing) to 1.
    pub gain: f64,
}

/// Resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub gpus: u32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

impl Problem {
    /// GPUs that may be given away.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.gpus).sum()
    }

    /// GPUs of one kind.
    #[must_use]
    pub fn gpus_of_kind(&self, kind: u16) -> u32 {
        let of_kind = self.nodes.iter().filter(|node| node.kind == kind);
        of_kind.map(|node| node.gpus).sum()
    }

    /// GPUs of the largest node of a kind: up to so many stay together.
    #[must_use]
    pub fn node_gpus(&self, kind: u16) -> u32 {
        let of_kind = self.nodes.iter().filter(|node| node.kind == kind);
        of_kind.map(|node| node.gpus).max().unwrap_or(0)
    }
}

impl Job {
    /// GPUs that it holds.
    #[must_use]
    pub fn held_gpus(&self) -> u32 {
        gpus_of(&self.present)
    }

    /// Seconds that a change of its allocation now must save.
    #[must_use]
    pub fn change_s(&self) -> f64 {
        self.restart_s * self.haste + self.at_risk_s
    }

    /// Seconds since it was submitted.
    #[must_use]
    pub fn age_s(&self, now_s: f64) -> f64 {
        (now_s - self.submitted_s).max(0.0)
    }

    /// Whether a policy may take away or change what it holds.
    #[must_use]
    pub fn is_movable(&self) -> bool {
        !self.fixed && (self.preemptible || self.present.is_empty())
    }
}

impl Demand {
    /// One GPU, and nothing else that counts.
    pub const GPU: Self = Self {
        gpus: 1,
        cpu_milli: 0,
        memory_bytes: 0,
    };
}
