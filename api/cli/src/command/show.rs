//! `muster show`: shows one job completely.

use super::CliSession;
use super::forecast::lines;
use super::job_table::{count, phase_and_reason};
use super::priorities;
use crate::clock;
use crate::output::{age, duration_s, fields, table};
use clap::Args;
use muster_model::idle::span;
use muster_model::job::JobPhase;
use muster_model::pace::Suspicion;
use muster_model::progress::Split;
use muster_model::task::TaskState;
use muster_model::view::{IdleView, JobView, PaceView, ProgressView, TaskView};
use serde::Serialize;

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Id of the job, or name (its newest job).
    job: String,
}

#[derive(Serialize)]
struct JobDetails {
    #[serde(flatten)]
    job: JobView,
    tasks: Vec<TaskView>,
}

impl ShowArgs {
    /// # Errors
    /// If the job does not exist, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let job = session.job(&self.job).await?;
        let tasks = session.client.tasks(job.id).await?;
        session.output.print(&JobDetails { job, tasks }, |output| {
            let mut text = describe(&output.job);
            let live: Vec<_> = output
                .tasks
                .iter()
                .filter(|task| task.revision == output.job.revision)
                .collect();
            if !live.is_empty() {
                text.push_str("\n\n");
                text.push_str(&table(
                    ["task", "node", "gpus", "state", "own step", "pace", "age"],
                    live.into_iter().map(row),
                ));
            }
            text
        })
    }
}

fn describe(job: &JobView) -> String {
    let mut rows = vec![
        ("name", job.name.clone()),
        ("id", job.id.to_string()),
        (
            "tenant",
            format!("{} (by {})", job.tenant, job.submitted_by),
        ),
        ("phase", phase_and_reason(job)),
        ("priority", priorities::of_job(job)),
        what(job),
        ("workers", count(job.workers)),
        ("ps shards", count(job.ps_shards)),
        (
            "revision",
            format!(
                "{}{}",
                job.revision,
                failures(job.failures, job.spec.retries)
            ),
        ),
        (
            "submitted",
            format!("{} ago", age(job.submitted_at, clock::now())),
        ),
    ];
    if let Some(from) = &job.spec.from {
        let step = from
            .step
            .map_or_else(String::new, |s| format!(" at step {s}"));
        rows.push(("began from", format!("job {}{step}", from.job)));
    }
    if let Some(waiting) = &job.waiting {
        rows.push((
            "waits",
            format!("{} (position {})", waiting.message, waiting.position),
        ));
        rows.push((
            "would start",
            waiting
                .smallest_change
                .clone()
                .unwrap_or_else(|| "with time".to_owned()),
        ));
    }
    if let Some(idle) = &job.idle {
        rows.push(("idle", idle_text(idle)));
    }
    if let Some(progress) = &job.progress {
        let total = progress
            .total_steps
            .map_or_else(String::new, |total| format!(" of {total}"));
        rows.push((
            "step",
            format!("{}{total}{}", progress.step, epoch(progress.epoch)),
        ));
        rows.extend(measures(progress));
        rows.extend(update(job, progress).map(|worth| ("update", worth)));
        // A forecast replaces this simple estimate.
        if let Some(eta_s) = progress.eta_s.filter(|_| job.forecast.is_none()) {
            rows.push(("ends in", duration_s(eta_s)));
        }
    }
    if let Some(expected) = &job.forecast {
        rows.extend(lines(expected, clock::now()));
    }
    if let Some(model) = &job.model_path {
        rows.push(("model", model.clone()));
    }
    if job.put_off > 0 && !job.phase.is_terminal() {
        rows.push(("refused", refused(job)));
    }
    if let Some(failure) = &job.failure {
        rows.push(("failure", failure.clone()));
    } else if let Some(last) = &job.last_failure {
        rows.push(("last failure", last.clone()));
    }
    fields(&rows)
}

/// Returns the evidence, and the time at which an interactive job ends.
fn idle_text(idle: &IdleView) -> String {
    let Some(ends_at) = idle.ends_at else {
        return idle.evidence.clone();
    };
    let left = (ends_at - clock::now()).max(time::Duration::ZERO);
    let left_ms = i64::try_from(left.whole_milliseconds()).unwrap_or(i64::MAX);
    format!("{}; ends in {} without use", idle.evidence, span(left_ms))
}

fn epoch(epoch: Option<f64>) -> String {
    epoch.map_or_else(String::new, |epoch| format!(" (epoch {epoch:.2})"))
}

/// Returns the number of placement rejections and their consequence.
fn refused(job: &JobView) -> String {
    let often = match job.put_off {
        1 => "once".to_owned(),
        many => format!("{many} times in a row"),
    };
    let then = match job.phase {
        JobPhase::Running | JobPhase::Suspended => "it runs as it is, and grows later",
        _ => "from the 9th time on it is charged to its retries",
    };
    format!("by nodes, {often}; {then}")
}

/// Returns the number of failures and of allowed retries. A job ends with one failure more than its
/// retries.
fn failures(failures: u32, retries: u32) -> String {
    let was = match retries {
        0 | 1 => "was",
        _ => "were",
    };
    match failures {
        0 => String::new(),
        some => format!(
            " (failed {}; {} {was} allowed)",
            times(some, "time"),
            times(retries, "retry")
        ),
    }
}

fn times(number: u32, word: &str) -> String {
    match number {
        1 => format!("1 {word}"),
        2.. => format!(
            "{number} {}",
            word.replace("retry", "retries").replace("time", "times")
        ),
        0 => format!("no {}", word.replace("time", "times")),
    }
}

/// Returns the network and data set, or the command.
fn what(job: &JobView) -> (&'static str, String) {
    match (&job.spec.engine, &job.spec.command) {
        (Some(engine), _) => (
            "trains",
            format!("{} on {}", engine.model.kind(), engine.dataset.title()),
        ),
        (None, Some(command)) => ("command", command.argv.join(" ")),
        (None, None) => ("command", String::new()),
    }
}

fn row(task: &TaskView) -> [String; 7] {
    let gpus: Vec<_> = task.gpus.iter().map(u32::to_string).collect();
    let state = match &task.state {
        TaskState::Released { outcome } => outcome.to_string(),
        other if task.idle.is_some() => {
            let idle = task.idle.as_ref().map_or("", |idle| &idle.evidence);
            format!("{}, idle: {idle}", other.phase())
        }
        other => match task.shared_with {
            Some(_) => format!("{}, {}", other.phase(), shared(task)),
            None => other.phase().to_owned(),
        },
    };
    [
        task.name.clone(),
        task.node.clone(),
        gpus.join(","),
        state,
        task.pace.as_ref().map_or_else(nothing, own_step),
        task.pace.as_ref().map_or_else(nothing, pace),
        age(task.created_at, clock::now()),
    ]
}

/// Returns the other job on the task's GPU, and the relative speed beside it.
fn shared(task: &TaskView) -> String {
    let other = task.shared_with.map(|job| job.to_string());
    let other = other.unwrap_or_default();
    match task.rate_beside {
        Some(part) => format!("beside {other} at {:.0} % of its rate alone", 100.0 * part),
        None => format!("beside {other}"),
    }
}

fn nothing() -> String {
    "-".to_owned()
}

/// Returns the worker's own time for a step.
fn own_step(pace: &PaceView) -> String {
    let own = pace.own_ms.map(|ms| format!("{ms:.1} ms"));
    own.unwrap_or_else(nothing)
}

/// Returns the rate relative to the job's other workers, and the suspicion against the worker.
fn pace(pace: &PaceView) -> String {
    let part = pace
        .of_median
        .map(|part| format!("{:.0}% of the median", 100.0 * part));
    let suspected = pace.suspected.as_ref().map(|suspected| {
        let what = match suspected.of {
            Suspicion::Straggler => "like a straggler",
            Suspicion::Hang => "hung",
        };
        format!("looks {what} for {}", age(suspected.since, clock::now()))
    });
    let said: Vec<String> = part.into_iter().chain(suspected).collect();
    if said.is_empty() {
        nothing()
    } else {
        said.join(", ")
    }
}

/// Returns rows of the reported measures. A command reports only some of them.
fn measures(progress: &ProgressView) -> impl Iterator<Item = (&'static str, String)> {
    let (test_loss, test_accuracy) = match progress.evaluated_on {
        Some(Split::Validation) => ("val loss", "val accuracy"),
        Some(Split::Test) | None => ("test loss", "test accuracy"),
    };
    let examples = progress.examples_per_s;
    let examples = examples.map_or_else(String::new, |rate| format!(", {rate:.0} examples/s"));
    let rate = progress.steps_per_s;
    let rate = rate.map(|rate| format!("{rate:.1} steps/s{examples}"));
    [
        ("train loss", progress.loss.map(loss)),
        ("train accuracy", progress.accuracy.map(percent)),
        (test_loss, progress.test_loss.map(loss)),
        (test_accuracy, progress.test_accuracy.map(percent)),
        ("rate", rate),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
}

/// Returns what an update of a changing batch is worth.
fn update(job: &JobView, progress: &ProgressView) -> Option<String> {
    let engine = job.spec.engine.as_ref()?;
    let (examples, efficiency) = progress.update(engine.batch)?;
    let gain = progress.gain?;
    Some(format!(
        "{examples:.0} examples, worth {gain:.1} steps (efficiency {:.0}%)",
        100.0 * efficiency
    ))
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

fn loss(loss: f64) -> String {
    format!("{loss:.4}")
}

#[cfg(test)]
mod tests {
    use super::{failures, pace};
    use muster_model::pace::{Doing, Suspicion};
    use muster_model::view::{PaceView, SuspectedView};
    use time::OffsetDateTime;

    #[test]
    fn straggler_is_marked_in_its_row() {
        let at = OffsetDateTime::UNIX_EPOCH;
        let fast = PaceView {
            step: 7,
            doing: Doing::Working,
            own_ms: Some(12.5),
            of_median: Some(1.0),
            heard_at: at,
            moved_at: at,
            suspected: None,
        };
        assert_eq!(super::own_step(&fast), "12.5 ms");
        assert_eq!(pace(&fast), "100% of the median");
        let slow = PaceView {
            of_median: Some(0.41),
            suspected: Some(SuspectedView {
                of: Suspicion::Straggler,
                since: at,
            }),
            ..fast.clone()
        };
        assert!(pace(&slow).starts_with("41% of the median, looks like a straggler for "));
        let silent = PaceView {
            of_median: None,
            ..fast
        };
        assert_eq!(pace(&silent), "-");
    }

    #[test]
    fn failures_are_shown_with_allowed_retries() {
        assert_eq!(failures(0, 3), "");
        assert_eq!(failures(1, 0), " (failed 1 time; no retry was allowed)");
        assert_eq!(failures(2, 1), " (failed 2 times; 1 retry was allowed)");
        assert_eq!(failures(4, 3), " (failed 4 times; 3 retries were allowed)");
    }
}
