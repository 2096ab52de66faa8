//! The job's series among the values that its program logs. Pure: times are inputs.
//!
//! Points that arrive faster than the store accepts are averaged. Evaluations above a burst are
//! dropped except the newest, and parameters are collected into one report. A failed write must
//! leave the series unchanged. So callers work on a clone, and the series has a bounded size.

use super::message::LoggedMetric;
use super::metric::{Meaning, meaning};
use super::objective::ObjectiveSeries;
use muster_model::assignment::TaskReport;
use muster_model::metric::is_stored;
use muster_model::progress::{Evaluation, Sample, Split};
use std::collections::BTreeSet;
use std::time::Duration;

/// Minimum interval of samples: ten per second.
const EVERY_MS: u64 = 100;
/// Maximum burst of evaluations, as at the end of a training, and the rate after it.
const MOST_EVALUATIONS: f64 = 1_000.0;
const EVALUATIONS_PER_S: f64 = 10.0;
/// Time in which the other number of an evaluation may arrive. A later one causes a second report.
const HALF_WAITS_MS: u64 = 500;
/// Maximum length of the parameters in one entry of the history, in characters.
const MOST_CHARACTERS: usize = 2_000;

/// The series of a job, from its rank 0.
#[derive(Debug, Clone)]
pub(super) struct ProgressSeries {
    /// Whether this is the first start of the job.
    is_first: bool,
    workers: u32,
    ps_shards: u32,
    is_ready: bool,
    /// Whether the workers were started again within this task, so that steps may go back once.
    may_go_back: bool,
    pending: Option<PendingSample>,
    /// Step of the newest point.
    newest_point: Option<u64>,
    /// Step and time of the newest point in the last sample.
    last: Option<(u64, i64)>,
    told_ms: Option<u64>,
    /// The newest evaluation.
    newest: Option<PendingEvaluation>,
    evaluations: SampleTokenBucket,
    /// The newest evaluation above the allowance.
    held: Option<Evaluation>,
    /// Parameters that are not reported yet.
    parameters: String,
    accuracy: Option<f64>,
    epoch: f64,
    examples_per_s: Option<f64>,
    has_warned: bool,
    /// Step of the next loss point while no point had a step: such points are numbered.
    without_step: Option<u64>,
    objectives: ObjectiveSeries,
}

#[derive(Debug, Clone, Copy)]
struct PendingSample {
    step: u64,
    at_ms: i64,
    loss_sum: f64,
    points: u32,
}

/// An evaluation whose loss and accuracy may arrive one after the other.
#[derive(Debug, Clone)]
struct PendingEvaluation {
    evaluation: Evaluation,
    since_ms: u64,
    /// It contains a number that is not reported yet.
    is_new: bool,
}

/// One number of an evaluation.
#[derive(Debug, Clone, Copy)]
enum EvaluationValue {
    Loss(f64),
    Accuracy(f64),
}

/// Step of a logged value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoggedStep {
    /// The program gave it.
    Given(u64),
    /// Number of the loss points before it, because no value had a step so far.
    Counted(u64),
}

/// Token bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleTokenBucket {
    left: f64,
    at_ms: u64,
}

/// Summary of the task's earlier reports, which another daemon may have stored.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TaskReportSummary {
    is_ready: bool,
    /// Newest step of its samples and metrics.
    newest_step: Option<u64>,
}

impl TaskReportSummary {
    /// Adds one report.
    pub(super) fn hear(&mut self, report: &TaskReport) {
        match report {
            TaskReport::Progress { sample } => {
                self.newest_step = self.newest_step.max(Some(sample.step));
            }
            TaskReport::Metrics { points } => {
                let newest = points.iter().map(|point| point.step).max();
                self.newest_step = self.newest_step.max(newest);
            }
            TaskReport::ObjectivesMeasured { measured } => {
                self.newest_step = self.newest_step.max(Some(measured.step));
            }
            TaskReport::Ready { .. } => self.is_ready = true,
            _ => {}
        }
    }
}

impl ProgressSeries {
    pub(super) fn new(
        is_first: bool,
        workers: u32,
        ps_shards: u32,
        told: TaskReportSummary,
    ) -> Self {
        Self {
            is_first,
            workers,
            ps_shards,
            is_ready: told.is_ready,
            may_go_back: false,
            pending: None,
            newest_point: told.newest_step,
            last: None,
            told_ms: None,
            newest: None,
            evaluations: SampleTokenBucket::full(),
            held: None,
            parameters: String::new(),
            accuracy: None,
            epoch: 0.0,
            examples_per_s: None,
            has_warned: false,
            without_step: Some(told.newest_step.map_or(0, |step| step + 1)),
            objectives: ObjectiveSeries::new(&BTreeSet::new()),
        }
    }

    /// Sets the objectives of the trial's study, which are reported at each step.
    pub(super) fn with_objectives(mut self, names: &BTreeSet<String>) -> Self {
        self.objectives = ObjectiveSeries::new(names);
        self
    }

    /// Follows a restart of the workers within this task. The next rate would include the restart,
    /// so it is not reported.
    pub(super) fn restart(&mut self, workers: u32) {
        self.workers = workers;
        self.may_go_back = true;
        self.last = None;
    }

    /// Adds a parameter, which the next flush reports.
    pub(super) fn parameter(&mut self, key: &str, value: &str) {
        if self.parameters.chars().count() >= MOST_CHARACTERS {
            return;
        }
        let comma = if self.parameters.is_empty() { "" } else { ", " };
        let text = format!("{comma}{key}={value}");
        let room = MOST_CHARACTERS - self.parameters.chars().count();
        self.parameters.extend(text.chars().take(room));
    }

    /// Adds a point, and appends reports that are due at once. Returns the step of the point.
    pub(super) fn take(
        &mut self,
        metric: &LoggedMetric,
        now_ms: u64,
        reports: &mut Vec<TaskReport>,
    ) -> LoggedStep {
        let value = metric.value;
        let means = meaning(&metric.key);
        let logged_step = self.step(metric, means);
        let (LoggedStep::Given(step) | LoggedStep::Counted(step)) = logged_step;
        self.objectives
            .take(metric, logged_step, self.epoch, now_ms, reports);
        if !is_stored(value) {
            if means != Meaning::Other && !std::mem::replace(&mut self.has_warned, true) {
                reports.push(TaskReport::Note {
                    message: format!(
                        "{} is {value} at step {step}; such points are not shown",
                        metric.key
                    ),
                });
            }
            return logged_step;
        }
        match means {
            Meaning::TrainLoss => {
                self.go_back(step, reports);
                self.point(step, metric.timestamp_ms, value);
            }
            Meaning::TrainAccuracy => self.accuracy = Some(value),
            Meaning::Epoch => self.epoch = value.clamp(0.0, 1e9),
            Meaning::ExamplesPerSecond => self.examples_per_s = Some(value.max(0.0)),
            Meaning::EvaluationLoss(split) => {
                self.half((step, split), EvaluationValue::Loss(value), now_ms, reports);
            }
            Meaning::EvaluationAccuracy(split) => {
                self.half(
                    (step, split),
                    EvaluationValue::Accuracy(value),
                    now_ms,
                    reports,
                );
            }
            Meaning::OwnTime | Meaning::Other => {}
        }
        logged_step
    }

    /// Adds a number to an evaluation. The evaluation is reported when both numbers are known or
    /// another one begins; a flush reports one that stays incomplete.
    fn half(
        &mut self,
        (step, split): (u64, Split),
        half: EvaluationValue,
        now_ms: u64,
        reports: &mut Vec<TaskReport>,
    ) {
        if !self.newest.as_ref().is_some_and(|newest| {
            (newest.evaluation.step, newest.evaluation.split) == (step, split)
        }) {
            self.evaluated(now_ms, reports);
            self.newest = None;
        }
        let newest = self.newest.get_or_insert(PendingEvaluation {
            evaluation: Evaluation {
                step,
                epoch: 0.0,
                split,
                loss: None,
                accuracy: None,
            },
            since_ms: now_ms,
            is_new: true,
        });
        if !std::mem::replace(&mut newest.is_new, true) {
            newest.since_ms = now_ms;
        }
        let evaluation = &mut newest.evaluation;
        evaluation.epoch = self.epoch;
        match half {
            EvaluationValue::Loss(value) => evaluation.loss = Some(value),
            EvaluationValue::Accuracy(value) => evaluation.accuracy = Some(value),
        }
        if evaluation.loss.is_some() && evaluation.accuracy.is_some() {
            self.evaluated(now_ms, reports);
        }
    }

    /// Reports the newest evaluation, unless it is reported or the allowance is exhausted.
    fn evaluated(&mut self, now_ms: u64, reports: &mut Vec<TaskReport>) {
        let Some(newest) = self.newest.as_mut().filter(|newest| newest.is_new) else {
            return;
        };
        newest.is_new = false;
        let evaluation = newest.evaluation.clone();
        if self.evaluations.take(now_ms) {
            self.held = None;
            self.ready(evaluation.step, reports);
            reports.push(TaskReport::Evaluated { evaluation });
        } else {
            self.held = Some(evaluation);
        }
    }

    /// Reports that the workers continue from an earlier step, if they do after their restart.
    /// Points that wait are of steps that are repeated.
    fn go_back(&mut self, step: u64, reports: &mut Vec<TaskReport>) {
        let is_earlier = self.newest_point.is_some_and(|newest| step <= newest);
        if self.may_go_back && is_earlier {
            self.may_go_back = false;
            self.pending = None;
            self.last = None;
            let from_step = step.saturating_sub(1);
            reports.push(TaskReport::WorkersRestarted { from_step });
        }
        self.newest_point = Some(step);
    }

    /// Reports the start before the first number. Later steps of an earlier revision are thereby
    /// discarded.
    fn ready(&mut self, first_step: u64, reports: &mut Vec<TaskReport>) {
        if !std::mem::replace(&mut self.is_ready, true) {
            let before = first_step.saturating_sub(1);
            let from_step = if self.is_first { 0 } else { before };
            reports.push(TaskReport::Ready { from_step });
        }
    }

    /// Returns the buffered reports that are due; with `at_once` all of them.
    pub(super) fn flush(&mut self, now_ms: u64, at_once: bool) -> Vec<TaskReport> {
        let is_due = self.told_ms.is_none_or(|at| now_ms >= at + EVERY_MS);
        let mut reports = Vec::new();
        if !is_due && !at_once {
            return reports;
        }
        if !self.parameters.is_empty() {
            reports.push(TaskReport::Note {
                message: format!("parameters: {}", std::mem::take(&mut self.parameters)),
            });
        }
        let is_old =
            |newest: &PendingEvaluation| at_once || now_ms >= newest.since_ms + HALF_WAITS_MS;
        if self.newest.as_ref().is_some_and(is_old) {
            self.evaluated(now_ms, &mut reports);
        }
        if self.held.is_some()
            && (at_once || self.evaluations.take(now_ms))
            && let Some(evaluation) = self.held.take()
        {
            self.ready(evaluation.step, &mut reports);
            reports.push(TaskReport::Evaluated { evaluation });
        }
        self.objectives.flush(now_ms, at_once, &mut reports);
        if let Some(pending) = self.pending.take() {
            self.sample(pending, &mut reports);
        }
        if !reports.is_empty() {
            self.told_ms = Some(now_ms);
        }
        reports
    }

    fn sample(&mut self, pending: PendingSample, reports: &mut Vec<TaskReport>) {
        self.ready(pending.step, reports);
        let steps_per_s = self.last.map_or(0.0, |(step, at_ms)| {
            rate(
                pending.step.saturating_sub(step),
                pending.at_ms.saturating_sub(at_ms),
            )
        });
        self.last = Some((pending.step, pending.at_ms));
        reports.push(TaskReport::Progress {
            sample: Sample {
                step: pending.step,
                epoch: self.epoch,
                loss: pending.loss_sum / f64::from(pending.points),
                accuracy: self.accuracy,
                examples_per_s: self.examples_per_s,
                steps_per_s,
                compute_ms: None,
                exchange_ms: None,
                data_ms: None,
                workers: self.workers,
                ps_shards: self.ps_shards,
                noise_scale: None,
                gain: None,
            },
        });
    }

    fn step(&mut self, metric: &LoggedMetric, means: Meaning) -> LoggedStep {
        if metric.step > 0 {
            self.without_step = None;
        }
        let Some(points) = &mut self.without_step else {
            return LoggedStep::Given(metric.step);
        };
        let step = *points;
        if means == Meaning::TrainLoss {
            *points += 1;
        }
        LoggedStep::Counted(step)
    }

    fn point(&mut self, step: u64, at_ms: i64, loss: f64) {
        let pending = self.pending.get_or_insert(PendingSample {
            step,
            at_ms,
            loss_sum: 0.0,
            points: 0,
        });
        pending.step = step;
        pending.at_ms = at_ms;
        pending.loss_sum += loss;
        pending.points += 1;
    }
}

impl SampleTokenBucket {
    pub(super) fn full() -> Self {
        Self {
            left: MOST_EVALUATIONS,
            at_ms: 0,
        }
    }

    pub(super) fn take(&mut self, now_ms: u64) -> bool {
        let since_s = Duration::from_millis(now_ms.saturating_sub(self.at_ms)).as_secs_f64();
        self.at_ms = now_ms;
        self.left = (self.left + since_s * EVALUATIONS_PER_S).min(MOST_EVALUATIONS);
        let is_there = self.left >= 1.0;
        if is_there {
            self.left -= 1.0;
        }
        is_there
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
fn rate(steps: u64, ms: i64) -> f64 {
    if ms > 0 {
        steps as f64 * 1_000.0 / ms as f64
    } else {
        0.0
    }
}
