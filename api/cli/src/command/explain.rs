//! `muster explain`: why a job waits and what would start it, or why it has its size, and the
//! newest decisions about it.

use super::CliSession;
use super::forecast::lines;
use super::job_table::count;
use crate::clock;
use crate::output::{duration_s, fields};
use clap::Args;
use muster_client::EventQuery;
use muster_model::event::Event;
use muster_model::view::{DecidedView, EventView, ExplainView, InTheWay, JobView};
use muster_model::wait::Waiting;
use serde::Serialize;

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Id of the job, or name (its newest job).
    job: String,
}

#[derive(Serialize)]
struct ExplainOutput {
    job: JobView,
    explanation: ExplainView,
    /// Decisions of the scheduler about the job, oldest first.
    decisions: Vec<EventView>,
}

impl ExplainArgs {
    /// # Errors
    /// If the job does not exist, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let job = session.job(&self.job).await?;
        let explanation = session.client.explain(job.id).await?;
        let mut decisions = Vec::new();
        let mut after = None;
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
            after = page
                .items
                .last()
                .map(|event| event.cursor.clone())
                .or(after);
            decisions.extend(
                page.items
                    .into_iter()
                    .filter(|event| is_decision(&event.event)),
            );
            if page.next.is_none() {
                break;
            }
        }
        session.output.print(
            &ExplainOutput {
                job,
                explanation,
                decisions,
            },
            describe,
        )
    }
}

/// Returns the text for a job that no tried single change would start.
fn without_change(waiting: &Waiting) -> &'static str {
    if waiting.why.is_for_good() {
        "no single change; as the job and the cluster are, it never starts"
    } else {
        "nothing but time"
    }
}

fn describe(output: &ExplainOutput) -> String {
    const SHOWN: usize = 8;
    let job = &output.job;
    let mut rows = vec![
        ("job", job.name.clone()),
        ("phase", job.phase.as_str().to_owned()),
        ("workers", count(job.workers)),
        ("ps shards", count(job.ps_shards)),
    ];
    let explanation = &output.explanation;
    if let Some(waiting) = &job.waiting {
        rows.push((
            "waits for",
            format!("{} ({})", waiting.message, waiting.reason),
        ));
        let uses_gpus = job.spec.resources.worker.gpus > 0;
        in_the_way(&mut rows, &explanation.in_the_way, uses_gpus);
        let change = waiting.smallest_change.clone();
        let helps = if waiting.detail.why.is_for_good() {
            "to start it at all"
        } else {
            "to start it now"
        };
        rows.push((
            helps,
            change.unwrap_or_else(|| without_change(&waiting.detail).to_owned()),
        ));
        rows.push(("position", waiting.position.to_string()));
    }
    if let Some(decided) = &explanation.decided {
        said(&mut rows, decided, job.waiting.is_some());
    }
    if let Some(expected) = &job.forecast {
        rows.extend(lines(expected, clock::now()));
    }
    let mut text = fields(&rows);
    if output.decisions.is_empty() {
        return text;
    }
    text.push_str("\n\nnewest decisions:");
    let skipped = output.decisions.len().saturating_sub(SHOWN);
    for decision in &output.decisions[skipped..] {
        text.push_str(&format!("\n  {}", decision.text()));
    }
    text
}

/// Adds one line per blocking job, for the quota and per node.
fn in_the_way(rows: &mut Vec<(&'static str, String)>, way: &InTheWay, uses_gpus: bool) {
    if let Some(quota) = way.quota {
        let text = format!(
            "the quota: {} of {} GPUs are held, {} are needed",
            quota.used_gpus, quota.gpu_quota, quota.needed_gpus
        );
        rows.push(("blocked by", text));
    }
    for job in &way.jobs {
        let name = job.name.clone().unwrap_or_else(|| job.id.to_string());
        rows.push(("blocked by", format!("job {name} ({} GPUs)", job.held_gpus)));
    }
    for node in &way.nodes {
        let free = if uses_gpus {
            format!(" ({} of {} GPUs free)", node.free_gpus, node.gpus)
        } else {
            String::new()
        };
        let text = format!("node {}{free}: {}", node.name, node.why.as_words());
        rows.push(("blocked by", text));
    }
}

/// Adds the decision of the newest round.
fn said(rows: &mut Vec<(&'static str, String)>, decided: &DecidedView, waits: bool) {
    if !waits {
        rows.push(("why", decided.why.clone()));
        if let Some(gain) = decided.next_worker_gain {
            rows.push(("one worker more", format!("would gain {gain:.0}")));
        }
        if let Some(other) = &decided.runner_up {
            let name = other.name.clone();
            let name = name.unwrap_or_else(|| other.job_id.to_string());
            rows.push(("runner-up", format!("{name} would gain {:.0}", other.gain)));
        }
    }
    let Some(speed) = decided.steps_per_s.filter(|_| decided.workers > 0) else {
        return;
    };
    let basis = match (decided.measured_sizes, decided.speed_error) {
        (0, _) => "a guess, nothing is measured yet".to_owned(),
        // A formula through a single measured size has no error there.
        (1, _) => "measured at 1 size".to_owned(),
        (sizes, Some(error)) => {
            format!(
                "measured at {sizes} sizes, {:.0}% off in the mean",
                error * 100.0
            )
        }
        (sizes, None) => format!("measured at {sizes} sizes"),
    };
    rows.push(("speed", format!("{speed:.1} steps/s ({basis})")));
    if let Some(batch) = &decided.batch {
        rows.push(("batch", batch.message.clone()));
    }
    if let (Some(steps), Some(time_s)) = (decided.steps_left, decided.time_left_s) {
        let between = decided
            .steps_left_between
            .filter(|[least, most]| least.round() < most.round())
            .map_or_else(String::new, |[least, most]| {
                format!(", 80% between {least:.0} and {most:.0}")
            });
        let text = format!(
            "{steps:.0} steps{between}; {} at this size",
            duration_s(time_s)
        );
        rows.push(("left", text));
    }
}

fn is_decision(event: &Event) -> bool {
    matches!(
        event,
        Event::JobPlaced { .. } | Event::JobStopRequested { .. } | Event::JobWaits { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::plan::PredictedBatch;
    use time::OffsetDateTime;

    fn decided(batch: Option<PredictedBatch>) -> DecidedView {
        DecidedView {
            round: 7,
            at: OffsetDateTime::UNIX_EPOCH,
            why: "has the most workers".to_owned(),
            workers: 1,
            ps_shards: 0,
            next_worker_gain: None,
            runner_up: None,
            steps_per_s: Some(18.0),
            batch: batch.map(Into::into),
            measured_sizes: 1,
            speed_error: None,
            steps_left: None,
            steps_left_between: None,
            time_left_s: None,
        }
    }

    #[test]
    fn explanation_states_the_predicted_batch() {
        let predicted = PredictedBatch {
            batch: 512,
            smallest_batch: 128,
            steps_per_s: 18.0,
            smallest_steps_per_s: 10.0,
        };
        let mut rows = Vec::new();
        said(&mut rows, &decided(Some(predicted)), false);
        let text = "batch 512 instead of 128: 1.8 times the progress (predicted)";
        assert!(rows.contains(&("batch", text.to_owned())), "{rows:?}");
        rows.clear();
        said(&mut rows, &decided(None), false);
        assert!(rows.iter().all(|(name, _)| *name != "batch"), "{rows:?}");
    }
}
