//! Converts the facts of a trial's job to events of its search. Pure.

use super::measured::{self, JobMeasurement};
use super::names;
use muster_model::job::JobState;
use muster_model::study::{BudgetUnit, SearchSpec};
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
    let mut any = !trial.reports.is_empty();
    for JobMeasurement {
        step: at,
        epoch,
        values,
    } in measured::measurements(spec, fact)
    {
        facts.fed_step = Some(at);
        let Some(values) = values else {
            continue;
        };
        let Some(step) = place(spec, fact, at, epoch) else {
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
    // The job's newest values: the result must not depend on when the measurements were read. A
    // program without evaluations is judged by its training metrics.
    let newest: Option<Vec<f64>> = measured::newest(spec, fact).into_iter().collect();
    // The engine evaluates at the end of each rung. A program may end between two budget units, or
    // at a unit at which the search knows an earlier value.
    let values = if any && fact.spec.command.is_none() {
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
            facts.failure = Some(without_value(spec, fact));
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

/// Reason of a trial that has ended without a value of each objective.
fn without_value(spec: &SearchSpec, fact: &TrialJobFacts) -> String {
    let values = measured::newest(spec, fact);
    let objectives = spec.objectives.iter().zip(&values);
    let missing = objectives.filter(|(_, value)| value.is_none());
    let missing: Vec<&str> = missing.map(|(one, _)| one.metric.as_str()).collect();
    if fact.spec.command.is_some() {
        names::not_logged(&missing, &fact.metric_names)
    } else {
        let metrics = missing.join(", ");
        format!("its job ended without having reported {metrics}")
    }
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
    use muster_model::progress::{Evaluation, Split};
    use muster_store::objective::StoredObjective;
    use muster_store::study::LoggedObjective;
    use serde_json::{Value, json};

    fn search(objectives: &Value) -> SearchSpec {
        serde_json::from_value(json!({
            "objectives": objectives, "trials": 1, "budget": { "max": 9 },
            "parameters": [{ "name": "lr", "type": "float", "low": 0.1, "high": 1.0 }],
        }))
        .expect("a search")
    }

    fn trial() -> SearchTrial {
        serde_json::from_value(json!({
            "number": 0, "point": [], "seed": 0, "state": "running", "budget": 3, "rung": 0, "bracket": 0,
            "from": null, "reports": [], "outcome": null, "rungs": [],
        }))
        .expect("a trial")
    }

    fn program(state: JobState) -> TrialJobFacts {
        TrialJobFacts {
            number: 0,
            job_id: uuid::Uuid::from_u128(1).into(),
            state,
            spec: serde_json::from_value(json!({
                "version": "muster/v1", "name": "fit-0", "command": { "argv": ["true"] },
            }))
            .expect("a document"),
            finished_step: None,
            latest: None,
            latest_evaluation: None,
            evaluations: Vec::new(),
            known_step: None,
            logged: Vec::new(),
            metric_names: Vec::new(),
        }
    }

    fn logged(name: &str, step: u64, value: Option<f64>) -> LoggedObjective {
        LoggedObjective {
            stored: StoredObjective {
                name: name.to_owned(),
                step,
                epoch: step as f64 / 10.0,
                value,
            },
            evaluation: None,
            sample: None,
        }
    }

    fn reported(facts: &TrialFacts) -> Vec<(u64, Vec<f64>)> {
        let events = facts.events.iter().filter_map(|event| match event {
            SearchEvent::Reported { step, values, .. } => Some((*step, values.clone())),
            _ => None,
        });
        events.collect()
    }

    fn finished(facts: &TrialFacts) -> (u64, Vec<f64>) {
        let Some(SearchEvent::Finished { step, values, .. }) = facts.events.last() else {
            panic!("{facts:?}");
        };
        (*step, values.clone())
    }

    /// An evaluation without an epoch is no report of a budget unit. If it was read while the job
    /// ran, the end must still find it.
    #[test]
    fn evaluation_read_before_the_end_is_the_result() {
        let spec = search(&json!([{ "metric": "test_loss", "goal": "minimize" }]));
        let trial = trial();
        let evaluation = Evaluation {
            step: 1,
            epoch: 0.0,
            split: Split::Validation,
            loss: Some(0.25),
            accuracy: None,
        };
        let mut fact = program(JobState::Running);
        fact.latest_evaluation = Some(evaluation.clone());
        fact.evaluations = vec![(evaluation, None)];
        let read = facts(&spec, &trial, &fact);
        assert_eq!((read.fed_step, read.events), (Some(1), Vec::new()));
        (fact.state, fact.evaluations) = (JobState::Succeeded, Vec::new());
        let ended = facts(&spec, &trial, &fact);
        assert_eq!(ended.failure, None);
        assert_eq!(finished(&ended), (3, vec![0.25]));
    }

    /// A second rung of a program without epochs must not be judged by the first one.
    #[test]
    fn later_rung_is_judged_by_its_own_newest_value() {
        let spec = search(&json!([{ "metric": "f1", "goal": "maximize" }]));
        let mut trial = trial();
        trial.reports =
            serde_json::from_value(json!([{ "step": 1, "losses": [-0.5] }])).expect("reports");
        let mut fact = program(JobState::Succeeded);
        fact.known_step = Some(7);
        fact.logged = vec![logged("f1", 4, Some(0.6))];
        assert_eq!(finished(&facts(&spec, &trial, &fact)), (3, vec![0.6]));
    }

    #[test]
    fn own_metric_is_reported_at_each_budget_unit() {
        let spec = search(&json!([{ "metric": "f1", "goal": "maximize" }]));
        let mut fact = program(JobState::Running);
        fact.known_step = Some(10);
        fact.logged = [(10, 0.1), (20, 0.2), (30, 0.3)]
            .map(|(step, value)| logged("f1", step, Some(value)))
            .into();
        let read = facts(&spec, &trial(), &fact);
        assert_eq!(reported(&read), [(2, vec![0.2]), (3, vec![0.3])]);
        assert_eq!(read.fed_step, Some(30));
    }

    #[test]
    fn value_that_is_not_finite_is_the_worst() {
        for (goal, worst) in [("maximize", -f64::MAX), ("minimize", f64::MAX)] {
            let spec = search(&json!([{ "metric": "f1", "goal": goal }]));
            let mut fact = program(JobState::Succeeded);
            fact.logged = vec![logged("f1", 10, Some(0.9)), logged("f1", 30, None)];
            let ended = facts(&spec, &trial(), &fact);
            assert_eq!(finished(&ended), (3, vec![worst]), "{goal}");
            let text = serde_json::to_string(&ended.events).expect("JSON");
            let again: Vec<SearchEvent> = serde_json::from_str(&text).expect("events");
            assert_eq!(again, ended.events);
        }
    }

    /// Values of one step may arrive in two reports.
    #[test]
    fn newest_step_waits_for_all_own_objectives() {
        let spec = search(&json!([
            { "metric": "f1", "goal": "maximize" }, { "metric": "ms", "goal": "minimize" },
        ]));
        let mut fact = program(JobState::Running);
        fact.logged = vec![
            logged("f1", 10, Some(0.1)),
            logged("ms", 10, Some(5.0)),
            logged("f1", 20, Some(0.2)),
        ];
        let read = facts(&spec, &trial(), &fact);
        assert_eq!(reported(&read), [(1, vec![0.1, 5.0])]);
        assert_eq!(read.fed_step, Some(10));
        fact.logged.push(logged("ms", 30, Some(3.0)));
        let read = facts(&spec, &trial(), &fact);
        assert_eq!(reported(&read), [(1, vec![0.1, 5.0]), (2, vec![0.2, 5.0])]);
        fact.state = JobState::Succeeded;
        let ended = facts(&spec, &trial(), &fact);
        assert_eq!(finished(&ended), (3, vec![0.2, 3.0]));
    }

    #[test]
    fn own_metric_stands_beside_an_evaluation() {
        let spec = search(&json!([
            { "metric": "f1", "goal": "maximize" }, { "metric": "test_loss", "goal": "minimize" },
        ]));
        let evaluation = Evaluation {
            step: 5,
            epoch: 0.5,
            split: Split::Validation,
            loss: Some(0.25),
            accuracy: None,
        };
        let mut fact = program(JobState::Succeeded);
        fact.latest_evaluation = Some(evaluation.clone());
        fact.logged = vec![LoggedObjective {
            evaluation: Some(evaluation),
            ..logged("f1", 10, Some(0.1))
        }];
        let ended = facts(&spec, &trial(), &fact);
        assert_eq!(reported(&ended), [(1, vec![0.1, 0.25])]);
        assert_eq!(finished(&ended), (3, vec![0.1, 0.25]));
    }

    #[test]
    fn step_waits_for_its_evaluation_while_the_job_runs() {
        let spec = search(&json!([
            { "metric": "f1", "goal": "maximize" }, { "metric": "test_loss", "goal": "minimize" },
        ]));
        let mut fact = program(JobState::Running);
        fact.logged = vec![logged("f1", 10, Some(0.1))];
        let early = facts(&spec, &trial(), &fact);
        assert_eq!((reported(&early), early.fed_step), (Vec::new(), None));
        fact.logged[0].evaluation = Some(Evaluation {
            step: 10,
            epoch: 1.0,
            split: Split::Validation,
            loss: Some(0.25),
            accuracy: None,
        });
        let whole = facts(&spec, &trial(), &fact);
        assert_eq!(reported(&whole), [(1, vec![0.1, 0.25])]);
    }

    #[test]
    fn trial_without_its_metric_fails_with_the_logged_names() {
        let spec = search(&json!([{ "metric": "val_f1", "goal": "maximize" }]));
        let mut fact = program(JobState::Succeeded);
        fact.metric_names = vec!["loss".to_owned(), "val/f1".to_owned()];
        let ended = facts(&spec, &trial(), &fact);
        assert_eq!(ended.events, [SearchEvent::Failed { trial: 0 }]);
        let failure = ended.failure.expect("a reason");
        assert!(
            failure.contains("it logged loss, val/f1; did you mean \"val/f1\"?"),
            "{failure}"
        );
    }
}
