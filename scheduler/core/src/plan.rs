//! Output of a round. A plan is complete: its execution needs no further decision.

use crate::planner::EstimateCache;
use crate::policy::Policy;
use crate::report::RoundReport;
use crate::snapshot::{ClusterSnapshot, StaleWait};
use muster_model::id::{JobId, NodeId, TaskId};
use muster_model::job::{AfterStop, Charge, JobEvent, RequeueCause};
use muster_model::pace::Suspect;
use muster_model::task::Role;
use muster_model::verdict::Verdict;
use muster_model::wait::Waiting;
use serde::{Deserialize, Serialize};

/// Changes of one round. Decisions for the same job apply in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundPlan {
    pub decisions: Vec<JobDecision>,
    /// Nodes that take no new tasks from now on; this plan places none there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<NodeDecision>,
    /// Wait reasons of jobs that the round does not consider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<RemainderWait>,
}

/// Wait reason of queued jobs of one tenant behind those that the round considers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemainderWait {
    pub waiting: Waiting,
    pub jobs: Vec<StaleWait>,
}

/// A node that is excluded from new tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeDecision {
    pub node: NodeId,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobDecision {
    pub job: JobId,
    /// Revision of the job in the snapshot, for compare-and-set.
    pub expected_revision: u64,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Action {
    /// Starts a new revision with these tasks.
    Start {
        tasks: Vec<PlannedTask>,
        why: String,
        /// Whether the GPUs are reserved for another job's time slice, to which this job yields.
        #[serde(default, skip_serializing_if = "is_false")]
        lent: bool,
    },
    /// Starts a new revision in which the remaining tasks continue without a restart. Rank 0, the
    /// coordinator, always remains.
    Resize {
        /// Tasks to stop; tasks that have already ended only leave the task set.
        leave: Vec<TaskId>,
        join: Vec<PlannedTask>,
        why: String,
        #[serde(rename = "charge_failure")]
        charge: Charge,
    },
    /// Every task of the present revision is up.
    Up,
    /// Suspends all workers; each holds its GPUs until it has reported the suspension.
    Suspend {
        why: String,
    },
    /// Resumes all workers on their own GPUs.
    Continue {
        why: String,
        /// Host on the same GPU, beside which this job runs as a guest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beside: Option<JobId>,
        /// Whether the GPUs are reserved for another job's time slice, to which this job yields.
        #[serde(default, skip_serializing_if = "is_false")]
        lent: bool,
    },
    Stop {
        then: AfterStop,
        why: String,
        #[serde(rename = "charge_failure")]
        charge: Charge,
        not_before_ms: Option<i64>,
    },
    /// Counts these tasks as refused by their nodes, which did not start them in time. The nodes
    /// are charged with a fault.
    GiveUp {
        tasks: Vec<TaskId>,
        why: String,
    },
    /// The last task has ended.
    Release,
    Hold,
    Resume,
    Cancel,
    /// Records a verdict on a rank that delays the others; the remedy follows as other decisions.
    Judge {
        verdict: Verdict,
    },
    /// Replaces the job's suspected ranks.
    Suspect {
        suspects: Vec<Suspect>,
    },
    /// Sets the wait reason that the owner sees; planned only if it differs from the present one.
    Wait {
        waiting: Waiting,
    },
}

/// A task to create; the commit of the plan gives it an id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedTask {
    pub role: Role,
    pub node: NodeId,
    pub gpus: Vec<u32>,
}

/// Plans one round. The same snapshot and policy give the same bytes.
#[must_use]
pub fn plan(snapshot: &ClusterSnapshot, policy: &Policy) -> (RoundPlan, RoundReport) {
    crate::planner::plan_round(snapshot, policy)
}

/// Plans one round with the estimates of the last one. They shorten the computation and do not
/// change the result.
#[must_use]
pub fn plan_again(
    snapshot: &ClusterSnapshot,
    policy: &Policy,
    memory: &mut EstimateCache,
) -> (RoundPlan, RoundReport) {
    crate::planner::plan_round_with_cache(snapshot, policy, memory)
}

impl RoundPlan {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.decisions.is_empty() && self.excluded.is_empty() && self.behind.is_empty()
    }
}

impl Action {
    /// Stop of a job that returns to the queue and is not charged for it.
    pub(crate) fn requeue(cause: RequeueCause, why: String) -> Self {
        Self::Stop {
            then: AfterStop::Requeue { cause },
            why,
            charge: Charge::None,
            not_before_ms: None,
        }
    }

    /// Event for the job's state machine; `None` if the state does not change.
    #[must_use]
    pub fn event(&self) -> Option<JobEvent> {
        match self {
            Self::Start { .. } => Some(JobEvent::Start),
            Self::Resize { .. } => Some(JobEvent::Resize),
            Self::Up => Some(JobEvent::AllRunning),
            Self::Suspend { .. } => Some(JobEvent::Suspend),
            Self::Continue { .. } => Some(JobEvent::Continue),
            Self::Stop { then, .. } => Some(JobEvent::Stop { then: then.clone() }),
            Self::Release => Some(JobEvent::Released),
            Self::Hold => Some(JobEvent::Hold),
            Self::Resume => Some(JobEvent::Resume),
            Self::Cancel => Some(JobEvent::Cancel),
            Self::GiveUp { .. } | Self::Judge { .. } | Self::Suspect { .. } | Self::Wait { .. } => {
                None
            }
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}
