//! Events as text. The API sends it with each event; the command line and the web page print it.

use super::{Event, MembershipChange};
use crate::actor::Actor;
use crate::checkpoint::RequestResult;
use crate::job::{AfterStop, Intent, JobState, RequeueCause};
use crate::node::{Closed, NodeState};
use crate::progress::measures;
use crate::task::TaskState;
use crate::text::plural;
use crate::wait::Waiting;
use std::collections::BTreeSet;
use std::fmt;
use time::{OffsetDateTime, UtcOffset};

/// Longest list of nodes that is given in full.
const NODES: usize = 4;

/// An event in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventText {
    /// What happened, without a period.
    pub message: String,
    /// The reason, or what follows from the event. It begins in lower case, so that it can follow
    /// the message on the same line.
    pub detail: Option<String>,
}

impl fmt::Display for EventText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.detail {
            Some(detail) => write!(f, "; {detail}"),
            None => Ok(()),
        }
    }
}

impl Event {
    /// Returns the event as text.
    #[must_use]
    pub fn text(&self) -> EventText {
        EventText {
            message: self.message(),
            detail: self.detail(),
        }
    }

    fn message(&self) -> String {
        match self {
            Self::JobSubmitted { name } => format!("Submitted as {name}"),
            Self::IntentChanged { intent, by } => {
                let by = by.as_ref().map_or("A user".to_owned(), Actor::to_string);
                format!("{by} asked to {} it", asked(*intent))
            }
            Self::JobEdited {
                workers,
                ps_shards,
                priority,
                priority_class,
                former_priority_class,
                by,
                ..
            } => {
                let shards = ps_shards.map_or_else(String::new, |range| {
                    format!(", {} to {} PS shards", range.min, range.max)
                });
                let class = in_class(priority_class.as_deref(), former_priority_class.as_deref());
                format!(
                    "Changed{}: {} to {} workers{shards}, priority {priority}{class}",
                    by_whom(by.as_ref()),
                    workers.min,
                    workers.max,
                )
            }
            Self::JobStateChanged { state, .. } => of_job(state),
            Self::JobPlaced {
                revision,
                workers,
                ps_shards,
                nodes,
                ..
            } => format!(
                "Placed: {} on {} (revision {revision})",
                size(*workers, *ps_shards),
                listed(nodes)
            ),
            Self::JobStopRequested { then, asks_s, .. } => {
                let asks = asks_s.map_or_else(String::new, |seconds| {
                    format!("; its program has up to {seconds} s for a checkpoint first")
                });
                format!("Stop requested, {}{asks}", after_stop(then))
            }
            Self::CheckpointRequestEnded { result, waited_ms } => {
                request_ended(*result, *waited_ms)
            }
            Self::JobTurned { suspended, .. } => {
                let message = if *suspended { "Suspending" } else { "Resuming" };
                message.to_owned()
            }
            Self::JobWaits { waiting } => format!("Waits: {}", waiting.why),
            Self::TaskStateChanged { role, state, .. } => {
                let what = match state {
                    TaskState::Assigned => "is assigned to its node",
                    TaskState::Running => "is running",
                    TaskState::Suspending => "is asked to suspend",
                    TaskState::Suspended => "is suspended",
                    TaskState::Stopping | TaskState::Ending => "is asked to stop",
                    TaskState::Released { outcome } => return format!("{role} {outcome}"),
                };
                format!("{role} {what}")
            }
            Self::TaskFailed { role, .. } => format!("{role} failed"),
            Self::Resumed { from_step: 0 } => "Training starts at step 0".to_owned(),
            Self::Resumed { from_step } => format!("Training continues from step {from_step}"),
            Self::Resized {
                step,
                workers,
                ps_shards,
                ..
            } => format!(
                "Continues from step {step} with {}",
                size(*workers, *ps_shards)
            ),
            Self::PeerGone { step, .. } => {
                format!("A task was lost in step {step}; the others continue")
            }
            Self::RankJudged { verdict } => {
                format!("{} on {} {}", verdict.role, verdict.node, verdict.finding)
            }
            Self::JobIdle { finding } => finding.to_string(),
            Self::JobActive {} => "Active again".to_owned(),
            Self::CheckpointWritten { checkpoint } => {
                format!("Checkpoint of step {} written", checkpoint.step)
            }
            Self::CheckpointPruned { step } => format!("Checkpoint of step {step} pruned"),
            Self::Evaluated {
                step,
                epoch,
                split,
                loss,
                accuracy,
            } => {
                let epoch = (*epoch > 0.0).then(|| format!(" (epoch {epoch:.0})"));
                format!(
                    "Evaluated at step {step}{}: {}",
                    epoch.unwrap_or_default(),
                    measures(*split, *loss, *accuracy)
                )
            }
            Self::TrainingFinished { step, .. } => format!("Training finished at step {step}"),
            Self::Note { message } => message.clone(),
            Self::NodeStateChanged { name, state } => match state {
                NodeState::Up => format!("Node {name} is up"),
                NodeState::Lost => format!("Node {name} is lost"),
            },
            Self::NodeDrained { name, drained } => {
                if *drained {
                    format!("Node {name} is drained")
                } else {
                    format!("Node {name} takes tasks again")
                }
            }
            Self::NodeFaulted { name, fault } => format!("On node {name}: {fault}"),
            Self::NodeExcluded { name, excluded, .. } => {
                if *excluded {
                    format!("Node {name} takes no new tasks")
                } else {
                    format!("Node {name} takes tasks again")
                }
            }
            Self::NodeNoticed { name, notice } => match notice.closed {
                Closed::Open => format!("Node {name} is not cordoned by its cluster any more"),
                Closed::ToNew => format!("Node {name} is cordoned by its cluster"),
                Closed::ToAll => format!("Node {name} is drained by its cluster"),
            },
            Self::NodeMembership { name, change, by } => membership(name, *change, by.as_ref()),
            Self::SecretSet { name, version, by } => {
                format!(
                    "Version {version} of secret {name} stored{}",
                    by_whom(Some(by))
                )
            }
            Self::SecretDeleted { name, by, .. } => {
                format!("Secret {name} deleted{}", by_whom(Some(by)))
            }
            Self::TemplateSet { name, version, by } => {
                format!(
                    "Version {version} of template {name} stored{}",
                    by_whom(Some(by))
                )
            }
            Self::TemplateDeleted { name, by, .. } => {
                format!("Template {name} deleted{}", by_whom(Some(by)))
            }
            Self::ScheduleChanged { name, change, by } => {
                format!(
                    "Schedule {name} {}{}",
                    change.as_str(),
                    by_whom(by.as_ref())
                )
            }
            Self::JobScheduled {
                schedule,
                planned_at,
            } => match planned_at {
                Some(at) => format!("Submitted by schedule {schedule} for {}", minute(*at)),
                None => format!("Submitted by schedule {schedule} at a user's request"),
            },
            Self::ScheduleSkipped {
                name, planned_at, ..
            } => format!(
                "Schedule {name} submitted no job for {}",
                minute(*planned_at)
            ),
            Self::AfterFailed {
                job_id,
                name,
                phase,
            } => format!(
                "Cancelled, because it starts only after the success of job {name} ({job_id}), which is {}",
                phase.as_str()
            ),
            Self::RemoteSessionOpened {
                role, action, by, ..
            } => format!("{by} opened a session in {role}: {action}"),
            Self::RemoteSessionEnded { role, end, by, .. } => {
                format!("Session of {by} in {role} ended: {end}")
            }
            Self::PortConnectionEnded {
                role,
                port,
                end,
                by,
                ..
            } => format!("Connection of {by} to port {port} of {role} ended: {end}"),
            Self::JobDeleted { job_id, by } => {
                format!("Job {job_id} deleted{}", by_whom(by.as_ref()))
            }
            Self::Unknown { of, .. } => format!("An event of another release: {of}"),
        }
    }

    fn detail(&self) -> Option<String> {
        match self {
            Self::JobStateChanged {
                state: JobState::Failed { reason },
                ..
            } => Some(reason.clone()),
            // The reason of a failure usually begins with `why`.
            Self::JobStopRequested {
                then: AfterStop::Fail { reason },
                why,
                ..
            } => Some(if reason.starts_with(why.as_str()) {
                reason.clone()
            } else {
                format!("{reason}; {why}")
            }),
            Self::JobPlaced { why, .. }
            | Self::JobStopRequested { why, .. }
            | Self::JobTurned { why, .. }
            | Self::NodeExcluded { why, .. }
            | Self::ScheduleSkipped { reason: why, .. } => Some(why.clone()),
            Self::JobWaits { waiting } => {
                let remedy = waiting.remedy();
                remedy.map(|change| format!("{}: {change}", to_start(waiting)))
            }
            Self::TaskFailed { message, .. } => Some(message.clone()),
            Self::Resized { pause_ms, .. } => Some(format!("no restart, a pause of {pause_ms} ms")),
            Self::PeerGone { task_id, .. } => Some(format!("task {task_id}")),
            Self::RankJudged { verdict } => Some(verdict.remedy.to_string()),
            Self::JobIdle { finding } => Some(finding.consequence()),
            Self::TrainingFinished {
                reason, model_path, ..
            } if !model_path.is_empty() => Some(format!("{reason}; model in {model_path}")),
            Self::TrainingFinished { reason, .. } => Some(reason.clone()),
            Self::NodeNoticed { notice, .. } if notice.closed != Closed::Open => {
                Some(notice.why.clone())
            }
            Self::PortConnectionEnded {
                duration_ms,
                input_bytes,
                output_bytes,
                ..
            }
            | Self::RemoteSessionEnded {
                duration_ms,
                input_bytes,
                output_bytes,
                ..
            } => {
                let seconds = std::time::Duration::from_millis(*duration_ms).as_secs_f64();
                Some(format!(
                    "{seconds:.1} s, {input_bytes} bytes of input, {output_bytes} bytes of output"
                ))
            }
            Self::Unknown { body, .. } => serde_json::to_string(body).ok(),
            _ => None,
        }
    }
}

/// Returns the message of a job's new state.
fn of_job(state: &JobState) -> String {
    let message = match state {
        JobState::Queued => "Queued",
        JobState::Starting => "Starting its tasks",
        JobState::Running => "All tasks are running",
        JobState::Suspended => "Suspended; its processes remain and hold no GPU",
        JobState::Stopping { then } => return format!("Stopping, {}", after_stop(then)),
        JobState::Paused => "Paused; it holds no GPUs",
        JobState::Succeeded => "Succeeded",
        JobState::Failed { .. } => "Failed",
        JobState::Cancelled => "Cancelled",
    };
    message.to_owned()
}

fn asked(intent: Intent) -> &'static str {
    match intent {
        Intent::Run => "run",
        Intent::Suspend => "suspend",
        Intent::Pause => "pause",
        Intent::Cancel => "cancel",
    }
}

/// Returns a time to the minute, in UTC.
fn minute(at: OffsetDateTime) -> String {
    let at = at.to_offset(UtcOffset::UTC);
    let (date, hour, minute) = (at.date(), at.hour(), at.minute());
    format!("{date} {hour:02}:{minute:02} UTC")
}

/// Returns an empty text if the history does not name an actor.
fn by_whom(by: Option<&Actor>) -> String {
    by.map_or_else(String::new, |by| format!(" by {by}"))
}

fn membership(name: &str, change: MembershipChange, by: Option<&Actor>) -> String {
    let by = by_whom(by);
    match change {
        MembershipChange::JoinTokenMade => {
            format!("One-time join token for node {name} created{by}")
        }
        MembershipChange::CredentialReset => format!("Credential of node {name} reset{by}"),
        MembershipChange::Replaced => format!("Another executor replaced that of node {name}"),
        MembershipChange::Removed => format!("Node {name} removed{by}"),
    }
}

/// Returns the result of a request for a checkpoint.
fn request_ended(result: RequestResult, waited_ms: u64) -> String {
    let seconds = std::time::Duration::from_millis(waited_ms).as_secs_f64();
    match result {
        RequestResult::Reported { step } => {
            format!("Checkpoint of step {step} reported {seconds:.1} s after the request")
        }
        RequestResult::Ended => format!(
            "Program ended {seconds:.1} s after the request for a checkpoint, without a report"
        ),
        RequestResult::TimedOut => {
            format!("No checkpoint reported within {seconds:.1} s of the request")
        }
    }
}

/// Returns the purpose of a stop.
fn after_stop(then: &AfterStop) -> &'static str {
    match then {
        AfterStop::Requeue { cause } => match cause {
            RequeueCause::Resize => "to start again with another size or place",
            RequeueCause::Preempted => "because its GPUs go to a job that precedes it",
            RequeueCause::OverQuota => "because its tenant holds more than its quota",
            RequeueCause::TaskFailed => "to start again after a failure",
            RequeueCause::NodeLost => "to start again after the loss of a node",
        },
        AfterStop::Move { .. } => "to restart in a place that is reserved for it",
        AfterStop::Pause => "to pause",
        AfterStop::Succeed => "because it has finished",
        AfterStop::Fail { .. } => "because it failed",
        AfterStop::Cancel => "because it was cancelled",
    }
}

/// Returns the priority class after a change, and the one before it if it is another.
fn in_class(class: Option<&str>, former: Option<&str>) -> String {
    match (class, former) {
        (Some(class), Some(former)) => format!(" (priority class {class} instead of {former})"),
        (Some(class), None) => format!(" (priority class {class})"),
        (None, Some(former)) => format!(" (priority class {former} removed)"),
        (None, None) => String::new(),
    }
}

/// Returns the introduction of a remedy.
fn to_start(waiting: &Waiting) -> &'static str {
    if waiting.why.is_for_good() {
        "to start it at all"
    } else {
        "to start it"
    }
}

/// Returns the size; without PS shards only the workers.
fn size(workers: u32, ps_shards: u32) -> String {
    let workers = plural(workers as usize, "worker", "workers");
    if ps_shards == 0 {
        workers
    } else {
        let shards = plural(ps_shards as usize, "PS shard", "PS shards");
        format!("{workers} and {shards}")
    }
}

/// Returns the distinct names, and only the number of those after the first.
fn listed(nodes: &[String]) -> String {
    let mut seen = BTreeSet::new();
    let distinct: Vec<&str> = nodes
        .iter()
        .map(String::as_str)
        .filter(|name| seen.insert(*name))
        .collect();
    if distinct.len() <= NODES {
        distinct.join(", ")
    } else {
        let (first, others) = distinct.split_at(NODES - 1);
        format!("{} and {} more nodes", first.join(", "), others.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Split;
    use crate::remote::{RemoteAction, RemoteEnd};
    use crate::spec::Range;
    use crate::task::Role;
    use crate::wait::{Change, Wait};

    fn text(event: &Event) -> (String, Option<String>) {
        let EventText { message, detail } = event.text();
        (message, detail)
    }

    fn placed(workers: u32, ps_shards: u32, nodes: &[&str]) -> Event {
        Event::JobPlaced {
            revision: 2,
            workers,
            ps_shards,
            nodes: nodes.iter().map(ToString::to_string).collect(),
            why: "fifo: the oldest first".to_owned(),
        }
    }

    fn stopped(reason: &str) -> Event {
        Event::JobStopRequested {
            then: AfterStop::Fail {
                reason: reason.to_owned(),
            },
            why: "worker-0 exited with code 1".to_owned(),
            asks_s: None,
        }
    }

    fn waits(why: Wait, smallest_change: Option<Change>) -> Event {
        Event::JobWaits {
            waiting: Waiting {
                why,
                smallest_change,
                position: 1,
            },
        }
    }

    fn cancelled(by: Option<Actor>) -> Event {
        Event::IntentChanged {
            intent: Intent::Cancel,
            by,
        }
    }

    fn evaluated(epoch: f64, loss: Option<f64>, accuracy: Option<f64>) -> Event {
        Event::Evaluated {
            step: 40,
            epoch,
            split: Split::Validation,
            loss,
            accuracy,
        }
    }

    #[test]
    fn change_names_the_priority_class_and_the_former() {
        for (class, former, expected) in [
            (None, None, "priority 20"),
            (Some("urgent"), None, "priority 20 (priority class urgent)"),
            (
                Some("urgent"),
                Some("batch"),
                "priority 20 (priority class urgent instead of batch)",
            ),
            (
                None,
                Some("batch"),
                "priority 20 (priority class batch removed)",
            ),
        ] {
            let edited = Event::JobEdited {
                edits: 1,
                workers: Range { min: 1, max: 4 },
                ps_shards: None,
                priority: 20,
                priority_class: class.map(str::to_owned),
                former_priority_class: former.map(str::to_owned),
                by: None,
            };
            let expected = format!("Changed: 1 to 4 workers, {expected}");
            assert_eq!(text(&edited), (expected, None));
        }
    }

    #[test]
    fn placement_names_size_nodes_and_reason() {
        assert_eq!(
            text(&placed(4, 1, &["a", "b", "a"])),
            (
                "Placed: 4 workers and 1 PS shard on a, b (revision 2)".to_owned(),
                Some("fifo: the oldest first".to_owned())
            )
        );
        assert_eq!(
            text(&placed(1, 0, &["a", "b", "c", "d", "e"])).0,
            "Placed: 1 worker on a, b, c and 2 more nodes (revision 2)"
        );
    }

    #[test]
    fn reason_of_a_stop_appears_once() {
        let repeated = "worker-0 exited with code 1; 3 retries are used up";
        assert_eq!(
            text(&stopped(repeated)),
            (
                "Stop requested, because it failed".to_owned(),
                Some(repeated.to_owned())
            )
        );
        assert_eq!(
            text(&stopped("its document is not known")).1.as_deref(),
            Some("its document is not known; worker-0 exited with code 1")
        );
    }

    #[test]
    fn wait_names_its_reason_and_the_remedy() {
        let quota = Wait::ExceedsMaxQuota {
            needed_gpus: 8,
            quota_gpus: 4,
        };
        assert_eq!(
            text(&waits(quota, Some(Change::RaiseQuota { by_gpus: 4 }))),
            (
                "Waits: needs 8 GPUs; the tenant's whole quota is 4".to_owned(),
                Some("to start it at all: raise the tenant's quota by 4 GPUs".to_owned())
            )
        );
        assert_eq!(text(&waits(Wait::Suspended, None)).1, None);
        assert_eq!(
            text(&waits(Wait::Suspended, Some(Change::Resume)))
                .1
                .as_deref(),
            Some("to start it: resume the job")
        );
    }

    #[test]
    fn request_names_its_author() {
        assert_eq!(text(&cancelled(None)).0, "A user asked to cancel it");
        let administrator = Actor {
            user: "root@ops".to_owned(),
            as_administrator: true,
        };
        assert_eq!(
            text(&cancelled(Some(administrator))).0,
            "root@ops as administrator asked to cancel it"
        );
    }

    #[test]
    fn session_names_user_task_command_and_end() {
        let by = Actor {
            user: "ann".to_owned(),
            as_administrator: false,
        };
        let (session, role) = (uuid::Uuid::nil().into(), Role::Worker { rank: 1 });
        let opened = Event::RemoteSessionOpened {
            session,
            role,
            action: RemoteAction::Exec {
                command: vec!["nvidia-smi".to_owned(), "-L".to_owned()],
                terminal: None,
            },
            by: by.clone(),
        };
        assert_eq!(
            text(&opened).0,
            "ann opened a session in worker-1: command: nvidia-smi -L"
        );
        let ended = Event::RemoteSessionEnded {
            session,
            role,
            end: RemoteEnd::Exited { code: 3 },
            duration_ms: 1_500,
            input_bytes: 5,
            output_bytes: 7,
            by,
        };
        let detail = "1.5 s, 5 bytes of input, 7 bytes of output".to_owned();
        let message = "Session of ann in worker-1 ended: exit code 3".to_owned();
        assert_eq!(text(&ended), (message, Some(detail)));
    }

    #[test]
    fn evaluation_has_only_the_measures_that_were_logged() {
        assert_eq!(
            text(&evaluated(2.0, Some(0.43214), Some(0.9818))).0,
            "Evaluated at step 40 (epoch 2): val loss 0.4321, val accuracy 98.18%"
        );
        assert_eq!(
            text(&evaluated(0.0, None, Some(0.5))).0,
            "Evaluated at step 40: val accuracy 50.00%"
        );
    }

    #[test]
    fn text_on_one_line_has_message_and_detail() {
        assert_eq!(
            placed(1, 0, &["a"]).text().to_string(),
            "Placed: 1 worker on a (revision 2); fifo: the oldest first"
        );
        let submitted = Event::JobSubmitted {
            name: "cnn".to_owned(),
        };
        assert_eq!(submitted.text().to_string(), "Submitted as cnn");
    }
}
