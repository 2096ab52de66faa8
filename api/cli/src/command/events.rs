//! `muster events`: what happened, in words; with `-f` as it happens.

use super::Session;
use crate::output::{Format, line};
use clap::Args;
use futures::StreamExt as _;
use muster_client::{EventQuery, StreamItem};
use muster_model::event::Event;
use muster_model::job::{AfterStop, JobState};
use muster_model::view::EventView;
use time::format_description::well_known::Rfc3339;

#[derive(Debug, Args)]
pub struct Events {
    /// Name (the newest of it) or id; the whole tenant's and the nodes' if left out (then only with -f).
    #[arg(required_unless_present = "follow")]
    job: Option<String>,
    /// Go on as events happen.
    #[arg(short, long)]
    follow: bool,
}

impl Events {
    /// # Errors
    /// No such job, or what the server says.
    pub async fn run(self, session: &Session) -> anyhow::Result<()> {
        let job = match &self.job {
            Some(named) => Some(session.job(named).await?),
            None => None,
        };
        let mut after = None;
        if let Some(job) = &job {
            loop {
                let page = session
                    .client
                    .events(
                        job.id,
                        &EventQuery {
                            after: after.clone(),
                            limit: None,
                        },
                    )
                    .await?;
                for event in &page.items {
                    print(event, session.output)?;
                }
                after = page
                    .items
                    .last()
                    .map(|event| event.cursor.clone())
                    .or(after);
                if page.next.is_none() {
                    break;
                }
            }
        }
        if !self.follow {
            return Ok(());
        }
        let mut stream = match &job {
            Some(job) => session.client.watch_job(job.id, after),
            None => session.client.watch(None),
        };
        while let Some(item) = stream.next().await {
            match item? {
                StreamItem::Event(event) => print(&event, session.output)?,
                StreamItem::End(_) => break,
                _ => {}
            }
        }
        Ok(())
    }
}

fn print(event: &EventView, output: Format) -> anyhow::Result<()> {
    match output {
        Format::Table => {
            let at = event.at.replace_nanosecond(0)?.format(&Rfc3339)?;
            line(&format!("{at}  {}", words(&event.event)))
        }
        // One document a line, so that a follower can read them as they come.
        Format::Json => line(&serde_json::to_string(event)?),
        Format::Yaml => line(&format!(
            "---\n{}",
            serde_norway::to_string(event)?.trim_end()
        )),
    }
}

/// An event as a person would say it.
#[must_use]
pub fn words(event: &Event) -> String {
    match event {
        Event::JobSubmitted { name } => format!("job {name} submitted"),
        Event::IntentChanged { intent } => format!("asked to {}", intent.as_str()),
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
        Event::JobStopRequested { then, why } => {
            format!("told to stop, {}: {why}", after_stop(then))
        }
        Event::JobTurned { suspended, why } => match suspended {
            true => format!("is to stand still: {why}"),
            false => format!("goes on: {why}"),
        },
        Event::JobWaits { waiting } => {
            let change = waiting
                .smallest_change
                .as_ref()
                .map(|change| format!("; to start it now: {change}"));
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
            loss,
            accuracy,
        } => format!(
            "evaluated at step {step} (epoch {epoch:.0}): loss {loss:.4}, accuracy {:.2}%",
            accuracy * 100.0
        ),
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
        Event::NodeDrained {
            name,
            drained: true,
        } => format!("node {name} is drained"),
        Event::NodeDrained {
            name,
            drained: false,
        } => format!("node {name} takes work again"),
        Event::JobDeleted { job_id } => format!("job {job_id} deleted"),
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
        AfterStop::Move { .. } => "to go on elsewhere".to_owned(),
        AfterStop::Pause => "to pause".to_owned(),
        AfterStop::Succeed => "because it is done".to_owned(),
        AfterStop::Fail { reason } => format!("because it failed ({reason})"),
        AfterStop::Cancel => "because it was cancelled".to_owned(),
    }
}

/// Without servers there are no shards to speak of.
fn size(workers: u32, ps_shards: u32) -> String {
    let workers = counted(workers, "worker");
    match ps_shards {
        0 => workers,
        shards => format!("{workers} and {}", counted(shards, "PS shard")),
    }
}

/// `1 worker`, `2 workers`.
fn counted(number: u32, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
}
