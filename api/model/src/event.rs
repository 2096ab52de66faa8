//! The append-only history: every change of a job, task or node, for users, the web page and
//! audits.

mod text;

pub use text::EventText;

use crate::actor::Actor;
use crate::checkpoint::{RequestResult, Written};
use crate::fault::NodeFault;
use crate::id::{JobId, NodeId, RemoteSessionId, TaskId};
use crate::idle::IdleFinding;
use crate::job::{AfterStop, Intent, JobPhase, JobState};
use crate::node::{NodeState, Notice};
use crate::progress::Split;
use crate::remote::{RemoteAction, RemoteEnd};
use crate::schedule::ScheduleChange;
use crate::spec::Range;
use crate::task::{Role, TaskState};
use crate::verdict::Verdict;
use crate::wait::Waiting;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use time::OffsetDateTime;

/// Entry of the history. It is stored as JSON with the tenant, the job, the time and a sequence
/// number.
// An event of an unknown kind or shape is read as `Unknown`. During a rolling upgrade, old pods
// read events of new pods; such an event must not end a stream or fail a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", remote = "Self")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Event {
    JobSubmitted {
        name: String,
    },
    /// A user changed the intent of the job; the state follows in the next round.
    IntentChanged {
        intent: Intent,
        /// Author; absent if a study did it, and in histories of older releases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
    /// A user changed the job's document; these are the new values.
    JobEdited {
        edits: u64,
        workers: Range,
        /// Absent if the job has no shards, and in histories of older releases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ps_shards: Option<Range>,
        priority: i32,
        /// Priority class; absent if the job has none, and in histories of older releases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority_class: Option<String>,
        /// Priority class before, if the change replaced or removed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        former_priority_class: Option<String>,
        /// Author; absent if a study did it, and in histories of older releases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
    JobStateChanged {
        state: JobState,
        revision: u64,
    },
    /// A round decided the size and the nodes of the job.
    JobPlaced {
        revision: u64,
        workers: u32,
        ps_shards: u32,
        nodes: Vec<String>,
        why: String,
    },
    /// A round stops the job.
    JobStopRequested {
        then: AfterStop,
        why: String,
        /// Maximum seconds for which the job's program is first asked for a checkpoint; absent if
        /// it is not asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asks_s: Option<u32>,
    },
    /// The request for a checkpoint before a stop has ended.
    CheckpointRequestEnded {
        result: RequestResult,
        waited_ms: u64,
    },
    /// A round suspends the job's workers, or resumes them.
    JobTurned {
        suspended: bool,
        why: String,
    },
    JobWaits {
        waiting: Waiting,
    },
    TaskStateChanged {
        task_id: TaskId,
        role: Role,
        node_id: NodeId,
        state: TaskState,
    },
    /// A task failed; `message` is its own.
    TaskFailed {
        task_id: TaskId,
        role: Role,
        message: String,
    },
    Resumed {
        from_step: u64,
    },
    /// The job continues with another number of workers or shards. The remaining tasks did not
    /// restart.
    Resized {
        step: u64,
        workers: u32,
        ps_shards: u32,
        pause_ms: u64,
    },
    /// The connection to a task ended without a goodbye, and the other tasks continue without it.
    PeerGone {
        task_id: TaskId,
        step: u64,
    },
    /// A rank held up the others: the evidence and the remedy.
    RankJudged {
        verdict: Verdict,
    },
    /// All tasks of a running job are idle: the evidence, and what follows.
    JobIdle {
        finding: IdleFinding,
    },
    /// The job is active again after `JobIdle`.
    JobActive {},
    CheckpointWritten {
        checkpoint: Written,
    },
    CheckpointPruned {
        step: u64,
    },
    Evaluated {
        step: u64,
        epoch: f64,
        #[serde(default)]
        split: Split,
        /// Null if the program does not log it.
        #[cfg_attr(feature = "schema", schema(required = true))]
        loss: Option<f64>,
        /// Null if the program does not log it.
        #[cfg_attr(feature = "schema", schema(required = true))]
        accuracy: Option<f64>,
    },
    TrainingFinished {
        step: u64,
        reason: String,
        model_path: String,
    },
    Note {
        message: String,
    },
    NodeStateChanged {
        name: String,
        state: NodeState,
    },
    NodeDrained {
        name: String,
        drained: bool,
    },
    /// A fault that is charged to the node.
    NodeFaulted {
        name: String,
        fault: NodeFault,
    },
    /// The node takes no new tasks from now on, for this reason, or takes tasks again.
    NodeExcluded {
        name: String,
        excluded: bool,
        why: String,
    },
    /// The cluster manager (such as Kubernetes) reported this about the machine.
    NodeNoticed {
        name: String,
        notice: Notice,
    },
    /// The membership of a node has changed.
    NodeMembership {
        name: String,
        change: MembershipChange,
        /// An administrator; absent if an executor did it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
    /// A secret was created or replaced.
    SecretSet {
        name: String,
        version: u64,
        by: Actor,
    },
    /// A secret was deleted; this was its last version.
    SecretDeleted {
        name: String,
        version: u64,
        by: Actor,
    },
    /// A template was created or replaced.
    TemplateSet {
        name: String,
        version: u64,
        by: Actor,
    },
    /// A template was deleted; this was its last version.
    TemplateDeleted {
        name: String,
        version: u64,
        by: Actor,
    },
    /// A user stored, paused, resumed or deleted a schedule, or it was paused because its owner has
    /// no valid token.
    ScheduleChanged {
        name: String,
        change: ScheduleChange,
        /// Author; absent if the API server paused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
    /// A schedule submitted the job.
    JobScheduled {
        schedule: String,
        /// The planned time; absent if a user ran the schedule at once.
        #[serde(
            default,
            with = "time::serde::rfc3339::option",
            skip_serializing_if = "Option::is_none"
        )]
        planned_at: Option<OffsetDateTime>,
    },
    /// A schedule submitted no job at a planned time.
    ScheduleSkipped {
        name: String,
        #[serde(with = "time::serde::rfc3339")]
        planned_at: OffsetDateTime,
        reason: String,
    },
    /// A job that must succeed before this one starts has ended without success. This job is
    /// cancelled.
    AfterFailed {
        job_id: JobId,
        name: String,
        phase: JobPhase,
    },
    /// A user opened a remote session in a task.
    RemoteSessionOpened {
        session: RemoteSessionId,
        role: Role,
        action: RemoteAction,
        by: Actor,
    },
    /// A remote session ended.
    RemoteSessionEnded {
        session: RemoteSessionId,
        role: Role,
        end: RemoteEnd,
        duration_ms: u64,
        /// Bytes of input for the program, or for the port.
        input_bytes: u64,
        /// Bytes of output, with those of standard error.
        output_bytes: u64,
        by: Actor,
    },
    /// A remote session connected to a port of a task, and has ended. Browsers open many.
    PortConnectionEnded {
        session: RemoteSessionId,
        role: Role,
        port: u16,
        end: RemoteEnd,
        duration_ms: u64,
        input_bytes: u64,
        output_bytes: u64,
        by: Actor,
    },
    JobDeleted {
        job_id: JobId,
        /// Author; absent if a study did it, and in histories of older releases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
    /// Event of a kind that this release does not know, with its original body. Never written.
    Unknown {
        of: String,
        #[cfg_attr(feature = "schema", schema(value_type = Object))]
        body: Map<String, Value>,
    },
}

/// Change of a node's membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum MembershipChange {
    /// A one-time join token was created for the node.
    JoinTokenMade,
    /// The node's credential was reset. The next executor that joins under its name gets a new one.
    CredentialReset,
    /// An executor with another credential replaced the node's executor.
    Replaced,
    Removed,
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut body = Map::deserialize(deserializer)?;
        if let Ok(known) = Self::deserialize(Value::Object(body.clone())) {
            return Ok(known);
        }
        match body.remove("kind") {
            Some(Value::String(of)) => Ok(Self::Unknown { of, body }),
            _ => Err(D::Error::missing_field("kind")),
        }
    }
}

/// Kinds of which a long job has hundreds and that decide nothing. Histories leave them out unless
/// all kinds are requested.
pub const ROUTINE: [&str; 5] = [
    "port_connection_ended",
    "task_state_changed",
    "checkpoint_written",
    "checkpoint_pruned",
    "evaluated",
];

impl Event {
    /// Whether the event is of a routine kind.
    #[must_use]
    pub fn is_routine(&self) -> bool {
        ROUTINE.contains(&self.kind())
    }

    /// Returns the stable name of the kind for streams and filters.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::JobSubmitted { .. } => "job_submitted",
            Self::IntentChanged { .. } => "intent_changed",
            Self::JobEdited { .. } => "job_edited",
            Self::JobStateChanged { .. } => "job_state_changed",
            Self::JobPlaced { .. } => "job_placed",
            Self::JobStopRequested { .. } => "job_stop_requested",
            Self::CheckpointRequestEnded { .. } => "checkpoint_request_ended",
            Self::JobTurned { .. } => "job_turned",
            Self::JobWaits { .. } => "job_waits",
            Self::TaskStateChanged { .. } => "task_state_changed",
            Self::TaskFailed { .. } => "task_failed",
            Self::Resumed { .. } => "resumed",
            Self::Resized { .. } => "resized",
            Self::PeerGone { .. } => "peer_gone",
            Self::RankJudged { .. } => "rank_judged",
            Self::JobIdle { .. } => "job_idle",
            Self::JobActive {} => "job_active",
            Self::CheckpointWritten { .. } => "checkpoint_written",
            Self::CheckpointPruned { .. } => "checkpoint_pruned",
            Self::Evaluated { .. } => "evaluated",
            Self::TrainingFinished { .. } => "training_finished",
            Self::Note { .. } => "note",
            Self::NodeStateChanged { .. } => "node_state_changed",
            Self::NodeDrained { .. } => "node_drained",
            Self::NodeFaulted { .. } => "node_faulted",
            Self::NodeExcluded { .. } => "node_excluded",
            Self::NodeNoticed { .. } => "node_noticed",
            Self::NodeMembership { .. } => "node_membership",
            Self::SecretSet { .. } => "secret_set",
            Self::SecretDeleted { .. } => "secret_deleted",
            Self::TemplateSet { .. } => "template_set",
            Self::TemplateDeleted { .. } => "template_deleted",
            Self::ScheduleChanged { .. } => "schedule_changed",
            Self::JobScheduled { .. } => "job_scheduled",
            Self::ScheduleSkipped { .. } => "schedule_skipped",
            Self::AfterFailed { .. } => "after_failed",
            Self::RemoteSessionOpened { .. } => "remote_session_opened",
            Self::RemoteSessionEnded { .. } => "remote_session_ended",
            Self::PortConnectionEnded { .. } => "port_connection_ended",
            Self::JobDeleted { .. } => "job_deleted",
            Self::Unknown { .. } => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn event_of_later_release_is_read_as_unknown() {
        let later = json!({ "kind": "job_cloned", "into": 3 });
        let event: Event = serde_json::from_value(later).expect("readers take it");
        let Value::Object(body) = json!({ "into": 3 }) else {
            unreachable!("it is written so");
        };
        let of = "job_cloned".to_owned();
        assert_eq!(event, Event::Unknown { of, body });
        let told = serde_json::to_value(&event).expect("JSON");
        assert_eq!(
            told,
            json!({ "kind": "unknown", "of": "job_cloned", "body": { "into": 3 } })
        );
        let again: Event = serde_json::from_value(told).expect("a client reads it");
        assert_eq!(again, event);
        serde_json::from_value::<Event>(json!({ "into": 3 })).expect_err("it has no kind");
    }

    #[test]
    fn known_event_survives_a_round_trip() {
        let event = Event::Note {
            message: "x".to_owned(),
        };
        let told = serde_json::to_value(&event).expect("JSON");
        assert_eq!(told, json!({ "kind": "note", "message": "x" }));
        let again: Event = serde_json::from_value(told).expect("it was written so");
        assert_eq!(again, event);
    }
}
