//! Plan of a scheduling round, and what its actions do to jobs and tasks. A plan is complete: its
//! execution needs no further decision.
//!
//! The planner builds plans. The store commits them to rows, and simulations apply them to
//! snapshots. Both use [`JobRecord::apply`] and [`Action::task_event`].

mod predicted_batch;
mod preemption;
mod record;

pub use predicted_batch::PredictedBatch;
pub use preemption::PreemptionCost;
pub use record::{JobRecord, RecordTime};

use crate::id::{JobId, NodeId, TaskId};
use crate::idle::IdleFinding;
use crate::job::{AfterStop, Charge, JobEvent, RequeueCause};
use crate::pace::Suspect;
use crate::task::{Outcome, Role, TaskEvent};
use crate::verdict::Verdict;
use crate::wait::Waiting;
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

/// A job outside of the snapshot whose wait reason is out of date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaleWait {
    pub job: JobId,
    /// Revision of the job, for compare-and-set.
    pub revision: u64,
}

/// A node that is excluded from new tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeDecision {
    pub node: NodeId,
    pub why: String,
}

/// One action on one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobDecision {
    pub job: JobId,
    /// Revision of the job in the snapshot, for compare-and-set.
    pub expected_revision: u64,
    pub action: Action,
}

/// Element of a plan.
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
        /// Earliest time of the next start, Unix ms.
        not_before_ms: Option<i64>,
    },
    /// Counts these tasks as refused by their nodes, which did not start them in time. The nodes
    /// are charged with a fault. Tasks that have started meanwhile stay.
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
    /// Records what the stop that follows for another job costs.
    Displace {
        cost: PreemptionCost,
    },
    /// Replaces the job's suspected ranks.
    Suspect {
        suspects: Vec<Suspect>,
    },
    /// Tells the owner that the job is idle, or that it is active again (`None`).
    Idle {
        idle: Option<IdleFinding>,
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

impl RoundPlan {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.decisions.is_empty() && self.excluded.is_empty() && self.behind.is_empty()
    }
}

impl RemainderWait {
    /// The same as decisions about single jobs.
    pub fn decisions(&self) -> impl Iterator<Item = JobDecision> {
        self.jobs.iter().map(|stale| JobDecision {
            job: stale.job,
            expected_revision: stale.revision,
            action: Action::Wait {
                waiting: self.waiting.clone(),
            },
        })
    }
}

impl Action {
    /// Stop of a job that returns to the queue and is not charged for it.
    #[must_use]
    pub fn requeue(cause: RequeueCause, why: String) -> Self {
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
            Self::GiveUp { .. }
            | Self::Judge { .. }
            | Self::Displace { .. }
            | Self::Suspect { .. }
            | Self::Idle { .. }
            | Self::Wait { .. } => None,
        }
    }

    /// Event for the state machine of one of the job's tasks; `None` if its state does not change.
    /// A state may refuse the event; the task then stays as it is.
    ///
    /// PS shards hold no GPU and block while the workers are suspended.
    #[must_use]
    pub fn task_event(&self, task: TaskId, role: Role) -> Option<TaskEvent> {
        let is_worker = matches!(role, Role::Worker { .. });
        match self {
            Self::Stop { .. } => Some(TaskEvent::Stop),
            Self::Resize { leave, .. } => leave.contains(&task).then_some(TaskEvent::Stop),
            Self::Suspend { .. } => is_worker.then_some(TaskEvent::Suspend),
            Self::Continue { .. } => is_worker.then_some(TaskEvent::Continue),
            Self::GiveUp { tasks, why } => tasks.contains(&task).then(|| TaskEvent::Gone {
                outcome: Outcome::refused(why.clone()),
            }),
            Self::Start { .. }
            | Self::Up
            | Self::Release
            | Self::Hold
            | Self::Resume
            | Self::Cancel
            | Self::Judge { .. }
            | Self::Displace { .. }
            | Self::Suspect { .. }
            | Self::Idle { .. }
            | Self::Wait { .. } => None,
        }
    }

    /// Tasks to create; `None` if the action begins no revision.
    #[must_use]
    pub fn new_tasks(&self) -> Option<&[PlannedTask]> {
        match self {
            Self::Start { tasks, .. } | Self::Resize { join: tasks, .. } => Some(tasks),
            _ => None,
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::RoundPlan;

    /// Stored rounds contain plans, and replays read them.
    #[test]
    fn stored_form_of_plans_does_not_change() {
        let job = r#""job":"00000000-0000-0000-0000-000000000001","#;
        let id = "00000000-0000-0000-0000-000000000002";
        let actions = [
            format!(
                r#"{{"kind":"start","tasks":[{{"role":{{"kind":"worker","rank":0}},"node":"{id}","gpus":[1]}}],"why":"a"}}"#
            ),
            format!(
                r#"{{"kind":"resize","leave":["{id}"],"join":[],"why":"b","charge_failure":true}}"#
            ),
            r#"{"kind":"up"}"#.to_owned(),
            r#"{"kind":"suspend","why":"c"}"#.to_owned(),
            format!(r#"{{"kind":"continue","why":"d","beside":"{id}","lent":true}}"#),
            r#"{"kind":"stop","then":{"kind":"pause"},"why":"e","charge_failure":"refusal","not_before_ms":null}"#
                .to_owned(),
            format!(r#"{{"kind":"give_up","tasks":["{id}"],"why":"f"}}"#),
            r#"{"kind":"release"}"#.to_owned(),
            format!(
                r#"{{"kind":"displace","cost":{{"borne_by":"{id}","gainer":"{id}","gained_by":"{id}","gpus":2,"work_ms":3,"restart_ms":4,"gain_gpu_ms":5}}}}"#
            ),
            r#"{"kind":"suspect","suspects":[]}"#.to_owned(),
        ];
        let decisions =
            actions.map(|action| format!(r#"{{{job}"expected_revision":3,"action":{action}}}"#));
        let stored = format!(
            r#"{{"decisions":[{}],"excluded":[{{"node":"{id}","why":"g"}}]}}"#,
            decisions.join(",")
        );
        let plan: RoundPlan = serde_json::from_str(&stored).expect("a plan");
        assert_eq!(serde_json::to_string(&plan).expect("JSON"), stored);
    }
}
