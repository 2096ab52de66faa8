//! Measurements of a trial's objectives, from the curve of its job and from the metrics that its
//! program logs. Pure.
//!
//! A program is measured at each step at which it logs an objective of its own. Another objective
//! then has its newest value up to that step.

use muster_model::metric::Goal;
use muster_model::progress::{Evaluation, Sample};
use muster_model::study::{JobMetric, Objective, SearchSpec};
use muster_store::study::LoggedObjective;
use muster_store::study::search::TrialJobFacts;
use std::collections::BTreeMap;

/// Measurement of a job at one step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JobMeasurement {
    pub step: u64,
    pub epoch: f64,
    /// One value per objective; `None` if an objective has none yet.
    pub values: Option<Vec<f64>>,
}

/// Newest values of the program's own objectives.
type NewestValues<'a> = BTreeMap<&'a str, &'a LoggedObjective>;

/// Returns the measurements that the search does not know yet, by step.
pub(super) fn measurements(spec: &SearchSpec, fact: &TrialJobFacts) -> Vec<JobMeasurement> {
    if spec.logged_objectives().next().is_some() {
        return of_program(spec, fact);
    }
    let none = NewestValues::new();
    let evaluations = fact.evaluations.iter();
    let measurements = evaluations.map(|(evaluation, sample)| JobMeasurement {
        step: evaluation.step,
        epoch: evaluation.epoch,
        values: all(spec, &none, Some(evaluation), sample.as_ref()),
    });
    measurements.collect()
}

/// Returns the newest value of each objective; `None` for one without a value.
pub(super) fn newest(spec: &SearchSpec, fact: &TrialJobFacts) -> Vec<Option<f64>> {
    let own: NewestValues = fact
        .logged
        .iter()
        .map(|one| (one.stored.name.as_str(), one))
        .collect();
    let (evaluation, sample) = (fact.latest_evaluation.as_ref(), fact.latest.as_ref());
    let objectives = spec.objectives.iter();
    objectives
        .map(|objective| value(objective, &own, evaluation, sample))
        .collect()
}

/// Returns measurements at the steps of the program's own objectives. The newest step waits until
/// each objective, and an evaluation if one is an objective, has a value there, a later step begins
/// or the job ends. A node reports an evaluation some time after the other metrics of its step.
fn of_program(spec: &SearchSpec, fact: &TrialJobFacts) -> Vec<JobMeasurement> {
    let own = spec.logged_objectives().count();
    let names = spec.objectives.iter().map(|one| one.metric.as_str());
    let wants_evaluation = names
        .filter_map(JobMetric::named)
        .any(JobMetric::is_of_test);
    let newest_step = fact.logged.last().map(|one| one.stored.step);
    let mut newest = NewestValues::new();
    let mut measurements = Vec::new();
    for at_step in fact
        .logged
        .chunk_by(|one, next| one.stored.step == next.stored.step)
    {
        for one in at_step {
            newest.insert(&one.stored.name, one);
        }
        let (one, step) = (&at_step[0], at_step[0].stored.step);
        let is_known = fact.known_step.is_some_and(|known| step <= known);
        let evaluation = one.evaluation.as_ref();
        let lacks_evaluation = wants_evaluation && evaluation.is_none_or(|of| of.step < step);
        let is_open = Some(step) == newest_step
            && (at_step.len() < own || lacks_evaluation)
            && !fact.state.phase().is_terminal();
        if is_known || is_open {
            continue;
        }
        measurements.push(JobMeasurement {
            step,
            epoch: one.stored.epoch,
            values: all(spec, &newest, evaluation, one.sample.as_ref()),
        });
    }
    measurements
}

/// One value per objective; `None` if one is missing.
fn all(
    spec: &SearchSpec,
    own: &NewestValues,
    evaluation: Option<&Evaluation>,
    sample: Option<&Sample>,
) -> Option<Vec<f64>> {
    let objectives = spec.objectives.iter();
    objectives
        .map(|objective| value(objective, own, evaluation, sample))
        .collect()
}

fn value(
    objective: &Objective,
    own: &NewestValues,
    evaluation: Option<&Evaluation>,
    sample: Option<&Sample>,
) -> Option<f64> {
    if let Some(known) = JobMetric::named(&objective.metric) {
        return known.value(evaluation, sample);
    }
    let logged = own.get(objective.metric.as_str())?;
    Some(logged.stored.value.unwrap_or(worst(objective.goal)))
}

/// Value that no finite one is worse than. It stands for NaN, which JSON cannot contain.
fn worst(goal: Goal) -> f64 {
    goal.as_loss(f64::MAX)
}
