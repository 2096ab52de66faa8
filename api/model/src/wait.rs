//! Why a job does not run, and the smallest change that would let it start. The words follow Kueue's where it has one.

use crate::id::JobId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A reason and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Waiting {
    pub why: Wait,
    /// `None` when nothing but time helps.
    pub smallest_change: Option<Change>,
    /// Place in the order in which waiting jobs are considered, from 1; 0 before a round has considered it.
    pub position: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Wait {
    /// Submitted; no round has seen it yet.
    NotConsidered,
    /// A user paused it.
    Suspended,
    /// The tenant's other jobs hold so much of its quota that the minimum does not fit.
    WaitingForQuota {
        needed_gpus: u32,
        used_gpus: u32,
        quota_gpus: u32,
    },
    /// The minimum is above the tenant's whole quota: it can never start so.
    ExceedsMaxQuota { needed_gpus: u32, quota_gpus: u32 },
    /// No node of the cluster, were it empty, holds even one of its tasks.
    NoMatchingNodes {
        needed_gpus_per_worker: u32,
        largest_node_gpus: u32,
    },
    /// The whole cluster, were it empty, does not hold its minimum.
    ExceedsCluster { needed_gpus: u32, cluster_gpus: u32 },
    /// Other jobs hold the GPUs.
    WaitingForGpus {
        needed_gpus: u32,
        free_gpus: u32,
        held_by: Vec<JobId>,
    },
    /// Enough GPUs are free, but not so many on one node as one worker needs, or not enough CPU or memory beside them.
    TopologyPlacementFailed { needed_gpus: u32, free_gpus: u32 },
    /// Room is made for it: these jobs are stopping.
    WaitingForPreemptedWorkloads { jobs: Vec<JobId> },
    /// It failed and is tried again after a pause.
    BackingOff { until_unix_ms: i64 },
}

/// The smallest change that would let the job start now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Change {
    /// Lower `scale.workers.min` to this.
    LowerMinWorkers { to: u32 },
    /// Lower `resources.worker.gpus` to this.
    LowerGpusPerWorker { to: u32 },
    /// Raise the tenant's quota by this.
    RaiseQuota { by_gpus: u32 },
    /// Free or add this many GPUs.
    AddGpus { gpus: u32 },
    /// Uncordon this node.
    UncordonNode { name: String },
    /// Resume the job.
    Resume,
}

impl Wait {
    /// The reason's name in the style of Kubernetes conditions.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotConsidered => "NotConsidered",
            Self::Suspended => "Suspended",
            Self::WaitingForQuota { .. } => "WaitingForQuota",
            Self::ExceedsMaxQuota { .. } => "ExceedsMaxQuota",
            Self::NoMatchingNodes { .. } => "NoMatchingNodes",
            Self::ExceedsCluster { .. } => "ExceedsCluster",
            Self::WaitingForGpus { .. } => "WaitingForGpus",
            Self::TopologyPlacementFailed { .. } => "TopologyPlacementFailed",
            Self::WaitingForPreemptedWorkloads { .. } => "WaitingForPreemptedWorkloads",
            Self::BackingOff { .. } => "BackingOff",
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConsidered => write!(f, "submitted; the next round considers it"),
            Self::Suspended => write!(f, "paused by a user"),
            Self::WaitingForQuota {
                needed_gpus,
                used_gpus,
                quota_gpus,
            } => write!(
                f,
                "needs {needed_gpus} GPUs; the tenant's other jobs hold {used_gpus} of its quota of {quota_gpus}"
            ),
            Self::ExceedsMaxQuota {
                needed_gpus,
                quota_gpus,
            } => {
                write!(
                    f,
                    "needs {needed_gpus} GPUs; the tenant's whole quota is {quota_gpus}"
                )
            }
            Self::NoMatchingNodes {
                needed_gpus_per_worker,
                largest_node_gpus,
            } => write!(
                f,
                "each worker needs {needed_gpus_per_worker} GPUs on one node; the largest node has {largest_node_gpus}"
            ),
            Self::ExceedsCluster {
                needed_gpus,
                cluster_gpus,
            } => {
                write!(
                    f,
                    "needs {needed_gpus} GPUs; the whole cluster has {cluster_gpus}"
                )
            }
            Self::WaitingForGpus {
                needed_gpus,
                free_gpus,
                held_by,
            } => {
                write!(
                    f,
                    "needs {needed_gpus} GPUs, {free_gpus} are free; {} jobs hold the others",
                    held_by.len()
                )
            }
            Self::TopologyPlacementFailed {
                needed_gpus,
                free_gpus,
            } => write!(
                f,
                "needs {needed_gpus} GPUs and {free_gpus} are free, but not where its tasks fit"
            ),
            Self::WaitingForPreemptedWorkloads { jobs } => {
                write!(f, "room is being made: {} jobs are stopping", jobs.len())
            }
            Self::BackingOff { .. } => write!(f, "failed, and is tried again after a pause"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LowerMinWorkers { to } => write!(f, "lower scale.workers.min to {to}"),
            Self::LowerGpusPerWorker { to } => write!(f, "lower resources.worker.gpus to {to}"),
            Self::RaiseQuota { by_gpus } => write!(f, "raise the tenant's quota by {by_gpus} GPUs"),
            Self::AddGpus { gpus } => write!(f, "free or add {gpus} GPUs"),
            Self::UncordonNode { name } => write!(f, "uncordon node {name}"),
            Self::Resume => write!(f, "resume the job"),
        }
    }
}
