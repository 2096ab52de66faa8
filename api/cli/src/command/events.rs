//! `muster events`: prints events as sentences; `-f` follows them.

use super::Session;
use crate::output::{Format, counted, line};
use clap::Args;
use futures::StreamExt as _;
use muster_client::{EventQuery, RecentQuery, StreamItem};
use muster_model::actor::Actor;
use muster_model::event::{Event, MembershipChange};
use muster_model::id::JobId;
use muster_model::job::{AfterStop, JobState};
use muster_model::node::Closed;
use muster_model::progress::Split;
use muster_model::view::{EventView, Opened};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use time::format_description::well_known::Rfc3339;

#[derive(Debug, Args)]
pub struct Events {
    /// Id of the job, or name (its newest job); without it, the newest events of all jobs of the
    /// tenant and of the nodes.
    job: Option<String>,
    /// Continue to print new events.
    #[arg(short, long)]
    follow: bool,
    /// Include routine events: starts and stops of tasks, evaluations, checkpoints. The formats
    /// json and yaml always include them.
    #[arg(short, long)]
    all: bool,
    /// Without a job: number of the newest events.
    #[arg(long, default_value_t = 50, conflicts_with = "job", value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
}

impl Events {
    /// # Errors
    /// If the job does not exist, or the server refuses.
    pub async fn run(self, session: &Session) -> anyhow::Result<()> {
        let all = self.all || session.output.is_whole();
        match &self.job {
            Some(named) => of_job(session, named, all, self.follow).await,
            None => of_all(session, self.limit, all, self.follow).await,
        }
    }
}

async fn of_job(session: &Session, named: &str, all: bool, follow: bool) -> anyhow::Result<()> {
    let job = session.job(named).await?;
    let mut after = None;
    loop {
        let query = EventQuery {
            after: after.clone(),
            limit: None,
        };
        let page = session.client.events(job.id, &query).await?;
        for event in page
            .items
            .iter()
            .filter(|event| all || !event.event.is_routine())
        {
            print(event, None, session.output)?;
        }
        let newest = page.items.last().map(|event| event.cursor.clone());
        after = newest.or(after);
        if page.next.is_none() {
            break;
        }
    }
    if !follow {
        return Ok(());
    }
    let mut stream = session.client.watch_job(job.id, after);
    while let Some(item) = stream.next().await {
        match item? {
            StreamItem::Event(event) if all || !event.event.is_routine() => {
                print(&event, None, session.output)?;
            }
            StreamItem::Opened(opened) => tell_missed(&opened),
            StreamItem::End(_) => break,
            _ => {}
        }
    }
    Ok(())
}

async fn of_all(session: &Session, limit: u32, all: bool, follow: bool) -> anyhow::Result<()> {
    let query = RecentQuery {
        routine: all,
        limit,
        after: None,
    };
    let mut names = Names::default();
    let page = session.client.recent_events(&query).await?;
    for event in page.items.iter().rev() {
        let subject = names.of(session, event).await?;
        print(event, subject, session.output)?;
    }
    if !follow {
        return Ok(());
    }
    let newest = page.items.first().map(|event| event.cursor.clone());
    let mut stream = session.client.watch(newest);
    while let Some(item) = stream.next().await {
        match item? {
            StreamItem::Event(event) if all || !event.event.is_routine() => {
                let subject = names.of(session, &event).await?;
                print(&event, subject, session.output)?;
            }
            StreamItem::Opened(opened) => tell_missed(&opened),
            StreamItem::End(_) => break,
            _ => {}
        }
    }
    Ok(())
}

/// Reports on stderr that events are missing, because the stream was broken for longer than events
/// are kept.
fn tell_missed(opened: &Opened) {
    if let Some(newest) = &opened.forgotten {
        note!(
            "muster: events up to {newest} are no longer kept; some before the next line are missing"
        );
    }
}

/// Cache of job names, because events contain only ids.
#[derive(Default)]
struct Names(BTreeMap<JobId, String>);

impl Names {
    /// Returns the name of the event's job, or its id if the job was removed. Output for programs
    /// needs no name.
    async fn of(&mut self, session: &Session, event: &EventView) -> anyhow::Result<Option<&str>> {
        let Some(id) = event.job_id.filter(|_| !session.output.is_whole()) else {
            return Ok(None);
        };
        if let Entry::Vacant(unknown) = self.0.entry(id) {
            let job = session.client.find_job(id).await?;
            unknown.insert(job.map_or_else(|| id.to_string(), |job| job.name));
        }
        Ok(self.0.get(&id).map(String::as_str))
    }
}

/// Prints an event. `subject` precedes the sentence where events of several jobs are mixed.
fn print(event: &EventView, subject: Option<&str>, output: Format) -> anyhow::Result<()> {
    match output {
        Format::Table => {
            let at = event.at.replace_nanosecond(0)?.format(&Rfc3339)?;
            let subject = subject.map_or_else(String::new, |name| format!("{name}: "));
            line(&format!("{at}  {subject}{}", words(&event.event)))
        }
        // One document per line, so that a program can parse a followed stream.
        Format::Json => line(&serde_json::to_string(event)?),
        Format::Yaml => line(&format!(
            "---\n{}",
            serde_norway::to_string(event)?.trim_end()
        )),
    }
}

/// Returns an event as a sentence.
#[must_use]
pub fn words(event: &Event) -> String {
    match event {
        Event::JobSubmitted { name } => format!("job {name} submitted"),
        Event::IntentChanged { intent, by } => {
            format!("asked to {}{}", intent.as_str(), by_whom(by.as_ref()))
        }
        Event::JobEdited {
            workers,
            ps_shards,
            priority,
            by,
            ..
        } => format!(
            "changed{}: {} to {} workers, {}priority {priority}",
            by_whom(by.as_ref()),
            workers.min,
            workers.max,
            ps_shards.map_or_else(String::new, |range| format!(
                "{} to {} PS shards, ",
                range.min, range.max
            )),
        ),
        Event::JobStateChanged { state, revision } => match state {
            JobState::Failed { reason } => format!("job failed: {reason}"),
            JobState::Stopping { then } => format!(
                "job is stopping, {} (revision {revision})",
                after_stop(then)
            ),
            other => format!("job is {} (revision {revision})", other.phase().as_str()),
        },
        Event::JobPlaced {
            revision,
            workers,
            ps_shards,
            nodes,
            why,
        } => format!(
            "placed with {} on {} as revision {revision}: {why}",
            size(*workers, *ps_shards),
            nodes.join(", ")
        ),
        Event::JobStopRequested { then, why } => match then {
            // The reason already begins with `why`.
            AfterStop::Fail { reason } if reason.starts_with(why.as_str()) => {
                format!("stop requested, {}", after_stop(then))
            }
            _ => format!("stop requested, {}: {why}", after_stop(then)),
        },
        Event::JobTurned { suspended, why } => {
            if *suspended {
                format!("suspending: {why}")
            } else {
                format!("resumed: {why}")
            }
        }
        Event::JobWaits { waiting } => {
            let change = waiting.remedy().map(|change| {
                let when = if waiting.why.is_for_good() {
                    "at all"
                } else {
                    "now"
                };
                format!("; to start it {when}: {change}")
            });
            format!(
                "waits ({}): {}{}",
                waiting.why.name(),
                waiting.why,
                change.unwrap_or_default()
            )
        }
        Event::TaskStateChanged { role, state, .. } => match state {
            muster_model::task::TaskState::Released { outcome } => format!("{role} {outcome}"),
            other => format!("{role} is {}", other.phase()),
        },
        Event::TaskFailed { role, message, .. } => format!("{role} failed: {message}"),
        Event::Resumed { from_step: 0 } => "training starts".to_owned(),
        Event::Resumed { from_step } => format!("training continues from step {from_step}"),
        Event::Resized {
            step,
            workers,
            ps_shards,
            pause_ms,
        } => format!(
            "trains on from step {step} with {} after a pause of {pause_ms} ms",
            size(*workers, *ps_shards)
        ),
        Event::PeerGone { task_id, step } => {
            format!("task {task_id} is gone at step {step}; the others train on")
        }
        Event::RankJudged { verdict } => verdict.to_string(),
        Event::CheckpointWritten { checkpoint } => {
            format!("checkpoint of step {} written", checkpoint.step)
        }
        Event::CheckpointPruned { step } => format!("checkpoint of step {step} pruned"),
        Event::Evaluated {
            step,
            epoch,
            split,
            loss,
            accuracy,
        } => {
            let epoch = (*epoch > 0.0).then(|| format!(" (epoch {epoch:.0})"));
            let epoch = epoch.unwrap_or_default();
            let measures = measures(*split, *loss, *accuracy);
            format!("evaluated at step {step}{epoch}: {measures}")
        }
        Event::TrainingFinished {
            step,
            reason,
            model_path,
        } => {
            format!("training done at step {step} ({reason}); model in {model_path}")
        }
        Event::Note { message } => message.clone(),
        Event::NodeStateChanged { name, state } => format!("node {name} is {}", state.as_str()),
        Event::NodeFaulted { name, fault } => format!("on node {name}: {fault}"),
        Event::NodeExcluded {
            name,
            excluded: true,
            why,
        } => format!("node {name} takes no new tasks: {why}"),
        Event::NodeExcluded { name, why, .. } => format!("node {name} takes tasks again: {why}"),
        Event::NodeMembership { name, change, by } => membership(name, *change, by.as_ref()),
        Event::NodeDrained {
            name,
            drained: true,
        } => format!("node {name} is drained"),
        Event::NodeDrained {
            name,
            drained: false,
        } => format!("node {name} takes work again"),
        Event::NodeNoticed { name, notice } => match notice.closed {
            Closed::Open => format!("node {name} is open as far as its cluster says"),
            Closed::ToNew => format!("node {name} is cordoned by its cluster: {}", notice.why),
            Closed::ToAll => format!("node {name} is drained by its cluster: {}", notice.why),
        },
        Event::JobDeleted { job_id, by } => {
            format!("job {job_id} deleted{}", by_whom(by.as_ref()))
        }
        Event::Unknown { of, body } => match serde_json::to_string(body) {
            Ok(body) => format!("an event of another release: {of} {body}"),
            Err(_) => format!("an event of another release: {of}"),
        },
    }
}

/// Returns an empty text if the history does not name an actor.
fn by_whom(by: Option<&Actor>) -> String {
    by.map_or_else(String::new, |by| format!(" by {by}"))
}

fn membership(name: &str, change: MembershipChange, by: Option<&Actor>) -> String {
    let by = by_whom(by);
    match change {
        MembershipChange::JoinTokenMade => {
            format!("a one-time join token for node {name} was made{by}")
        }
        MembershipChange::CredentialReset => {
            format!("the credential of node {name} was reset{by}")
        }
        MembershipChange::Replaced => {
            format!("another executor took the place of node {name}")
        }
        MembershipChange::Removed => format!("node {name} was removed{by}"),
    }
}

fn after_stop(then: &AfterStop) -> String {
    match then {
        AfterStop::Requeue { cause } => match cause {
            muster_model::job::RequeueCause::Resize => {
                "to start again with another size or place".to_owned()
            }
            muster_model::job::RequeueCause::Preempted => {
                "for a job that comes before it".to_owned()
            }
            muster_model::job::RequeueCause::OverQuota => {
                "because its tenant holds more than its quota".to_owned()
            }
            muster_model::job::RequeueCause::TaskFailed => {
                "to start again after a failure".to_owned()
            }
            muster_model::job::RequeueCause::NodeLost => "to start again elsewhere".to_owned(),
        },
        AfterStop::Move { .. } => "to restart in a place that is kept for it".to_owned(),
        AfterStop::Pause => "to pause".to_owned(),
        AfterStop::Succeed => "because it is done".to_owned(),
        AfterStop::Fail { reason } => format!("because it failed ({reason})"),
        AfterStop::Cancel => "because it was cancelled".to_owned(),
    }
}

/// Returns the size; without PS shards only the workers.
fn size(workers: u32, ps_shards: u32) -> String {
    let workers = counted(workers, "worker");
    match ps_shards {
        0 => workers,
        shards => format!("{workers} and {}", counted(shards, "PS shard")),
    }
}

/// Returns `val loss 0.4321, val accuracy 98.18%` with the logged measures.
#[must_use]
pub fn measures(split: Split, loss: Option<f64>, accuracy: Option<f64>) -> String {
    let of = split.label();
    let loss = loss.map(|loss| format!("{of} loss {loss:.4}"));
    let accuracy = accuracy.map(|share| format!("{of} accuracy {:.2}%", share * 100.0));
    let both: Vec<String> = loss.into_iter().chain(accuracy).collect();
    both.join(", ")
}

#[cfg(test)]
mod tests {
    use super::words;
    use muster_model::event::Event;
    use muster_model::job::AfterStop;

    #[test]
    fn reason_of_a_stop_is_printed_once() {
        let stopped = |reason: &str| {
            let then = AfterStop::Fail {
                reason: reason.to_owned(),
            };
            words(&Event::JobStopRequested {
                then,
                why: "worker-0 exited with code 1".to_owned(),
            })
        };
        assert_eq!(
            stopped("worker-0 exited with code 1; 3 retries are used up"),
            "stop requested, because it failed (worker-0 exited with code 1; 3 retries are used up)"
        );
        assert_eq!(
            stopped("its document is not known"),
            "stop requested, because it failed (its document is not known): worker-0 exited with code 1"
        );
    }
}
