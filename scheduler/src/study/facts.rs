//! Converts the facts of a trial's job to events of its search. Pure.

use muster_model::job::JobState;
use muster_model::progress::{Evaluation, Sample};
use muster_model::study::{BudgetUnit, JobMetric, SearchSpec};
use muster_search::{SearchEvent, SearchTrial};
use muster_store::study::search::TrialJobFacts;

/// Events in order, and data to store with the trial.
#[derive(Debug, Default, PartialEq)]
pub struct TrialFacts {
    pub events: Vec<SearchEvent>,
    /// Optimizer step of the newest evaluation among them.
    pub fed_step: Option<u64>,
    pub failure: Option<String>,
}

/// Events of a fact. Reports precede the end.
pub fn facts(spec: &SearchSpec, trial: &SearchTrial, fact: &TrialJobFacts) -> TrialFacts {
    let mut facts = TrialFacts::default();
    let mut newest = None;
    let mut any = !trial.reports.is_empty();
    for (evaluation, sample) in &fact.evaluations {
        facts.fed_step = Some(evaluation.step);
        let Some(values) = values(spec, Some(evaluation), sample.as_ref()) else {
            continue;
        };
        newest = Some(values.clone());
        let Some(step) = place(spec, fact, evaluation.step, evaluation.epoch) else {
            continue;
        };
        let known = trial.reports.binary_search_by_key(&step, |one| one.step);
        if known.is_err() {
            any = true;
            let trial = trial.number;
            facts.events.push(SearchEvent::Reported {
                trial,
                step,
                values,
            });
        }
    }
    // The newest evaluation may have been read before the job ended. A program without evaluations
    // is judged by its training metrics.
    let latest = (fact.latest_evaluation.as_ref(), fact.latest.as_ref());
    let newest = newest.or_else(|| values(spec, latest.0, latest.1));
    let values = if any {
        Vec::new()
    } else {
        newest.unwrap_or_default()
    };
    end(spec, trial, fact, values, any, &mut facts);
    facts
}

fn end(
    spec: &SearchSpec,
    trial: &SearchTrial,
    fact: &TrialJobFacts,
    values: Vec<f64>,
    any: bool,
    facts: &mut TrialFacts,
) {
    let number = trial.number;
    match &fact.state {
        JobState::Succeeded if any || !values.is_empty() => {
            let reached = reached(spec, fact);
            let step = reached.unwrap_or(trial.budget);
            facts.events.push(SearchEvent::Finished {
                trial: number,
                step: step.max(1),
                values,
                exhausted: reached.is_some_and(|step| step < trial.budget),
            });
        }
        JobState::Succeeded => {
            let wanted: Vec<&str> = spec.objectives.iter().map(|o| o.metric.as_str()).collect();
            let metrics = wanted.join(", ");
            facts.failure = Some(format!("its job ended without having reported {metrics}"));
            facts.events.push(SearchEvent::Failed { trial: number });
        }
        JobState::Failed { reason } => {
            facts.failure = Some(reason.clone());
            facts.events.push(SearchEvent::Failed { trial: number });
        }
        JobState::Cancelled => facts.events.push(SearchEvent::Stopped { trial: number }),
        JobState::Queued
        | JobState::Starting
        | JobState::Running
        | JobState::Suspended
        | JobState::Stopping { .. }
        | JobState::Paused => {}
    }
}

/// One value per metric; `None` if one is missing.
fn values(
    spec: &SearchSpec,
    evaluation: Option<&Evaluation>,
    sample: Option<&Sample>,
) -> Option<Vec<f64>> {
    let metrics = spec.objectives.iter();
    metrics
        .map(|objective| JobMetric::named(&objective.metric)?.value(evaluation, sample))
        .collect()
}

/// Budget units at a measurement; `None` between two units, because it is not comparable there.
fn place(spec: &SearchSpec, fact: &TrialJobFacts, step: u64, epoch: f64) -> Option<u64> {
    let units = match spec.budget.unit {
        BudgetUnit::Steps => step,
        BudgetUnit::Epochs if fact.spec.command.is_some() => epoch.round() as u64,
        BudgetUnit::Epochs => {
            let per_epoch = fact.spec.steps_per_epoch();
            step.is_multiple_of(per_epoch).then(|| step / per_epoch)?
        }
    };
    (units > 0).then_some(units)
}

/// Budget units that the built-in engine reached; `None` for a command, which always counts as
/// complete.
fn reached(spec: &SearchSpec, fact: &TrialJobFacts) -> Option<u64> {
    let step = fact.finished_step?;
    match spec.budget.unit {
        _ if fact.spec.command.is_some() => None,
        BudgetUnit::Steps => Some(step),
        BudgetUnit::Epochs => Some(step / fact.spec.steps_per_epoch()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::progress::Split;
    use serde_json::json;

    /// An evaluation without an epoch is no report of a budget unit. If it was read while the job
    /// ran, the end must still find it.
    #[test]
    fn evaluation_read_before_the_end_is_the_result() {
        let spec: SearchSpec = serde_json::from_value(json!({
            "objectives": [{ "metric": "test_loss", "goal": "minimize" }],
            "parameters": [{ "name": "lr", "type": "float", "low": 0.1, "high": 1.0 }],
            "trials": 1,
        }))
        .expect("a search");
        let trial: SearchTrial = serde_json::from_value(json!({
            "number": 0, "point": [], "seed": 0, "state": "running", "budget": 1, "rung": 0, "bracket": 0,
            "from": null, "reports": [], "outcome": null, "rungs": [],
        }))
        .expect("a trial");
        let evaluation = Evaluation {
            step: 1,
            epoch: 0.0,
            split: Split::Validation,
            loss: Some(0.25),
            accuracy: None,
        };
        let mut fact = TrialJobFacts {
            number: 0,
            job_id: uuid::Uuid::from_u128(1).into(),
            state: JobState::Running,
            spec: serde_json::from_value(json!({
                "version": "muster/v1", "name": "fit-0", "command": { "argv": ["true"] },
            }))
            .expect("a document"),
            finished_step: None,
            latest: None,
            latest_evaluation: Some(evaluation.clone()),
            evaluations: vec![(evaluation, None)],
        };
        let read = facts(&spec, &trial, &fact);
        assert_eq!((read.fed_step, read.events), (Some(1), Vec::new()));
        (fact.state, fact.evaluations) = (JobState::Succeeded, Vec::new());
        let ended = facts(&spec, &trial, &fact);
        assert_eq!(ended.failure, None);
        let [SearchEvent::Finished { values, .. }] = &ended.events[..] else {
            panic!("{ended:?}");
        };
        assert_eq!(*values, [0.25]);
    }
}
