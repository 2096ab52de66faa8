//! A plan: complete, so that whoever carries it out has no choices left.

use crate::live::Memory;
use crate::policy::Policy;
use crate::report::RoundReport;
use crate::snapshot::{Snapshot, Untold};
use muster_model::id::{JobId, NodeId, TaskId};
use muster_model::job::{AfterStop, Charge, JobEvent};
use muster_model::pace::Suspect;
use muster_model::task::Role;
use muster_model::verdict::Verdict;
use muster_model::wait::Waiting;
use serde::{Deserialize, Serialize};

/// What one round changes. Decisions for one job follow each other in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub decisions: Vec<Decision>,
    /// Nodes that take no new tasks from now on, and none of this plan's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<NodeDecision>,
    /// What is written as the reason of jobs that the round does not consider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Behind>,
}

/// The reason of queued jobs of one tenant that stand behind those which the round considers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Behind {
    pub waiting: Waiting,
    pub jobs: Vec<Untold>,
}

/// A node that is closed for new tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeDecision {
    pub node: NodeId,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    pub job: JobId,
    /// The job's revision in the snapshot, for compare-and-set.
    pub expected_revision: u64,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Action {
    /// A new revision with these tasks.
    Start {
        tasks: Vec<PlannedTask>,
        why: String,
        /// On GPUs that are kept for another job's turn, to which it yields.
        #[serde(default, skip_serializing_if = "is_false")]
        lent: bool,
    },
    /// A new revision in which the other tasks train on without a restart. Rank 0, the chief, always does.
    Resize {
        /// Tasks that are told to stop; those of them that are gone already are only no longer counted on.
        leave: Vec<TaskId>,
        join: Vec<PlannedTask>,
        why: String,
        #[serde(rename = "charge_failure")]
        charge: Charge,
    },
    /// Every task of the present revision is up.
    Up,
    /// All workers are told to stand still; each holds its GPUs until it does.
    Suspend {
        why: String,
    },
    /// All workers get the GPUs again that they had, and go on.
    Continue {
        why: String,
        /// The job that holds them, beside which this one goes on as a guest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beside: Option<JobId>,
        /// On GPUs that are kept for another job's turn, to which it yields.
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
    /// These tasks count as refused by their nodes, which have not started them in time and are charged with it.
    GiveUp {
        tasks: Vec<TaskId>,
        why: String,
    },
    /// The last task is gone.
    Release,
    Hold,
    Resume,
    Cancel,
    /// One of its ranks holds the others up; what is done about it comes after.
    Judge {
        verdict: Verdict,
    },
    /// These ranks look so, in place of those before.
    Suspect {
        suspects: Vec<Suspect>,
    },
    /// Tell the owner why the job does not run; given only when it differs from what is told now.
    Wait {
        waiting: Waiting,
    },
}

/// A task to be; its id is made by whoever commits the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedTask {
    pub role: Role,
    pub node: NodeId,
    pub gpus: Vec<u32>,
}

/// Plans one round: the same snapshot and policy give the same bytes.
#[must_use]
pub fn plan(snapshot: &Snapshot, policy: &Policy) -> (Plan, RoundReport) {
    crate::live::run(snapshot, policy)
}

/// The same with what the last round has estimated, which changes the time that it takes and nothing else.
#[must_use]
pub fn plan_again(
    snapshot: &Snapshot,
    policy: &Policy,
    memory: &mut Memory,
) -> (Plan, RoundReport) {
    crate::live::run_again(snapshot, policy, memory)
}

impl Plan {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.decisions.is_empty() && self.excluded.is_empty() && self.behind.is_empty()
    }
}

impl Action {
    /// What the job's state is told; `None` when the state stays as it is.
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
