//! Table of jobs, as `muster list` and `muster top` print it.

use super::forecast::column;
use crate::clock;
use crate::output::{age, duration_s};
use crate::terminal::Column;
use muster_model::job::JobPhase;
use muster_model::study::TrialPhase;
use muster_model::view::{Count, JobView, ProgressView};

/// Columns of a job in a list. If the terminal is too narrow, those with the highest rank are left
/// out first.
pub const COLUMNS: [Column; 11] = [
    kept("name"),
    kept("phase"),
    optional("workers", 1),
    optional("ps", 7),
    optional("progress", 2),
    optional("train loss", 6),
    optional("evaluation", 4),
    optional("starts in", 5),
    optional("ends in", 3),
    optional("age", 1),
    kept("id"),
];

const fn kept(name: &'static str) -> Column {
    Column { name, rank: 0 }
}

const fn optional(name: &'static str, rank: u8) -> Column {
    Column { name, rank }
}

/// Length of a short id: the end of the id. Ids of one day have the same start.
const SHORT_ID: usize = 8;

/// Returns the end of the job's id, by which commands find the job, too.
#[must_use]
pub fn short_id(job: &JobView) -> String {
    let mut digits = job.id.0.simple().to_string();
    digits.split_off(digits.len() - SHORT_ID)
}

/// Returns `val 98.18%`, or `val loss 0.4321` if no accuracy was logged.
fn evaluation(progress: &ProgressView) -> Option<String> {
    let split = progress.evaluated_on?.label();
    let accuracy = progress.test_accuracy;
    accuracy
        .map(|share| format!("{split} {:.2}%", share * 100.0))
        .or_else(|| {
            progress
                .test_loss
                .map(|loss| format!("{split} loss {loss:.4}"))
        })
}

/// Returns the cells of [`COLUMNS`], with the whole id.
pub fn row(job: &JobView) -> [String; 11] {
    let now = clock::now();
    let expected = job.forecast.as_ref();
    let progress = job.progress.as_ref();
    [
        job.name.clone(),
        phase_and_reason(job),
        count(job.workers),
        count(job.ps_shards),
        progress.map_or_else(missing, |p| {
            p.total_steps
                .map_or_else(|| p.step.to_string(), |total| format!("{}/{total}", p.step))
        }),
        progress
            .and_then(|p| p.loss)
            .map_or_else(missing, |loss| format!("{loss:.4}")),
        progress.and_then(evaluation).unwrap_or_else(missing),
        column(expected.and_then(|one| one.start.as_ref()), now),
        match expected.and_then(|one| one.finish.as_ref()) {
            Some(finish) => column(Some(finish), now),
            None => progress
                .and_then(|p| p.eta_s)
                .map_or_else(missing, duration_s),
        },
        age(job.submitted_at, now),
        job.id.to_string(),
    ]
}

fn missing() -> String {
    "-".to_owned()
}

/// Returns why a job has failed or waits, or that it is idle; empty for others.
pub fn why(job: &JobView) -> String {
    let failed = job.failure.clone().or_else(|| {
        let last = job.last_failure.as_ref();
        last.filter(|_| !job.phase.is_terminal())
            .map(|last| format!("last failure: {last}"))
    });
    failed
        .or_else(|| job.waiting.as_ref().map(|waiting| waiting.message.clone()))
        .or_else(|| job.idle.as_ref().map(|idle| idle.evidence.clone()))
        .unwrap_or_default()
}

/// Returns the phase, for a waiting job the reason, and whether the job is idle.
#[must_use]
pub fn phase_and_reason(job: &JobView) -> String {
    let between = job
        .trial
        .is_some_and(|trial| trial.state == TrialPhase::Waiting);
    if between && job.phase == JobPhase::Succeeded {
        return "succeeded (between rungs)".to_owned();
    }
    match &job.waiting {
        // The phase of a paused job already says that it waits for its owner.
        Some(waiting) if job.phase != JobPhase::Paused => {
            format!("{} ({})", job.phase.as_str(), waiting.reason)
        }
        _ if job.idle.is_some() => format!("{} (idle)", job.phase.as_str()),
        _ => job.phase.as_str().to_owned(),
    }
}

/// Returns `3/2..8` for three running of two to eight.
#[must_use]
pub fn count(count: Count) -> String {
    if count.min == count.max {
        format!("{}/{}", count.running, count.max)
    } else {
        format!("{}/{}..{}", count.running, count.min, count.max)
    }
}
