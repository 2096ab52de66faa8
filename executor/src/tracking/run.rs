//! What a program has logged, and the reports that it comes to. Pure: time is in what it is given.
//!
//! Only rank 0's metrics become the job's series, as the chief's do in the built-in engine: ranks that all log the same would each be a
//! line of their own. Points that come faster than the store wants them are averaged.

use super::message::{Batch, Metric};
use super::metric::{Meaning, meaning};
use muster_model::assignment::TaskReport;
use muster_model::progress::{Evaluation, Sample};
use std::collections::BTreeMap;

/// At most ten samples a second.
const EVERY_MS: u64 = 100;

/// One task's run.
#[derive(Debug)]
pub(super) struct Run {
    is_chief: bool,
    is_first: bool,
    workers: u32,
    ps_shards: u32,
    pub metrics: BTreeMap<String, Metric>,
    pub params: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    pub status: String,
    pub name: Option<String>,
    pub end_ms: Option<i64>,
    pending: Option<Pending>,
    /// Step and time of the newest sample's newest point.
    last: Option<(u64, i64)>,
    sampled_ms: Option<u64>,
    test: Test,
    accuracy: f64,
    epoch: f64,
    examples_per_s: f64,
    has_warned: bool,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    step: u64,
    at_ms: i64,
    loss_sum: f64,
    points: u32,
}

/// The newest evaluation, whose two halves come one after the other.
#[derive(Debug, Clone, Copy, Default)]
struct Test {
    loss: Option<(u64, f64)>,
    accuracy: Option<(u64, f64)>,
}

impl Run {
    /// `is_first`: the job has not been started before.
    pub(super) fn new(is_chief: bool, is_first: bool, workers: u32, ps_shards: u32) -> Self {
        Self {
            is_chief,
            is_first,
            workers,
            ps_shards,
            metrics: BTreeMap::new(),
            params: BTreeMap::new(),
            tags: BTreeMap::new(),
            status: "RUNNING".to_owned(),
            name: None,
            end_ms: None,
            pending: None,
            last: None,
            sampled_ms: None,
            test: Test::default(),
            accuracy: 0.0,
            epoch: 0.0,
            examples_per_s: 0.0,
            has_warned: false,
        }
    }

    /// Keeps what was logged and says what is to be reported of it now.
    pub(super) fn log(&mut self, batch: Batch, now_ms: u64) -> Vec<TaskReport> {
        let mut reports = Vec::new();
        if self.is_chief && !batch.params.is_empty() {
            let pairs = batch
                .params
                .iter()
                .map(|(key, value)| format!("{key}={value}"));
            let text: String = pairs
                .collect::<Vec<_>>()
                .join(", ")
                .chars()
                .take(2_000)
                .collect();
            reports.push(TaskReport::Note {
                message: format!("parameters: {text}"),
            });
        }
        self.params.extend(batch.params);
        self.tags.extend(batch.tags);
        // What describes a point comes before the point itself, in whatever order it was written.
        let (points, others): (Vec<Metric>, Vec<Metric>) = batch
            .metrics
            .into_iter()
            .partition(|metric| meaning(&metric.key) == Meaning::TrainLoss);
        for metric in others.into_iter().chain(points) {
            if self.is_chief {
                self.take(&metric, &mut reports);
            }
            self.metrics.insert(metric.key.clone(), metric);
        }
        let is_due = self.sampled_ms.is_none_or(|at| now_ms >= at + EVERY_MS);
        if is_due {
            reports.extend(self.flush(now_ms));
        }
        reports
    }

    /// The sample that is still held back.
    pub(super) fn flush(&mut self, now_ms: u64) -> Vec<TaskReport> {
        let Some(pending) = self.pending.take() else {
            return Vec::new();
        };
        self.sampled_ms = Some(now_ms);
        let mut reports = Vec::new();
        let steps_per_s = match self.last {
            // A start: what an earlier revision told of later steps never happened to this model.
            None => {
                let before = pending.step.saturating_sub(1);
                let from_step = if self.is_first { 0 } else { before };
                reports.push(TaskReport::Ready { from_step });
                0.0
            }
            Some((step, at_ms)) => rate(pending.step.saturating_sub(step), pending.at_ms - at_ms),
        };
        self.last = Some((pending.step, pending.at_ms));
        reports.push(TaskReport::Progress {
            sample: Sample {
                step: pending.step,
                epoch: self.epoch,
                loss: pending.loss_sum / f64::from(pending.points),
                accuracy: self.accuracy,
                examples_per_s: self.examples_per_s,
                steps_per_s,
                compute_ms: 0.0,
                exchange_ms: 0.0,
                data_ms: 0.0,
                workers: self.workers,
                ps_shards: self.ps_shards,
                noise_scale: None,
            },
        });
        reports
    }

    fn take(&mut self, metric: &Metric, reports: &mut Vec<TaskReport>) {
        let (step, value) = (metric.step, metric.value);
        if !value.is_finite() {
            if meaning(&metric.key) != Meaning::Other
                && !std::mem::replace(&mut self.has_warned, true)
            {
                reports.push(TaskReport::Note {
                    message: format!(
                        "{} is {value} at step {step}; such points are not shown",
                        metric.key
                    ),
                });
            }
            return;
        }
        match meaning(&metric.key) {
            Meaning::TrainLoss => self.point(step, metric.timestamp_ms, value),
            Meaning::TrainAccuracy => self.accuracy = value,
            Meaning::Epoch => self.epoch = value.max(0.0),
            Meaning::ExamplesPerSecond => self.examples_per_s = value.max(0.0),
            Meaning::TestLoss => self.test.loss = Some((step, value)),
            Meaning::TestAccuracy => self.test.accuracy = Some((step, value)),
            Meaning::Other => {}
        }
        if matches!(
            meaning(&metric.key),
            Meaning::TestLoss | Meaning::TestAccuracy
        ) {
            reports.extend(self.evaluated());
        }
    }

    fn point(&mut self, step: u64, at_ms: i64, loss: f64) {
        let pending = self.pending.get_or_insert(Pending {
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

    fn evaluated(&mut self) -> Option<TaskReport> {
        let ((step, loss), (other, accuracy)) = (self.test.loss?, self.test.accuracy?);
        if step != other {
            return None;
        }
        self.test = Test::default();
        Some(TaskReport::Evaluated {
            evaluation: Evaluation {
                step,
                epoch: self.epoch,
                loss,
                accuracy,
            },
        })
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "steps and milliseconds are far below 2^53"
)]
fn rate(steps: u64, ms: i64) -> f64 {
    if ms > 0 {
        steps as f64 * 1_000.0 / ms as f64
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(key: &str, value: f64, at_s: i64, step: u64) -> Metric {
        let timestamp_ms = at_s * 1_000;
        let key = key.to_owned();
        Metric {
            key,
            value,
            timestamp_ms,
            step,
        }
    }

    fn of(metrics: Vec<Metric>) -> Batch {
        Batch {
            metrics,
            ..Batch::default()
        }
    }

    fn samples(reports: &[TaskReport]) -> Vec<(u64, f64, f64)> {
        let all = reports.iter().filter_map(|report| match report {
            TaskReport::Progress { sample } => Some((sample.step, sample.loss, sample.steps_per_s)),
            _ => None,
        });
        all.collect()
    }

    #[test]
    fn a_series_begins_where_the_script_went_on() {
        let mut run = Run::new(true, false, 2, 0);
        let first = run.log(of(vec![metric("loss", 2.0, 10, 41)]), 0);
        assert_eq!(first[0], TaskReport::Ready { from_step: 40 });
        assert_eq!(samples(&first), [(41, 2.0, 0.0)]);
        let later = run.log(of(vec![metric("loss", 1.0, 12, 51)]), 2_000);
        assert_eq!(samples(&later), [(51, 1.0, 5.0)]);
        assert_eq!(later.len(), 1, "it is ready once");
    }

    #[test]
    fn the_first_start_goes_on_from_nothing_however_late_it_first_reports() {
        let mut run = Run::new(true, true, 2, 0);
        let first = run.log(of(vec![metric("loss", 2.0, 10, 5)]), 0);
        assert_eq!(first[0], TaskReport::Ready { from_step: 0 });
    }

    #[test]
    fn points_that_come_fast_are_averaged_and_none_is_lost() {
        let mut run = Run::new(true, false, 1, 0);
        run.log(of(vec![metric("loss", 9.0, 0, 1)]), 0);
        for step in 2..=4 {
            let at = i64::try_from(step).expect("small");
            let held = run.log(of(vec![metric("loss", at as f64, at, step)]), 10 * step);
            assert_eq!(held, []);
        }
        assert_eq!(samples(&run.flush(60)), [(4, 3.0, 0.75)]);
        assert_eq!(run.flush(70), []);
    }

    #[test]
    fn an_evaluation_is_complete_when_both_halves_are_of_one_step() {
        let mut run = Run::new(true, false, 1, 0);
        assert_eq!(run.log(of(vec![metric("val_loss", 0.5, 0, 10)]), 0), []);
        assert_eq!(run.log(of(vec![metric("val_acc", 0.7, 0, 20)]), 0), []);
        let told = run.log(
            of(vec![
                metric("epoch", 2.0, 0, 20),
                metric("val_loss", 0.4, 0, 20),
            ]),
            0,
        );
        let evaluation = Evaluation {
            step: 20,
            epoch: 2.0,
            loss: 0.4,
            accuracy: 0.7,
        };
        assert_eq!(told, [TaskReport::Evaluated { evaluation }]);
    }

    #[test]
    fn other_ranks_keep_their_metrics_to_themselves() {
        let mut run = Run::new(false, false, 2, 0);
        assert_eq!(run.log(of(vec![metric("loss", 2.0, 0, 1)]), 0), []);
        assert_eq!(run.metrics["loss"].value, 2.0);
    }

    #[test]
    fn what_is_no_number_is_told_once_and_not_shown() {
        let mut run = Run::new(true, false, 1, 0);
        let told = run.log(
            of(vec![
                metric("loss", f64::NAN, 0, 1),
                metric("loss", f64::NAN, 0, 2),
            ]),
            0,
        );
        assert!(
            matches!(told.as_slice(), [TaskReport::Note { message }] if message.contains("NaN at step 1")),
            "{told:?}"
        );
        let told = run.log(of(vec![metric("loss", 1.0, 0, 3)]), 0);
        assert_eq!(samples(&told), [(3, 1.0, 0.0)]);
    }
}
