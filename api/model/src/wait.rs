//! Why a job does not run, and the smallest change that would let it start. Names follow Kueue's
//! where Kueue has one.

mod text;

use crate::id::JobId;
use crate::spec::UnmetConstraint;
use serde::{Deserialize, Serialize};

/// Reason for waiting and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Waiting {
    pub why: Wait,
    /// Null if only time helps.
    pub smallest_change: Option<Change>,
    /// Position among the waiting jobs, from 1; 0 before the first round has considered the job.
    pub position: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Wait {
    /// Submitted; no round has considered the job yet.
    NotConsidered,
    /// A round considers a limited number of queued jobs. Earlier jobs of its tenant fill the
    /// tenant's part.
    BehindEarlierJobs {
        /// Queued jobs of the tenant that the round considered.
        considered: u32,
    },
    /// Other jobs must end before the job starts (`after` of the document).
    WaitingForJobs { jobs: Vec<JobId> },
    /// As many jobs of its array as the limit allows have not ended (`array` of the document).
    WaitingForArray { limit: u32 },
    /// A user paused the job.
    Suspended,
    /// The tenant's other jobs hold so much of the quota that the job's minimum does not fit.
    WaitingForQuota {
        needed_gpus: u32,
        used_gpus: u32,
        quota_gpus: u32,
    },
    /// The job's minimum exceeds the whole quota of its tenant, so it can never start.
    ExceedsMaxQuota { needed_gpus: u32, quota_gpus: u32 },
    /// No node of the cluster holds even one worker, or no node takes tasks.
    NoMatchingNodes {
        needed_gpus_per_worker: u32,
        /// Largest number of GPUs of one node that one task can use. On a node with GPU parts (MIG
        /// instances) this is 1.
        largest_node_gpus: u32,
        /// Whether some node has enough GPU parts (MIG instances). A process can use only one of
        /// them.
        #[serde(default, skip_serializing_if = "is_false")]
        parts: bool,
        /// Whether the job's tasks must be pods (`pod` of the document), so that only nodes with
        /// pods count.
        #[serde(default, skip_serializing_if = "is_false")]
        pods: bool,
        /// Whether the job's tasks run in an image (`pod.image` of the document), so that only
        /// nodes that can run images count.
        #[serde(default, skip_serializing_if = "is_false")]
        image: bool,
        /// GPUs of open nodes that the job's constraints exclude.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        forbidden: Vec<ForbiddenGpus>,
    },
    /// The whole cluster, if it were empty, would not hold the job's minimum.
    ExceedsCluster {
        needed_gpus: u32,
        /// GPUs of the nodes where the job may run.
        cluster_gpus: u32,
        /// GPUs of open nodes that the job's constraints exclude.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        forbidden: Vec<ForbiddenGpus>,
    },
    /// Other jobs hold the GPUs.
    WaitingForGpus {
        needed_gpus: u32,
        /// GPUs that no task holds, on nodes where the job may run.
        free_gpus: u32,
        /// Free GPUs that are reserved for jobs that precede it: for a time slice, a restart or a
        /// gang that waits for further GPUs.
        #[serde(default, skip_serializing_if = "is_none")]
        kept_gpus: u32,
        /// Further GPUs that no task holds, but on which suspended programs keep memory. The job
        /// starts there only if it is known to fit (`resources.worker.gpu_memory_bytes`).
        #[serde(default, skip_serializing_if = "is_none")]
        occupied_gpus: u32,
        /// Jobs that hold GPUs: first the jobs that precede it, then the largest holders. The list
        /// covers at least the missing GPUs and has a few more jobs.
        held_by: Vec<JobId>,
        /// Free GPUs on nodes that the job's constraints exclude.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        forbidden: Vec<ForbiddenGpus>,
    },
    /// Enough GPUs are free, but no node has enough of them for one worker, or too little CPU or
    /// memory beside them.
    TopologyPlacementFailed {
        needed_gpus: u32,
        free_gpus: u32,
        /// Resource of which every node has too little for one worker even if the node were empty.
        /// Null if the free resources are only scattered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        short: Option<Short>,
    },
    /// A job without GPUs waits for CPU or memory. Too little is free on the nodes where it may
    /// run, or the free part is kept for jobs that precede it.
    WaitingForCpuAndMemory {
        workers: u32,
        /// CPU of one worker in thousandths of a core.
        needed_milli: u64,
        /// Memory of one worker.
        needed_bytes: u64,
        /// Largest free CPU of one node.
        largest_free_milli: u64,
        /// Largest free memory of one node.
        largest_free_bytes: u64,
        /// Nodes that take tasks and on which the job may run.
        nodes: u32,
        /// Whether these nodes could not hold all workers even if they were empty.
        #[serde(default, skip_serializing_if = "is_false")]
        exceeds_cluster: bool,
    },
    /// These jobs are stopping to make room for the job.
    WaitingForPreemptedWorkloads { jobs: Vec<JobId> },
    /// The job failed, or a node refused one of its tasks. It starts again after a pause.
    BackingOff {
        until_unix_ms: i64,
        /// Set if a node refused a task; absent after a failure and in records of older releases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<Refused>,
    },
}

/// GPUs of one model on nodes that one constraint of the job excludes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ForbiddenGpus {
    pub gpu_model: String,
    pub gpus: u32,
    /// The constraint; the first one if several exclude the nodes.
    pub by: UnmetConstraint,
}

/// Refusal of a task whose GPUs were free: other pods hold the resources, or the node has less than
/// its capacity says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Refused {
    /// Name of the node.
    pub node: String,
    /// Reason that the node reported.
    pub message: String,
    /// Number of consecutive refusals of the job's start.
    pub times: u32,
}

/// Resource of which one worker needs more than any node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Short {
    /// Memory in bytes.
    Memory {
        needed_bytes: u64,
        largest_node_bytes: u64,
    },
    /// CPU in thousandths of a core.
    Cpu {
        needed_milli: u64,
        largest_node_milli: u64,
    },
}

/// The smallest change that would let the job start now. For a job that can never start: the
/// smallest change after which it can. It is the first of the changes that were tried and suffice.
/// A resume or a short wait comes first, then an uncordoned node, then changes by the job's owner.
/// A larger quota follows, then changes at the cost of other jobs, a long wait, and new machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Change {
    /// Lower `scale.workers.min` to this number.
    LowerMinWorkers { to: u32 },
    /// Lower `resources.worker.gpus` to this number.
    LowerGpusPerWorker { to: u32 },
    /// Allow nodes with GPUs of this model, which the constraint excludes.
    AllowNodes {
        constraint: UnmetConstraint,
        gpu_model: String,
    },
    /// Raise the tenant's quota by this number of GPUs.
    RaiseQuota { by_gpus: u32 },
    /// Free or add this number of GPUs.
    AddGpus { gpus: u32 },
    /// Uncordon this node.
    UncordonNode { name: String },
    /// Resume the job.
    Resume,
    /// Raise the job's `priority` to this number; other jobs then make room at once. Members of its
    /// tenant may set it.
    RaisePriority {
        to: i32,
        /// Priority class of the job, whose range holds the number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
    },
    /// Pause or end this job of the same tenant.
    EndJob { job: JobId, name: String },
    /// Wait until about this time. By estimate, these jobs (of any tenant) have ended by then. If
    /// none are named, the job's time slice begins.
    Wait {
        until_unix_ms: i64,
        ended: Vec<JobId>,
    },
}

/// Longest wait, in milliseconds, that ranks before changes that a user or administrator must make.
pub const SHORT_WAIT_MS: i64 = 600_000;

impl Change {
    /// Whether the job starts only after other jobs have stopped or ended.
    #[must_use]
    pub fn makes_others_go(&self) -> bool {
        match self {
            Self::RaisePriority { .. } | Self::EndJob { .. } | Self::Wait { .. } => true,
            Self::Resume
            | Self::UncordonNode { .. }
            | Self::LowerMinWorkers { .. }
            | Self::LowerGpusPerWorker { .. }
            | Self::AllowNodes { .. }
            | Self::RaiseQuota { .. }
            | Self::AddGpus { .. } => false,
        }
    }

    /// Returns the rank of the change, the smallest change first:
    ///
    /// - 0 and 1: resume, a short wait;
    /// - 2: end of a temporary measure of an administrator;
    /// - 3 and 4: changes of this job by its owner;
    /// - 5: a grant of an administrator at no cost to other jobs;
    /// - 6 and 7: changes at the cost of other jobs;
    /// - 8: a long wait;
    /// - 9: new machines.
    #[must_use]
    pub fn rank(&self, now_unix_ms: i64) -> u32 {
        match self {
            Self::Resume => 0,
            Self::Wait { until_unix_ms, .. }
                if until_unix_ms.saturating_sub(now_unix_ms) <= SHORT_WAIT_MS =>
            {
                1
            }
            Self::UncordonNode { .. } => 2,
            Self::LowerMinWorkers { .. } => 3,
            Self::LowerGpusPerWorker { .. } | Self::AllowNodes { .. } => 4,
            Self::RaiseQuota { .. } => 5,
            Self::RaisePriority { .. } => 6,
            Self::EndJob { .. } => 7,
            Self::Wait { .. } => 8,
            Self::AddGpus { .. } => 9,
        }
    }
}

impl Waiting {
    /// Returns the remedy as text; `None` if only time helps.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match (&self.smallest_change, &self.why) {
            // Freed GPUs do not make the cluster larger.
            (Some(Change::AddGpus { gpus: added }), why) if why.is_for_good() => {
                Some(format!("add {}", text::gpus(*added)))
            }
            (Some(change), _) => Some(change.to_string()),
            (
                None,
                Wait::TopologyPlacementFailed {
                    short: Some(short), ..
                },
            ) => Some(short.remedy()),
            (
                None,
                Wait::WaitingForCpuAndMemory {
                    exceeds_cluster: true,
                    ..
                },
            ) => Some(
                "lower scale.workers, resources.worker.cpu_milli or resources.worker.memory_bytes, or add a node"
                    .to_owned(),
            ),
            (None, Wait::NoMatchingNodes { pods: true, .. }) => Some(
                "add a node whose tasks are pods, or take pull_secrets, secret_env and volumes of cluster objects out of pod in the job's document".to_owned(),
            ),
            (None, Wait::NoMatchingNodes { image: true, .. }) => Some(
                "let a node run images (`muster nodes` says why it cannot), or take pod.image out of the job's document"
                    .to_owned(),
            ),
            (None, _) => None,
        }
    }
}

impl Wait {
    /// Whether waiting does not help: the job, its tenant's quota or the cluster must change.
    #[must_use]
    pub fn is_for_good(&self) -> bool {
        match self {
            // If no node takes tasks, nodes may return soon.
            Self::NoMatchingNodes {
                largest_node_gpus,
                forbidden,
                ..
            } => *largest_node_gpus > 0 || !forbidden.is_empty(),
            Self::WaitingForCpuAndMemory {
                exceeds_cluster,
                nodes,
                ..
            } => *exceeds_cluster && *nodes > 0,
            Self::ExceedsMaxQuota { .. }
            | Self::ExceedsCluster { .. }
            | Self::TopologyPlacementFailed { short: Some(_), .. } => true,
            Self::NotConsidered
            | Self::BehindEarlierJobs { .. }
            | Self::WaitingForJobs { .. }
            | Self::WaitingForArray { .. }
            | Self::Suspended
            | Self::WaitingForQuota { .. }
            | Self::WaitingForGpus { .. }
            | Self::TopologyPlacementFailed { short: None, .. }
            | Self::WaitingForPreemptedWorkloads { .. }
            | Self::BackingOff { .. } => false,
        }
    }

    /// Returns the name of the reason in the style of Kubernetes conditions.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotConsidered => "NotConsidered",
            Self::BehindEarlierJobs { .. } => "BehindEarlierJobs",
            Self::WaitingForJobs { .. } => "WaitingForJobs",
            Self::WaitingForArray { .. } => "WaitingForArray",
            Self::Suspended => "Suspended",
            Self::WaitingForQuota { .. } => "WaitingForQuota",
            Self::ExceedsMaxQuota { .. } => "ExceedsMaxQuota",
            Self::NoMatchingNodes { .. } => "NoMatchingNodes",
            Self::ExceedsCluster { .. } => "ExceedsCluster",
            Self::WaitingForGpus { .. } => "WaitingForGpus",
            Self::WaitingForCpuAndMemory { .. } => "WaitingForCpuAndMemory",
            // No node is large enough, as in `NoMatchingNodes`.
            Self::TopologyPlacementFailed { short: Some(_), .. } => "NoMatchingNodes",
            Self::TopologyPlacementFailed { short: None, .. } => "TopologyPlacementFailed",
            Self::WaitingForPreemptedWorkloads { .. } => "WaitingForPreemptedWorkloads",
            Self::BackingOff { .. } => "BackingOff",
        }
    }
}

impl Short {
    /// Returns what the job's owner can do. It may not suffice: other tasks may use the same node.
    fn remedy(&self) -> String {
        match self {
            Self::Memory {
                largest_node_bytes, ..
            } => {
                format!("lower resources.worker.memory_bytes to {largest_node_bytes} or less")
            }
            Self::Cpu {
                largest_node_milli, ..
            } => {
                format!("lower resources.worker.cpu_milli to {largest_node_milli} or less")
            }
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_none(gpus: &u32) -> bool {
    *gpus == 0
}

#[cfg(test)]
mod tests {
    use super::{Change, ForbiddenGpus, Refused, UnmetConstraint, Wait, Waiting};

    fn waits_beside(needed_gpus: u32, (free_gpus, kept_gpus): (u32, u32), jobs: usize) -> String {
        let held_by = vec![crate::id::JobId(uuid::Uuid::nil()); jobs];
        let why = Wait::WaitingForGpus {
            needed_gpus,
            free_gpus,
            kept_gpus,
            occupied_gpus: 0,
            held_by,
            forbidden: Vec::new(),
        };
        why.to_string()
    }

    fn waits(needed_gpus: u32, free_gpus: u32, jobs: usize) -> String {
        waits_beside(needed_gpus, (free_gpus, 0), jobs)
    }

    #[test]
    fn counts_of_one_are_singular() {
        assert_eq!(
            waits_beside(1, (4, 4), 1),
            "needs 1 GPU, 4 are free, 4 of them kept for jobs that precede it; blocked by 1 job"
        );
        assert_eq!(waits(1, 0, 1), "needs 1 GPU, 0 are free; blocked by 1 job");
        assert_eq!(waits(8, 1, 2), "needs 8 GPUs, 1 is free; blocked by 2 jobs");
        let add = Change::AddGpus { gpus: 1 };
        assert_eq!(add.to_string(), "free or add 1 GPU");
    }

    #[test]
    fn raised_priority_names_the_class_of_the_job() {
        let raise = |class: Option<&str>| Change::RaisePriority {
            to: 6,
            class: class.map(str::to_owned),
        };
        assert_eq!(raise(None).to_string(), "raise its priority to 6");
        let named = "raise its priority to 6 (priority class urgent)";
        assert_eq!(raise(Some("urgent")).to_string(), named);
        // Older releases wrote it so, and it is still read.
        let before = r#"{"change":"raise_priority","to":6}"#;
        assert_eq!(serde_json::to_string(&raise(None)).expect("JSON"), before);
        let read: Change = serde_json::from_str(before).expect("a change");
        assert_eq!(read, raise(None));
    }

    #[test]
    fn left_out_job_names_how_many_jobs_are_considered() {
        let why = Wait::BehindEarlierJobs { considered: 1_000 };
        let written = r#"{"reason":"behind_earlier_jobs","considered":1000}"#;
        assert_eq!(serde_json::to_string(&why).expect("JSON"), written);
        assert_eq!(
            why.to_string(),
            "behind earlier jobs of its tenant: a round considers the first 1000 of them"
        );
        assert!(!why.is_for_good());
    }

    fn no_matching_nodes(needed_gpus_per_worker: u32, parts: bool, pods: bool) -> Wait {
        Wait::NoMatchingNodes {
            needed_gpus_per_worker,
            largest_node_gpus: needed_gpus_per_worker - 1,
            parts,
            pods,
            image: false,
            forbidden: Vec::new(),
        }
    }

    #[test]
    fn excluded_gpus_are_named_with_the_field() {
        let forbidden = |gpus| ForbiddenGpus {
            gpu_model: "NVIDIA H100".to_owned(),
            gpus,
            by: UnmetConstraint::GpuKinds,
        };
        let why = Wait::WaitingForGpus {
            needed_gpus: 1,
            free_gpus: 0,
            kept_gpus: 0,
            occupied_gpus: 0,
            held_by: vec![crate::id::JobId(uuid::Uuid::nil())],
            forbidden: vec![forbidden(2)],
        };
        assert_eq!(
            why.to_string(),
            "needs 1 GPU, 0 are free; blocked by 1 job; 2 free GPUs of model NVIDIA H100 are excluded by resources.worker.gpu_kinds"
        );
        let never = Wait::ExceedsCluster {
            needed_gpus: 4,
            cluster_gpus: 2,
            forbidden: vec![forbidden(1)],
        };
        assert_eq!(
            never.to_string(),
            "needs 4 GPUs; the nodes that it allows have 2; 1 GPU of model NVIDIA H100 is excluded by resources.worker.gpu_kinds"
        );
        let allow = Change::AllowNodes {
            constraint: UnmetConstraint::GpuKinds,
            gpu_model: "NVIDIA H100".to_owned(),
        };
        assert_eq!(
            allow.to_string(),
            "allow NVIDIA H100 in resources.worker.gpu_kinds"
        );
    }

    fn waiting(pods: bool) -> Waiting {
        Waiting {
            why: no_matching_nodes(1, false, pods),
            smallest_change: None,
            position: 1,
        }
    }

    #[test]
    fn remedy_for_a_job_without_pod_nodes_is_not_waiting() {
        let said = waiting(true).remedy().expect("no time brings them");
        assert!(said.contains("add a node whose tasks are pods"), "{said}");
        assert_eq!(waiting(false).remedy(), None);
        let mut in_image = waiting(false);
        if let Wait::NoMatchingNodes { image, .. } = &mut in_image.why {
            *image = true;
        }
        let said = in_image.remedy().expect("no time brings them");
        assert!(said.contains("let a node run images"), "{said}");
        let why = in_image.why.to_string();
        assert!(why.contains("on one node that can run images"), "{why}");
    }

    fn backing_off(refused: Option<Refused>) -> Wait {
        Wait::BackingOff {
            until_unix_ms: 1_764_000_061_500,
            refused,
        }
    }

    fn refused(times: u32) -> Option<Refused> {
        Some(Refused {
            node: "gpu-3".to_owned(),
            message: "OutOfcpu".to_owned(),
            times,
        })
    }

    #[test]
    fn back_off_text_names_node_count_and_time() {
        let said = backing_off(None).to_string();
        assert_eq!(said, "failed, and is tried again after a pause");
        // Older releases wrote it so, and it is still read.
        let before = r#"{"reason":"backing_off","until_unix_ms":1764000061500}"#;
        assert_eq!(
            serde_json::to_string(&backing_off(None)).expect("JSON"),
            before
        );
        let read: Wait = serde_json::from_str(before).expect("a reason");
        assert_eq!(read, backing_off(None));
        assert_eq!(
            backing_off(refused(1)).to_string(),
            "a node refused it (gpu-3: OutOfcpu); it is tried again at 16:01:01 UTC"
        );
        assert_eq!(
            backing_off(refused(3)).to_string(),
            "a node refused it (gpu-3: OutOfcpu), as nodes did 3 times in a row; it is tried again at 16:01:01 UTC"
        );
    }

    #[test]
    fn reason_mentions_gpu_parts_where_they_matter() {
        let plain = "each worker needs 2 GPUs on one node; the largest node has 1";
        assert_eq!(no_matching_nodes(2, false, false).to_string(), plain);
        let said = no_matching_nodes(2, true, false).to_string();
        assert!(said.starts_with(plain) && said.contains("MIG"), "{said}");
        // Older releases wrote it so; it is still written where `parts` does not matter.
        let before =
            r#"{"reason":"no_matching_nodes","needed_gpus_per_worker":2,"largest_node_gpus":1}"#;
        assert_eq!(
            serde_json::to_string(&no_matching_nodes(2, false, false)).expect("JSON"),
            before
        );
        let read: Wait = serde_json::from_str(before).expect("a reason");
        assert_eq!(read, no_matching_nodes(2, false, false));
    }
}
