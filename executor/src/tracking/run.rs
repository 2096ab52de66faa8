//! The run of one task: values that its program has logged and can read again, and reports of them.
//!
//! Only metrics of rank 0 become the job's curve and series, as in the built-in engine. Otherwise
//! ranks that log the same metric would each produce a series.

use super::beat::StepHeartbeat;
use super::buffer::MetricBuffer;
use super::message::{LogBatch, LogSource, LoggedMetric, Malformed};
use super::metric::{Meaning, meaning};
use super::series::{LoggedStep, ProgressSeries};
use super::starts::WorkerStarts;
use super::tensorboard::ClaimedNames;
use crate::folder::NodeTaskFolder;
use muster_model::assignment::{TaskLaunch, TaskReport};
use std::collections::BTreeMap;

/// Maximum number of different keys of a run, per kind.
const MOST_KEYS: usize = 1_000;

/// The run of one task.
#[derive(Debug)]
pub(super) struct MlflowRun {
    /// Only for rank 0.
    series: Option<ProgressSeries>,
    /// Starts of the workers, if the launcher restarts them within the task.
    starts: Option<WorkerStarts>,
    /// All metrics of rank 0; empty for other ranks.
    buffer: MetricBuffer,
    beat: StepHeartbeat,
    /// Metrics that event files had first. Values of other interfaces are kept in the run and not
    /// reported.
    pub claimed_by_events: ClaimedNames,
    pub metrics: BTreeMap<String, LoggedMetric>,
    pub params: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    pub status: String,
    pub name: Option<String>,
    pub end_ms: Option<i64>,
}

impl MlflowRun {
    pub(super) fn new(series: Option<ProgressSeries>) -> Self {
        Self {
            series,
            starts: None,
            buffer: MetricBuffer::default(),
            beat: StepHeartbeat::default(),
            claimed_by_events: ClaimedNames::default(),
            metrics: BTreeMap::new(),
            params: BTreeMap::new(),
            tags: BTreeMap::new(),
            status: "RUNNING".to_owned(),
            name: None,
            end_ms: None,
        }
    }

    /// Follows restarts of the workers within the task, if the launcher of the job is elastic.
    pub(super) fn following(mut self, launch: &TaskLaunch, folder: &NodeTaskFolder) -> Self {
        self.starts = WorkerStarts::of(launch, folder);
        self
    }

    /// Stores logged values after `write` has accepted the resulting reports. If `write` fails,
    /// nothing is stored.
    ///
    /// # Errors
    /// [`Malformed`] above the maximum number of keys; the error of `write`.
    pub(super) fn log<E: From<Malformed>>(
        &mut self,
        batch: LogBatch,
        now_ms: u64,
        write: impl FnOnce(&[TaskReport]) -> Result<(), E>,
    ) -> Result<(), E> {
        has_room(
            &self.metrics,
            batch.metrics.iter().map(|metric| &metric.key),
        )?;
        has_room(&self.params, batch.params.iter().map(|(key, _)| key))?;
        has_room(&self.tags, batch.tags.iter().map(|(key, _)| key))?;
        let mut beat = self.beat.clone();
        beat.take(&batch.metrics);
        let restarted = self.starts.as_mut().and_then(WorkerStarts::newest);
        if let (Some(workers), Some(series)) = (restarted, &mut self.series) {
            series.restart(workers);
        }
        let mut series = self.series.clone();
        let mut reports = Vec::new();
        // Values of the former workers precede the report of the restart.
        let mut reported = restarted.map(|_| self.buffer.clone());
        if let Some(former) = &mut reported {
            reports.extend(former.flush(now_ms, true));
        }
        let mut steps: Vec<(&LoggedMetric, LoggedStep)> = Vec::new();
        if let Some(next) = &mut series {
            for (key, value) in &batch.params {
                next.parameter(key, value);
            }
            // In a batch of any order, the epoch and other descriptions of a point precede the
            // point.
            let mut ordered: Vec<&LoggedMetric> = batch.metrics.iter().collect();
            if batch.source == LogSource::Program {
                ordered.retain(|metric| !self.claimed_by_events.covers(&metric.key));
            }
            ordered.sort_by_key(|metric| match meaning(&metric.key) {
                Meaning::Epoch => 0,
                Meaning::TrainLoss => 2,
                _ => 1,
            });
            for metric in ordered {
                steps.push((metric, next.take(metric, now_ms, &mut reports)));
            }
            reports.extend(next.flush(now_ms, false));
        }
        // The buffer is large, so it is cloned only for a report.
        let is_due = reported.is_none() && self.buffer.is_due(now_ms);
        reported = reported.or_else(|| is_due.then(|| self.buffer.clone()));
        if let Some(next) = reported.as_mut().filter(|_| is_due) {
            steps
                .drain(..)
                .for_each(|(metric, at)| next.take(metric, at));
            reports.extend(next.flush(now_ms, false));
        }
        reports.extend(beat.flush(now_ms));
        write(&reports)?;
        (self.series, self.beat) = (series, beat);
        if let Some(reported) = reported {
            self.buffer = reported;
        }
        for (metric, at) in steps {
            self.buffer.take(metric, at);
        }
        for metric in batch.metrics {
            self.metrics.insert(metric.key.clone(), metric);
        }
        self.params.extend(batch.params);
        self.tags.extend(batch.tags);
        Ok(())
    }

    /// Writes buffered reports that are due; with `at_once` all of them.
    ///
    /// # Errors
    /// The error of `write`; the reports then stay buffered.
    pub(super) fn flush<E>(
        &mut self,
        now_ms: u64,
        at_once: bool,
        write: impl FnOnce(&[TaskReport]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut series, mut beat) = (self.series.clone(), self.beat.clone());
        let told = series.as_mut().map(|next| next.flush(now_ms, at_once));
        let mut reports = told.unwrap_or_default();
        let is_due = at_once || self.buffer.is_due(now_ms);
        let mut buffer = is_due.then(|| self.buffer.clone());
        if let Some(next) = &mut buffer {
            reports.extend(next.flush(now_ms, at_once));
        }
        reports.extend(beat.flush(now_ms));
        write(&reports)?;
        (self.series, self.beat) = (series, beat);
        if let Some(reported) = buffer {
            self.buffer = reported;
        }
        Ok(())
    }
}

fn has_room<'b, V>(
    kept: &BTreeMap<String, V>,
    keys: impl Iterator<Item = &'b String>,
) -> Result<(), Malformed> {
    let new: std::collections::BTreeSet<_> = keys.filter(|key| !kept.contains_key(*key)).collect();
    if kept.len() + new.len() > MOST_KEYS {
        return Err(Malformed {
            field: "key",
            expected: "one of at most 1000 different keys of a run",
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::series::TaskReportSummary;
    use super::*;

    /// Interval in which metrics are reported.
    const EVERY_MS: u64 = 2_000;

    use muster_model::progress::{Evaluation, Split};

    fn metric(key: &str, value: f64, at_s: i64, step: u64) -> LoggedMetric {
        let timestamp_ms = at_s * 1_000;
        let key = key.to_owned();
        LoggedMetric {
            key,
            value,
            timestamp_ms,
            step,
        }
    }

    fn of(metrics: Vec<LoggedMetric>) -> LogBatch {
        LogBatch {
            metrics,
            ..LogBatch::default()
        }
    }

    fn chief(is_first: bool) -> MlflowRun {
        MlflowRun::new(Some(ProgressSeries::new(
            is_first,
            2,
            0,
            TaskReportSummary::default(),
        )))
    }

    /// Returns the reports of the curve.
    fn of_curve(reports: &[TaskReport]) -> impl Iterator<Item = TaskReport> {
        let is_other = |report: &&TaskReport| {
            matches!(report, TaskReport::Pace { .. } | TaskReport::Metrics { .. })
        };
        reports
            .iter()
            .filter(move |report| !is_other(report))
            .cloned()
    }

    /// Returns the reports of the curve that a batch causes.
    fn logged(run: &mut MlflowRun, batch: LogBatch, now_ms: u64) -> Vec<TaskReport> {
        let mut written = Vec::new();
        let done: Result<(), Malformed> = run.log(batch, now_ms, |reports| {
            written.extend(of_curve(reports));
            Ok(())
        });
        done.expect("there is room");
        written
    }

    fn flushed(run: &mut MlflowRun, now_ms: u64, at_once: bool) -> Vec<TaskReport> {
        let mut written = Vec::new();
        let done: Result<(), Malformed> = run.flush(now_ms, at_once, |reports| {
            written.extend(of_curve(reports));
            Ok(())
        });
        done.expect("it is written");
        written
    }

    fn samples(reports: &[TaskReport]) -> Vec<(u64, f64, f64)> {
        let all = reports.iter().filter_map(|report| match report {
            TaskReport::Progress { sample } => Some((sample.step, sample.loss, sample.steps_per_s)),
            _ => None,
        });
        all.collect()
    }

    fn starts(reports: &[TaskReport]) -> Vec<u64> {
        let all = reports.iter().filter_map(|report| match report {
            TaskReport::Ready { from_step } => Some(*from_step),
            _ => None,
        });
        all.collect()
    }

    #[test]
    fn series_begins_at_the_resumed_step() {
        let mut run = chief(false);
        let first = logged(&mut run, of(vec![metric("loss", 2.0, 10, 41)]), 0);
        assert_eq!(first[0], TaskReport::Ready { from_step: 40 });
        assert_eq!(samples(&first), [(41, 2.0, 0.0)]);
        let later = logged(&mut run, of(vec![metric("loss", 1.0, 12, 51)]), 2_000);
        assert_eq!(samples(&later), [(51, 1.0, 5.0)]);
        assert_eq!(later.len(), 1, "it is ready once");
    }

    #[test]
    fn steps_go_back_once_after_a_restart_of_the_workers() {
        let mut run = chief(true);
        logged(&mut run, of(vec![metric("loss", 2.0, 10, 5)]), 0);
        logged(&mut run, of(vec![metric("loss", 2.0, 12, 9)]), 1_000);
        run.series.as_mut().expect("of rank 0").restart(3);
        let back = logged(&mut run, of(vec![metric("loss", 1.5, 20, 7)]), 2_000);
        let restarted = TaskReport::WorkersRestarted { from_step: 6 };
        assert_eq!(back[0], restarted, "it continues from a checkpoint");
        assert_eq!(samples(&back), [(7, 1.5, 0.0)], "the pause is no step");
        let Some(TaskReport::Progress { sample }) = back.last() else {
            panic!("{back:?}");
        };
        assert_eq!(sample.workers, 3);
        let again = logged(&mut run, of(vec![metric("loss", 1.0, 21, 3)]), 3_000);
        assert_eq!(again.len(), 1, "no further restart: {again:?}");
    }

    #[test]
    fn first_start_begins_at_step_zero() {
        let first = logged(&mut chief(true), of(vec![metric("loss", 2.0, 10, 5)]), 0);
        assert_eq!(starts(&first), [0]);
    }

    #[test]
    fn task_that_outlived_the_daemon_reports_no_second_start() {
        let mut told = TaskReportSummary::default();
        let reports = logged(&mut chief(true), of(vec![metric("loss", 2.0, 10, 5)]), 0);
        reports.iter().for_each(|report| told.hear(report));
        let mut run = MlflowRun::new(Some(ProgressSeries::new(true, 2, 0, told)));
        let next = logged(&mut run, of(vec![metric("loss", 1.0, 12, 6)]), 0);
        assert_eq!(starts(&next), [0_u64; 0]);
        assert_eq!(samples(&next), [(6, 1.0, 0.0)]);
    }

    #[test]
    fn frequent_points_are_averaged_without_loss() {
        let mut run = chief(false);
        logged(&mut run, of(vec![metric("loss", 9.0, 0, 1)]), 0);
        for step in 2..=4 {
            let at = i64::try_from(step).expect("small");
            let held = logged(
                &mut run,
                of(vec![metric("loss", at as f64, at, step)]),
                10 * step,
            );
            assert_eq!(held, []);
        }
        assert_eq!(flushed(&mut run, 60, false), []);
        assert_eq!(samples(&flushed(&mut run, 60, true)), [(4, 3.0, 0.75)]);
        assert_eq!(flushed(&mut run, 700, true), []);
    }

    #[test]
    fn failed_write_logs_nothing() {
        let mut run = chief(true);
        let full: Result<(), Malformed> = run.log(of(vec![metric("loss", 2.0, 10, 5)]), 0, |_| {
            Err(Malformed {
                field: "disk",
                expected: "room",
            })
        });
        assert!(full.is_err());
        assert!(run.metrics.is_empty());
        let again = logged(&mut run, of(vec![metric("loss", 2.0, 10, 5)]), 0);
        assert_eq!(
            (starts(&again), samples(&again)),
            (vec![0], vec![(5, 2.0, 0.0)])
        );
    }

    #[test]
    fn points_without_a_step_are_counted() {
        let mut run = chief(true);
        for second in 0..3 {
            let told = logged(
                &mut run,
                of(vec![metric("loss", 1.0, second, 0)]),
                1_000 * u64::try_from(second).expect("positive"),
            );
            assert_eq!(
                samples(&told)[0].0,
                u64::try_from(second).expect("positive")
            );
        }
    }

    fn evaluations(reports: &[TaskReport]) -> Vec<Evaluation> {
        let all = reports.iter().filter_map(|report| match report {
            TaskReport::Evaluated { evaluation } => Some(evaluation.clone()),
            _ => None,
        });
        all.collect()
    }

    fn validation(step: u64, loss: Option<f64>, accuracy: Option<f64>) -> Evaluation {
        Evaluation {
            step,
            epoch: 0.0,
            split: Split::Validation,
            loss,
            accuracy,
        }
    }

    #[test]
    fn both_numbers_of_one_step_are_one_evaluation() {
        let mut run = chief(false);
        let loss = logged(&mut run, of(vec![metric("val_loss", 0.4, 0, 20)]), 0);
        assert_eq!(loss, []);
        let told = logged(&mut run, of(vec![metric("val_acc", 0.7, 0, 20)]), 10);
        assert_eq!(starts(&told), [19]);
        assert_eq!(evaluations(&told), [validation(20, Some(0.4), Some(0.7))]);
        assert_eq!(flushed(&mut run, 1_000, true), []);
    }

    #[test]
    fn loss_alone_is_an_evaluation_without_accuracy() {
        let mut run = chief(true);
        assert_eq!(
            logged(&mut run, of(vec![metric("val_loss", 0.5, 0, 10)]), 0),
            []
        );
        let told = flushed(&mut run, 500, false);
        assert_eq!(
            told,
            [
                TaskReport::Ready { from_step: 0 },
                TaskReport::Evaluated {
                    evaluation: validation(10, Some(0.5), None)
                }
            ]
        );
        let next = logged(&mut run, of(vec![metric("val_loss", 0.4, 0, 20)]), 600);
        assert_eq!(next, []);
        let next = logged(&mut run, of(vec![metric("val_loss", 0.3, 0, 30)]), 610);
        assert_eq!(evaluations(&next), [validation(20, Some(0.4), None)]);
        let end = flushed(&mut run, 620, true);
        assert_eq!(evaluations(&end), [validation(30, Some(0.3), None)]);
    }

    #[test]
    fn accuracy_alone_is_an_evaluation_without_loss() {
        let mut run = chief(true);
        logged(&mut run, of(vec![metric("val_acc", 0.5, 0, 10)]), 0);
        let told = flushed(&mut run, 0, true);
        assert_eq!(evaluations(&told), [validation(10, None, Some(0.5))]);
    }

    #[test]
    fn late_second_number_completes_the_evaluation() {
        let mut run = chief(true);
        logged(&mut run, of(vec![metric("val_loss", 0.5, 0, 10)]), 0);
        assert_eq!(evaluations(&flushed(&mut run, 500, false)).len(), 1);
        let told = logged(&mut run, of(vec![metric("val_acc", 0.7, 0, 10)]), 900);
        assert_eq!(evaluations(&told), [validation(10, Some(0.5), Some(0.7))]);
    }

    #[test]
    fn test_and_validation_are_two_evaluations() {
        let mut run = chief(true);
        let batch = vec![
            metric("val_loss", 0.5, 0, 10),
            metric("test_accuracy", 0.9, 0, 10),
        ];
        let told = logged(&mut run, of(batch), 0);
        assert_eq!(evaluations(&told), [validation(10, Some(0.5), None)]);
        let test = Evaluation {
            split: Split::Test,
            ..validation(10, None, Some(0.9))
        };
        assert_eq!(evaluations(&flushed(&mut run, 0, true)), [test]);
    }

    #[test]
    fn start_precedes_an_evaluation_of_the_first_batch() {
        let batch = vec![
            metric("loss", 2.0, 0, 1),
            metric("val_loss", 0.5, 0, 1),
            metric("val_accuracy", 0.9, 0, 1),
            metric("epoch", 3.0, 0, 1),
        ];
        let told = logged(&mut chief(true), of(batch), 0);
        let kinds: Vec<&str> = told
            .iter()
            .map(|report| match report {
                TaskReport::Ready { .. } => "ready",
                TaskReport::Evaluated { .. } => "evaluated",
                TaskReport::Progress { .. } => "progress",
                _ => "other",
            })
            .collect();
        assert_eq!(kinds, ["ready", "evaluated", "progress"]);
        assert_eq!(evaluations(&told)[0].epoch, 3.0, "its own epoch");
    }

    #[test]
    fn sample_holds_only_what_was_logged() {
        let first = logged(&mut chief(true), of(vec![metric("loss", 2.0, 10, 5)]), 0);
        let Some(TaskReport::Progress { sample }) = first.last() else {
            panic!("{first:?}");
        };
        assert_eq!((sample.accuracy, sample.examples_per_s), (None, None));
        assert_eq!(
            (sample.compute_ms, sample.exchange_ms, sample.data_ms),
            (None, None, None)
        );
    }

    #[test]
    fn evaluations_above_the_rate_are_dropped_except_the_last() {
        let mut run = chief(false);
        let mut told = 0;
        for step in 1..=3_000 {
            let pair = vec![
                metric("val_loss", 0.5, 0, step),
                metric("val_acc", 0.5, 0, step),
            ];
            told += evaluations(&logged(&mut run, of(pair), 0)).len();
        }
        assert_eq!(told, 1_000);
        let last = flushed(&mut run, 1_000, false);
        assert!(
            matches!(last.as_slice(), [TaskReport::Evaluated { evaluation }] if evaluation.step == 3_000),
            "{last:?}"
        );
    }

    #[test]
    fn parameters_are_reported_together() {
        let mut run = chief(false);
        let [first, second, third] = ["a", "b", "c"].map(|key| LogBatch {
            params: vec![(key.to_owned(), "1".to_owned())],
            ..LogBatch::default()
        });
        assert_eq!(logged(&mut run, first, 0).len(), 1);
        for batch in [second, third] {
            assert_eq!(logged(&mut run, batch, 10), []);
        }
        let message = "parameters: b=1, c=1".to_owned();
        assert_eq!(
            flushed(&mut run, 200, false),
            [TaskReport::Note { message }]
        );
    }

    #[test]
    fn metrics_of_other_ranks_are_not_reported() {
        let mut run = MlflowRun::new(None);
        assert_eq!(logged(&mut run, of(vec![metric("loss", 2.0, 0, 1)]), 0), []);
        assert_eq!(run.metrics["loss"].value, 2.0);
    }

    /// Returns the points of all metrics that a batch causes.
    fn points(run: &mut MlflowRun, batch: LogBatch, now_ms: u64) -> Vec<(String, u64, f64)> {
        let mut told = Vec::new();
        let done: Result<(), Malformed> = run.log(batch, now_ms, |reports| {
            for report in reports {
                if let TaskReport::Metrics { points } = report {
                    told.extend(points.clone());
                }
            }
            Ok(())
        });
        done.expect("there is room");
        let points = told.into_iter();
        points
            .map(|point| (point.name, point.step, point.value))
            .collect()
    }

    #[test]
    fn every_name_of_rank_0_is_reported() {
        let batch = |step| {
            let names = ["train/f1", "loss", "lr"];
            of(names.map(|name| metric(name, 0.5, 0, step)).into())
        };
        let mut run = chief(true);
        let point = |name: &str, step| (name.to_owned(), step, 0.5);
        let all = |step| ["loss", "lr", "train/f1"].map(|name| point(name, step));
        assert_eq!(points(&mut run, batch(7), 0), all(7));
        assert_eq!(points(&mut run, batch(8), 1_000), []);
        let late = [point("loss", 8), point("loss", 9)];
        assert_eq!(points(&mut run, batch(9), 2_000)[..2], late);
        let mut other = MlflowRun::new(None);
        assert_eq!(points(&mut other, batch(7), 0), []);
    }

    #[test]
    fn failed_write_keeps_the_metrics_as_they_were() {
        let mut run = chief(true);
        let batch = || of(vec![metric("f1", 0.5, 0, 1)]);
        let full: Result<(), Malformed> = run.log(batch(), 0, |_| {
            Err(Malformed {
                field: "disk",
                expected: "room",
            })
        });
        assert!(full.is_err());
        assert_eq!(points(&mut run, batch(), 0), [("f1".to_owned(), 1, 0.5)]);
    }

    #[test]
    fn metrics_without_a_step_follow_the_loss() {
        let mut run = chief(true);
        let mut told = Vec::new();
        for second in 0..3 {
            let batch = of(vec![metric("loss", 1.0, 0, 0), metric("lr", 1.0, 0, 0)]);
            told.extend(points(&mut run, batch, second * EVERY_MS));
        }
        let steps = |name| {
            let of_name = told.iter().filter(move |point| point.0 == name);
            of_name.map(|point| point.1).collect::<Vec<u64>>()
        };
        assert_eq!((steps("loss"), steps("lr")), (vec![0, 1, 2], vec![0, 1, 2]));
    }

    #[test]
    fn keys_of_a_run_are_bounded() {
        let mut run = MlflowRun::new(None);
        let [first, again, more] = [0, 0, 1].map(|from| {
            of((from..from + 1_000)
                .map(|index| metric(&index.to_string(), 1.0, 0, 1))
                .collect())
        });
        logged(&mut run, first, 0);
        logged(&mut run, again, 0);
        let more: Result<(), Malformed> = run.log(more, 0, |_| Ok(()));
        assert!(more.is_err());
        assert_eq!(run.metrics.len(), 1_000);
    }

    #[test]
    fn non_finite_value_is_noted_once_and_not_reported() {
        let mut run = chief(false);
        let told = logged(
            &mut run,
            of(vec![
                metric("loss", f64::NAN, 0, 1),
                metric("loss", 1e31, 0, 2),
            ]),
            0,
        );
        assert!(
            matches!(told.as_slice(), [TaskReport::Note { message }] if message.contains("NaN at step 1")),
            "{told:?}"
        );
        let told = logged(
            &mut run,
            of(vec![metric("loss", 1.0, i64::MAX / 1_000, 3)]),
            0,
        );
        assert_eq!(samples(&told), [(3, 1.0, 0.0)]);
        let told = logged(
            &mut run,
            of(vec![metric("loss", 1.0, i64::MIN / 1_000, 4)]),
            500,
        );
        assert_eq!(samples(&told), [(4, 1.0, 0.0)]);
    }
}
