//! Values of all metrics of rank 0 until they are reported under their names.
//!
//! Several values of a name may become one point, a summary with their newest value. Points span
//! 2^k steps and begin at a multiple of it, as the buckets of the store do. So the work and the
//! bytes of a program that logs thousands of values per second are bounded.

use super::message::LoggedMetric;
use super::series::LoggedStep;
use muster_model::assignment::TaskReport;
use muster_model::metric::{self, MAX_POINTS_PER_REPORT, MergedValues, MetricPoint};
use std::collections::BTreeMap;

/// Minimum interval of reports.
const EVERY_MS: u64 = 2_000;
/// Bytes of reports per second in the long run: half of the allowance of a task.
const BYTES_PER_S: u64 = 8 << 10;
/// Maximum number of waiting points of all names together, and of one name.
const MOST_POINTS: usize = 1_000;
const POINTS_OF_A_NAME: std::ops::RangeInclusive<usize> = 2..=32;
/// Maximum size of a report in bytes, below that of a line.
const REPORT_BYTES: usize = 12 << 10;
/// Maximum size of a point as JSON, without its name.
const POINT_BYTES: usize = 200;
/// Name of the count of steps in lines without a value; it is no metric.
const STEP: &str = "step";

/// Buffer of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct MetricBuffer {
    names: BTreeMap<String, PendingMetric>,
    /// Time of the next report; `None` before the first one.
    due_ms: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct PendingMetric {
    /// Width of a point is 2^`width_log2` steps.
    width_log2: u32,
    /// In the order of their newest values.
    points: Vec<PendingPoint>,
    /// Step of the next value that is logged without a step.
    next_step: u64,
}

#[derive(Debug, Clone, Copy)]
struct PendingPoint {
    step: u64,
    value: f64,
    values: MergedValues,
}

impl MetricBuffer {
    /// Whether a report may be made.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        self.due_ms.is_none_or(|due| now_ms >= due)
    }

    /// Adds a value. `at` is the step that the curve gives it.
    pub(super) fn take(&mut self, logged: &LoggedMetric, at: LoggedStep) {
        if logged.key == STEP || !metric::is_stored(logged.value) {
            return;
        }
        let names = self.names.len() + 1;
        let most = (MOST_POINTS / names).clamp(*POINTS_OF_A_NAME.start(), *POINTS_OF_A_NAME.end());
        let pending = self.names.entry(logged.key.clone()).or_default();
        let step = match at {
            LoggedStep::Given(step) => step,
            // Values without a step must not fall together where no loss counts them.
            LoggedStep::Counted(step) => step.max(pending.next_step),
        };
        pending.next_step = step.saturating_add(1);
        pending.add(step, logged.value, most);
    }

    /// Returns the reports of all waiting points if they are due; with `at_once` in any case.
    pub(super) fn flush(&mut self, now_ms: u64, at_once: bool) -> Vec<TaskReport> {
        if !at_once && !self.is_due(now_ms) {
            return Vec::new();
        }
        let (mut reports, mut points, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut all_bytes = 0;
        for (name, pending) in &mut self.names {
            for point in pending.points.drain(..) {
                let size = name.len() + POINT_BYTES;
                if points.len() == MAX_POINTS_PER_REPORT || bytes + size > REPORT_BYTES {
                    reports.push(std::mem::take(&mut points));
                    bytes = 0;
                }
                bytes += size;
                all_bytes += size as u64;
                points.push(point.named(name));
            }
            pending.width_log2 = 0;
        }
        if !points.is_empty() {
            reports.push(points);
        }
        if !reports.is_empty() {
            let pause_ms = (all_bytes * 1_000 / BYTES_PER_S).max(EVERY_MS);
            self.due_ms = Some(now_ms + pause_ms);
        }
        let reports = reports.into_iter();
        reports
            .map(|points| TaskReport::Metrics { points })
            .collect()
    }
}

impl PendingMetric {
    fn add(&mut self, step: u64, value: f64, most: usize) {
        let values = MergedValues::of(value);
        let new = PendingPoint {
            step,
            value,
            values,
        };
        self.merge(new);
        while self.points.len() > most {
            self.width_log2 += 1;
            for point in std::mem::take(&mut self.points) {
                self.merge(point);
            }
        }
    }

    /// Adds a newer point to the one of the same bucket, if there is one.
    fn merge(&mut self, mut new: PendingPoint) {
        let width_log2 = self.width_log2;
        let bucket = |step: u64| step.checked_shr(width_log2).unwrap_or(0);
        // The newest points are at the end.
        let same = self
            .points
            .iter()
            .rposition(|point| bucket(point.step) == bucket(new.step));
        if let Some(same) = same {
            let before = self.points.remove(same);
            new.values = before.values.with(new.values);
        }
        self.points.push(new);
    }
}

impl PendingPoint {
    fn named(self, name: &str) -> MetricPoint {
        MetricPoint {
            name: name.to_owned(),
            step: self.step,
            value: self.value,
            merged: (self.values.count > 1).then_some(self.values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(buffer: &mut MetricBuffer, key: &str, value: f64, at: LoggedStep) {
        let metric = LoggedMetric {
            key: key.to_owned(),
            value,
            timestamp_ms: 0,
            step: 0,
        };
        buffer.take(&metric, at);
    }

    fn points(reports: Vec<TaskReport>) -> Vec<MetricPoint> {
        let points = reports.into_iter().map(|report| match report {
            TaskReport::Metrics { points } => points,
            other => panic!("{other:?}"),
        });
        points.flatten().collect()
    }

    fn steps(points: &[MetricPoint]) -> Vec<(&str, u64, f64)> {
        let points = points.iter();
        points
            .map(|point| (point.name.as_str(), point.step, point.value))
            .collect()
    }

    #[test]
    fn values_wait_for_the_interval() {
        let mut buffer = MetricBuffer::default();
        log(&mut buffer, "lr", 0.1, LoggedStep::Given(1));
        assert_eq!(steps(&points(buffer.flush(0, false))), [("lr", 1, 0.1)]);
        log(&mut buffer, "lr", 0.2, LoggedStep::Given(2));
        assert_eq!(buffer.flush(EVERY_MS - 1, false), []);
        assert_eq!(
            steps(&points(buffer.flush(EVERY_MS, false))),
            [("lr", 2, 0.2)]
        );
        log(&mut buffer, "lr", 0.3, LoggedStep::Given(3));
        assert_eq!(
            steps(&points(buffer.flush(EVERY_MS, true))),
            [("lr", 3, 0.3)]
        );
    }

    #[test]
    fn values_of_one_step_become_one_point() {
        let mut buffer = MetricBuffer::default();
        for (step, value) in [(7, 3.0), (8, 9.0), (7, 1.0)] {
            log(&mut buffer, "f1", value, LoggedStep::Given(step));
        }
        let points = points(buffer.flush(0, false));
        assert_eq!(steps(&points), [("f1", 8, 9.0), ("f1", 7, 1.0)]);
        let expected = MergedValues {
            count: 2,
            mean: 2.0,
            min: 1.0,
            max: 3.0,
        };
        assert_eq!(points[1].merged, Some(expected));
        assert_eq!(points[0].merged, None);
    }

    #[test]
    fn many_values_are_summarised_without_loss() {
        let mut buffer = MetricBuffer::default();
        for step in 0..10_000_u32 {
            let value = f64::from(step);
            log(&mut buffer, "loss", value, LoggedStep::Given(step.into()));
        }
        let points = points(buffer.flush(0, false));
        assert!((16..=32).contains(&points.len()), "{}", points.len());
        let all = points.iter().map(MetricPoint::summary);
        let all = all.reduce(MergedValues::with).expect("points");
        assert_eq!((all.count, all.min, all.max), (10_000, 0.0, 9_999.0));
        assert!((all.mean - 4_999.5).abs() < 1e-6, "{}", all.mean);
        let width = points[0].summary().count;
        assert!(width.is_power_of_two());
        for point in &points[..points.len() - 1] {
            assert_eq!(point.step % u64::from(width), u64::from(width) - 1);
        }
    }

    #[test]
    fn reports_fit_into_lines_and_slow_down() {
        let mut buffer = MetricBuffer::default();
        for name in 0..500 {
            let key = format!("{name:0>200}");
            for step in 0..4 {
                log(
                    &mut buffer,
                    &key,
                    -1e29 / 3.0,
                    LoggedStep::Given(step << 50),
                );
            }
        }
        let reports = buffer.flush(0, false);
        let lengths = reports.iter().map(|report| {
            let line = serde_json::to_string(report).expect("JSON");
            assert!(TaskReport::read(&line).is_ok());
            line.len()
        });
        let lengths: Vec<usize> = lengths.collect();
        let longest = lengths.iter().max().expect("reports");
        assert!(*longest <= muster_model::report::MAX_LINE_BYTES);
        log(&mut buffer, "lr", 0.1, LoggedStep::Given(1));
        let bytes: usize = lengths.iter().sum();
        let pause_ms = bytes as u64 * 1_000 / (16 << 10);
        assert!(pause_ms > EVERY_MS && !buffer.is_due(pause_ms));
    }

    #[test]
    fn values_without_a_step_are_numbered() {
        let mut buffer = MetricBuffer::default();
        for counted in [0, 0, 0, 9] {
            log(&mut buffer, "f1", 0.5, LoggedStep::Counted(counted));
        }
        let told = points(buffer.flush(0, false));
        let numbers: Vec<u64> = told.iter().map(|point| point.step).collect();
        assert_eq!(numbers, [0, 1, 2, 9]);
    }

    #[test]
    fn non_finite_values_and_counts_of_steps_are_skipped() {
        let mut buffer = MetricBuffer::default();
        for (key, value) in [
            ("a", f64::NAN),
            ("a", f64::INFINITY),
            ("a", 1e31),
            ("step", 7.0),
        ] {
            log(&mut buffer, key, value, LoggedStep::Given(1));
        }
        assert_eq!(buffer.flush(0, true), []);
    }
}
