//! Conversion of rows to response types.

use crate::clock;
use muster_model::checkpoint::{Checkpoint, Kept};
use muster_model::event::{Event, EventText};
use muster_model::id::TaskId;
use muster_model::idle::Idleness;
use muster_model::job::{Job, JobPhase, JobState};
use muster_model::pace::{self, Pace};
use muster_model::progress::{Evaluation, Sample};
use muster_model::spec::CheckpointPolicy;
use muster_model::task::TaskState;
use muster_model::view::{
    CheckpointView, Count, EvaluationView, EventView, IdleView, JobView, PaceView, ProgressView,
    SampleView, SuspectedView, TaskView, TrialRef, WaitingView,
};
use muster_store::event::StoredEvent;
use muster_store::job::JobRow;
use muster_store::task::{RankPace, TaskRow};
use std::collections::{BTreeMap, BTreeSet};
use time::OffsetDateTime;

/// `tenant` is the name of the job's tenant.
pub fn job(row: JobRow, tenant: &str) -> JobView {
    // A job that repeats its steps has no progress.
    let progress = progress(&row);
    let Job {
        id,
        spec,
        intent,
        state,
        revision,
        failures,
        waiting,
        submitted_at,
        started_at,
        finished_at,
        ..
    } = row.job;
    JobView {
        id,
        tenant: tenant.to_owned(),
        name: spec.name.clone(),
        labels: spec.labels.clone(),
        priority: spec.priority(),
        priority_class: spec.priority_class.clone(),
        phase: state.phase(),
        failure: match &state {
            JobState::Failed { reason } => Some(reason.clone()),
            _ => None,
        },
        state,
        intent,
        revision,
        edits: row.edits,
        failures,
        last_failure: row.last_failure,
        put_off: row.put_off,
        idle: row.idle.map(|found| idle(&found.idle, found.ends_after_ms)),
        waiting: waiting.map(WaitingView::from),
        workers: Count {
            running: row.workers,
            min: spec.scale.workers.min,
            max: spec.scale.workers.max,
        },
        ps_shards: Count {
            running: row.ps_shards,
            min: spec.ps_shards().min,
            max: spec.ps_shards().max,
        },
        progress,
        model_path: row.model_path,
        forecast: row.forecast.map(|found| found.seen_at(clock::now())),
        resume_step: row.resume_step,
        submitted_by: row.submitted_by,
        submitted_at,
        started_at,
        finished_at,
        trial: row.trial.map(|(study_id, number, state)| TrialRef {
            study_id,
            number,
            state,
        }),
        spec,
    }
}

/// Returns the row of a job that was just submitted, or of a dry run.
pub fn submitted(job: Job, user: &str) -> JobRow {
    JobRow {
        job,
        latest: None,
        sample_at: None,
        latest_evaluation: None,
        workers: 0,
        ps_shards: 0,
        model_path: None,
        submitted_by: user.to_owned(),
        edits: 0,
        last_failure: None,
        idle: None,
        put_off: 0,
        forecast: None,
        resume_step: None,
        begins_anew: false,
        trial: None,
    }
}

pub fn event(event: StoredEvent) -> EventView {
    let EventText { message, detail } = event.event.text();
    let waiting = match &event.event {
        Event::JobWaits { waiting } => Some(WaitingView::from(waiting.clone())),
        _ => None,
    };
    EventView {
        cursor: event.cursor.to_string(),
        at: event.at,
        tenant_id: event.tenant_id,
        job_id: event.job_id,
        node_id: event.node_id,
        message,
        detail,
        waiting,
        event: event.event,
    }
}

/// Returns the tasks of a job, with the pace of those that have reported it.
pub fn tasks(rows: Vec<TaskRow>, paces: &[RankPace]) -> Vec<TaskView> {
    let told: Vec<Pace> = paces.iter().map(|rank| rank.pace).collect();
    let views = paces.iter().zip(pace::of_median(&told));
    let views = views.map(|(rank, of_median)| (rank.task_id, pace_of(rank, of_median)));
    let mut views: BTreeMap<TaskId, PaceView> = views.collect();
    let tasks = rows.into_iter().map(|row| {
        let pace = views.remove(&row.task.id);
        task(row, pace)
    });
    tasks.collect()
}

fn pace_of(rank: &RankPace, of_median: Option<f64>) -> PaceView {
    let pace = &rank.pace;
    PaceView {
        step: pace.step,
        doing: pace.doing,
        own_ms: pace.own_ms,
        of_median,
        heard_at: at(pace.heard_ms),
        moved_at: at(pace.moved_ms),
        suspected: rank.suspect.map(|suspect| SuspectedView {
            of: suspect.of,
            since: at(suspect.since_ms),
        }),
    }
}

/// Returns idleness with its evidence at the present.
fn idle(idle: &Idleness, ends_after_ms: Option<u64>) -> IdleView {
    let now = clock::now().unix_timestamp_nanos() / 1_000_000;
    let ends_after_ms = ends_after_ms.and_then(|ms| i64::try_from(ms).ok());
    IdleView {
        since: at(idle.since_ms),
        evidence: idle.evidence(i64::try_from(now).unwrap_or(i64::MAX)),
        ends_at: ends_after_ms.map(|ms| at(idle.since_ms.saturating_add(ms))),
    }
}

/// Converts a time; an invalid one becomes the epoch.
fn at(unix_ms: i64) -> OffsetDateTime {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_ms) * 1_000_000);
    at.unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn task(row: TaskRow, pace: Option<PaceView>) -> TaskView {
    TaskView {
        id: row.task.id,
        job_id: row.task.job_id,
        name: row.task.role.to_string(),
        role: row.task.role,
        revision: row.task.revision,
        node_id: row.task.node_id,
        node: row.node_name,
        gpus: row.task.gpus,
        outcome: match &row.task.state {
            TaskState::Released { outcome } => Some(outcome.to_string()),
            _ => None,
        },
        state: row.task.state,
        shared_with: row.shared_with,
        rate_beside: row.rate_beside,
        usage: row.usage,
        idle: row.idle.map(|found| idle(&found, None)),
        address: row.task.address,
        created_at: row.created_at,
        released_at: row.released_at,
        pace,
    }
}

pub fn sample((at, sample): (OffsetDateTime, Sample)) -> SampleView {
    SampleView { at, sample }
}

pub fn evaluation((at, evaluation): (OffsetDateTime, Evaluation)) -> EvaluationView {
    EvaluationView { at, evaluation }
}

/// Returns all checkpoints of a job, with the reasons why they are retained: its policy, or
/// `spared`.
pub fn checkpoints(
    checkpoints: Vec<Checkpoint>,
    policy: &CheckpointPolicy,
    spared: &BTreeSet<u64>,
) -> Vec<CheckpointView> {
    let retained = checkpoints.iter().filter(|one| one.retained);
    let kept = policy.kept_of(retained);
    checkpoints
        .into_iter()
        .map(|mut checkpoint| {
            if !checkpoint.retained {
                checkpoint.written.files.clear();
            }
            let step = checkpoint.written.step;
            let reasons = kept.get(&step).cloned().unwrap_or_default().into_iter();
            let reasons = reasons.chain(spared.contains(&step).then_some(Kept::Origin));
            let program = checkpoint.program;
            CheckpointView {
                file_count: program.as_ref().map(|program| program.file_count),
                metrics: program.map(|program| program.metrics).unwrap_or_default(),
                id: checkpoint.id,
                kept: reasons.filter(|_| checkpoint.retained).collect(),
                written: checkpoint.written,
                retained: checkpoint.retained,
            }
        })
        .collect()
}

/// Returns the progress by the newest sample and evaluation. A program may log only one of them.
fn progress(row: &JobRow) -> Option<ProgressView> {
    let latest = row.latest.as_ref().filter(|_| !row.begins_anew);
    let evaluation = row.latest_evaluation.as_ref();
    let evaluated = evaluation.filter(|_| !row.begins_anew);
    let step = latest
        .map(|one| one.step)
        .max(evaluated.map(|one| one.step))?;
    let total_steps = row.job.spec.max_steps();
    // Epoch 0 of a program means that it logs no epochs.
    let is_program = row.job.spec.command.is_some();
    let epoch = latest
        .map(|one| one.epoch)
        .or(evaluated.map(|one| one.epoch));
    Some(ProgressView {
        step,
        total_steps,
        epoch: epoch.filter(|&epoch| !is_program || epoch != 0.0),
        loss: latest.map(|one| one.loss),
        accuracy: latest.and_then(|one| one.accuracy),
        test_accuracy: evaluation.and_then(|one| one.accuracy),
        test_loss: evaluation.and_then(|one| one.loss),
        evaluated_on: evaluation.map(|one| one.split),
        examples_per_s: latest.and_then(|one| one.examples_per_s),
        gain: latest.and_then(|one| one.gain),
        steps_per_s: latest.map(|one| one.steps_per_s),
        eta_s: latest
            .filter(|_| row.job.state.phase() == JobPhase::Running)
            .and_then(|latest| eta_s(latest, total_steps?)),
        sampled_at: row.sample_at,
    })
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn eta_s(latest: &Sample, total_steps: u64) -> Option<f64> {
    let left = total_steps.saturating_sub(latest.step) as f64;
    (latest.steps_per_s > 0.0).then(|| left / latest.steps_per_s)
}
