//! Values of a study's objectives, which are reported at each step and are not merged.
//!
//! A burst above the allowance is thinned: of the values that wait, the newest of each name stays.

use super::message::LoggedMetric;
use super::series::{LoggedStep, SampleTokenBucket};
use muster_model::assignment::TaskReport;
use muster_model::metric::{ObjectiveValue, ObjectiveValues, is_stored};
use std::collections::{BTreeMap, BTreeSet};

/// Objectives of one run.
#[derive(Debug, Clone)]
pub(super) struct ObjectiveSeries {
    names: BTreeSet<String>,
    allowance: SampleTokenBucket,
    /// Newest value above the allowance, by name.
    held: BTreeMap<String, ObjectiveValues>,
    /// Step of the next value that is logged without a step, by name.
    next_steps: BTreeMap<String, u64>,
}

impl ObjectiveSeries {
    pub(super) fn new(names: &BTreeSet<String>) -> Self {
        Self {
            names: names.clone(),
            allowance: SampleTokenBucket::full(),
            held: BTreeMap::new(),
            next_steps: BTreeMap::new(),
        }
    }

    /// Adds a value if it is one of an objective. `at` is the step that the curve gives it.
    pub(super) fn take(
        &mut self,
        logged: &LoggedMetric,
        at: LoggedStep,
        epoch: f64,
        now_ms: u64,
        reports: &mut Vec<TaskReport>,
    ) {
        let name = &logged.key;
        if !self.names.contains(name) {
            return;
        }
        let next_step = self.next_steps.entry(name.clone()).or_default();
        let step = match at {
            LoggedStep::Given(step) => step,
            // Values without a step must not fall together where no loss counts them.
            LoggedStep::Counted(step) => step.max(*next_step),
        };
        *next_step = step.saturating_add(1);
        let value = ObjectiveValue {
            name: name.clone(),
            value: is_stored(logged.value).then_some(logged.value),
        };
        let measured = ObjectiveValues {
            step,
            epoch,
            values: vec![value],
        };
        if self.allowance.take(now_ms) {
            self.held.remove(name);
            reports.push(TaskReport::ObjectivesMeasured { measured });
        } else {
            self.held.insert(name.clone(), measured);
        }
    }

    /// Returns the held values that the allowance permits; with `at_once` all of them.
    pub(super) fn flush(&mut self, now_ms: u64, at_once: bool, reports: &mut Vec<TaskReport>) {
        while !self.held.is_empty() && (at_once || self.allowance.take(now_ms)) {
            let first = self.held.pop_first();
            reports.extend(first.map(|(_, measured)| TaskReport::ObjectivesMeasured { measured }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series() -> ObjectiveSeries {
        ObjectiveSeries::new(&["val/f1".to_owned()].into())
    }

    fn logged(key: &str, value: f64) -> LoggedMetric {
        LoggedMetric {
            key: key.to_owned(),
            value,
            timestamp_ms: 0,
            step: 0,
        }
    }

    /// Returns step, epoch and value of each report.
    fn told(reports: &[TaskReport]) -> Vec<(u64, f64, Option<f64>)> {
        let told = reports.iter().map(|report| match report {
            TaskReport::ObjectivesMeasured { measured } => {
                (measured.step, measured.epoch, measured.values[0].value)
            }
            other => panic!("{other:?}"),
        });
        told.collect()
    }

    #[test]
    fn every_value_of_an_objective_is_reported_at_its_step() {
        let (mut series, mut reports) = (series(), Vec::new());
        for step in 1..=100_u32 {
            let value = f64::from(step);
            let at = LoggedStep::Given(step.into());
            series.take(&logged("val/f1", value), at, value, 0, &mut reports);
            series.take(&logged("loss", value), at, value, 0, &mut reports);
        }
        let all: Vec<_> = (1..=100_u32)
            .map(|step| (u64::from(step), f64::from(step), Some(f64::from(step))))
            .collect();
        assert_eq!(told(&reports), all);
    }

    #[test]
    fn value_that_is_not_finite_is_reported_without_number() {
        let (mut series, mut reports) = (series(), Vec::new());
        for value in [f64::NAN, f64::INFINITY, 1e31] {
            series.take(
                &logged("val/f1", value),
                LoggedStep::Given(3),
                1.0,
                0,
                &mut reports,
            );
        }
        assert_eq!(told(&reports), [(3, 1.0, None); 3]);
    }

    #[test]
    fn burst_is_thinned_except_its_newest_value() {
        let (mut series, mut reports) = (series(), Vec::new());
        for step in 0..3_000 {
            series.take(
                &logged("val/f1", 0.5),
                LoggedStep::Given(step),
                0.0,
                0,
                &mut reports,
            );
        }
        assert_eq!(reports.len(), 1_000);
        reports.clear();
        series.flush(0, false, &mut reports);
        assert_eq!(reports, []);
        series.flush(0, true, &mut reports);
        assert_eq!(told(&reports), [(2_999, 0.0, Some(0.5))]);
    }

    #[test]
    fn values_without_a_step_have_different_steps() {
        let (mut series, mut reports) = (series(), Vec::new());
        for counted in [0, 0, 9] {
            series.take(
                &logged("val/f1", 0.5),
                LoggedStep::Counted(counted),
                0.0,
                0,
                &mut reports,
            );
        }
        let steps: Vec<u64> = told(&reports).iter().map(|one| one.0).collect();
        assert_eq!(steps, [0, 1, 9]);
    }
}
