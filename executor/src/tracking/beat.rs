//! Signs of life of a rank: the steps that it logs, reported at most every two seconds. Every rank
//! has them, while only metrics of rank 0 become the job's series.

use super::message::LoggedMetric;
use super::metric::{Meaning, meaning};
use muster_model::assignment::TaskReport;
use muster_model::pace::{Doing, PaceReport};

const EVERY_MS: u64 = 2_000;
/// Prefix of MLflow's own metrics of the machine. Their thread continues while the program hangs.
const OF_THE_MACHINE: &str = "system/";

/// State of one rank.
#[derive(Debug, Clone, Default)]
pub(super) struct StepHeartbeat {
    step: u64,
    /// Sum of own milliseconds of steps since the last report, and their number.
    own: (f64, u32),
    is_pending: bool,
    told_ms: Option<u64>,
}

/// Whether the program itself has logged the metric.
pub(super) fn is_of_program(metric: &LoggedMetric) -> bool {
    !metric.key.starts_with(OF_THE_MACHINE)
}

impl StepHeartbeat {
    pub(super) fn take(&mut self, metrics: &[LoggedMetric]) {
        let of_steps = metrics.iter().filter(|metric| is_of_program(metric));
        let Some(newest) = of_steps.clone().map(|metric| metric.step).max() else {
            return;
        };
        // Without steps, each logged batch counts as one.
        self.step = match newest {
            0 => self.step + 1,
            newest => newest,
        };
        for metric in of_steps.filter(|metric| meaning(&metric.key) == Meaning::OwnTime) {
            if metric.value.is_finite() && metric.value > 0.0 {
                self.own.0 += metric.value;
                self.own.1 += 1;
            }
        }
        self.is_pending = true;
    }

    /// Returns the report that is due, if any.
    pub(super) fn flush(&mut self, now_ms: u64) -> Option<TaskReport> {
        let is_due = self.told_ms.is_none_or(|at| now_ms >= at + EVERY_MS);
        if !self.is_pending || !is_due {
            return None;
        }
        self.is_pending = false;
        self.told_ms = Some(now_ms);
        let (sum, count) = std::mem::take(&mut self.own);
        let pace = PaceReport {
            step: self.step,
            own_ms: (count > 0).then(|| sum / f64::from(count)),
            doing: Doing::Working,
        };
        Some(TaskReport::Pace { pace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(key: &str, value: f64, step: u64) -> LoggedMetric {
        LoggedMetric {
            key: key.to_owned(),
            value,
            timestamp_ms: 0,
            step,
        }
    }

    fn told(beat: &mut StepHeartbeat, now_ms: u64) -> Option<(u64, Option<f64>)> {
        beat.flush(now_ms).map(|report| match report {
            TaskReport::Pace { pace } => (pace.step, pace.own_ms),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn rank_reports_step_and_own_time_every_two_seconds() {
        let mut beat = StepHeartbeat::default();
        assert_eq!(told(&mut beat, 0), None, "nothing was logged");
        beat.take(&[metric("loss", 1.0, 3), metric("compute_ms", 40.0, 3)]);
        assert_eq!(told(&mut beat, 0), Some((3, Some(40.0))));
        beat.take(&[metric("compute_ms", 10.0, 4)]);
        beat.take(&[metric("compute_ms", 20.0, 5)]);
        assert_eq!(told(&mut beat, 1_999), None);
        assert_eq!(told(&mut beat, 2_000), Some((5, Some(15.0))));
        assert_eq!(told(&mut beat, 9_000), None, "nothing since");
    }

    #[test]
    fn system_metrics_are_no_sign_of_life() {
        let mut beat = StepHeartbeat::default();
        beat.take(&[metric("system/cpu_utilization_percentage", 50.0, 7)]);
        assert_eq!(told(&mut beat, 0), None);
        beat.take(&[metric("loss", 1.0, 0)]);
        assert_eq!(told(&mut beat, 0), Some((1, None)), "counted by its points");
    }
}
