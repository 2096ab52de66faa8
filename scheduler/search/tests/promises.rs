//! Properties of every study, with all searchers and stoppers: budgets, slots, numbers and the
//! space.

use crate::cluster::{Cluster, spec};
use muster_model::study::MAX_TRIALS;
use muster_search::{
    EventError, MAX_POINTS, SearchAction, SearchEvent, SearchPhase, Study, TrialNumber, TrialState,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn run(document: Value, speed: u64) -> (Study, crate::cluster::Story) {
    let study = Study::new(spec(document)).expect("valid");
    Cluster::new(speed).run(study, |s, _| s)
}

fn any_stopper() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"kind": "none"})),
        (0u32..6, 0u64..5)
            .prop_map(|(s, w)| json!({"kind": "median", "startup": s + 1, "warmup": w})),
        (1u64..4, 2u32..5)
            .prop_map(|(m, e)| json!({"kind": "successive_halving", "min": m, "eta": e})),
        (1u64..4, 2u32..5).prop_map(|(m, e)| json!({"kind": "hyperband", "min": m, "eta": e})),
        (1u64..4, 2u32..5).prop_map(|(m, e)| json!({"kind": "asha", "min": m, "eta": e})),
        (1u64..4).prop_map(|b| json!({"kind": "hyper_drive", "boundary": b})),
        (2u32..9, 1u64..5)
            .prop_map(|(p, i)| json!({"kind": "pbt", "population": p, "interval": i})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn budgets_slots_and_numbers_are_respected(
        stopper in any_stopper(), seed: u64, speed: u64, trials in 1u32..40, slots in 1u32..9, max in 4u64..30,
        fails in prop::option::of(2u32..6), reproducible: bool,
    ) {
        let study = Study::new(spec(json!({
            "objectives": [{"metric": "loss", "goal": "minimize", "target": 0.05}],
            "searcher": {"kind": "random"}, "stopper": stopper, "seed": seed, "trials": trials,
            "concurrency": slots, "budget": {"max": max},
            "reproducible": reproducible && stopper["kind"] != "median",
        }))).expect("valid");
        let mut cluster = Cluster::new(speed);
        cluster.fails = fails;
        let (study, story) = cluster.run(study, |s, _| s);
        prop_assert_eq!(study.phase(), SearchPhase::Finished);
        prop_assert!(study.trials().len() <= trials as usize);
        prop_assert!(story.widest <= slots as usize);
        prop_assert!(story.trained <= u64::from(trials) * max);
        for (i, trial) in study.trials().iter().enumerate() {
            prop_assert_eq!(trial.number as usize, i);
            prop_assert!(trial.budget <= max);
            prop_assert!(trial.reports.iter().all(|r| r.step <= trial.budget));
            let ended = matches!(trial.state, TrialState::Completed | TrialState::Stopped | TrialState::Failed);
            prop_assert!(ended, "{:?}", trial.state);
        }
        let finishes = story.actions.iter().filter(|a| **a == SearchAction::Finish).count();
        prop_assert_eq!(finishes, 1);
    }

    #[test]
    fn searchers_respect_space_and_constraints(
        searcher in prop::sample::select(vec!["random", "sobol", "tpe", "gp", "cma_es", "evolution"]),
        seed: u64, low in -5.0f64..5.0, span in 0.0f64..10.0, step in prop::option::of(0.3f64..1.0), log: bool,
    ) {
        let step = step.filter(|s| *s <= span.max(1.0));
        let document = json!({
            "parameters": [
                {"name": "a", "type": "float", "low": low, "high": low + span, "step": step},
                {"name": "b", "type": "int", "low": 1, "high": 1000, "log": log},
                {"name": "kind", "type": "categorical", "choices": ["x", "y", [1, 2]]},
                {"name": "c", "type": "discrete", "feasibleSpace": {"list": ["1", "2", "4"]},
                 "when": {"parameter": "kind", "is": ["y", [1, 2]]}},
                {"name": "d", "parameterType": "double", "feasibleSpace": {"min": "1e-6", "max": "1", "distribution": "logUniform"},
                 "when": {"parameter": "kind", "is": ["x"]}},
            ],
            "constraints": ["b * c <= 1500", "b + 100 * d > 3"],
            "searcher": {"kind": searcher}, "seed": seed, "trials": 30,
        });
        let mut study = Study::new(spec(document)).expect("valid");
        let mut queue = study.apply(SearchEvent::Started).expect("may begin");
        while let Some(action) = queue.pop() {
            let SearchAction::Create { trial, parameters, .. } = action else { continue };
            let point = study.space().read(&parameters);
            prop_assert!(point.is_some(), "outside the space: {:?}", parameters);
            let b = parameters["b"].as_f64().expect("a number");
            let c = parameters.get("c").and_then(Value::as_f64);
            prop_assert!(c.is_none_or(|c| b * c <= 1500.0));
            let value = (b - 300.0).abs() + if trial % 7 == 0 { f64::NAN } else { 0.0 };
            let event = SearchEvent::Finished { trial, step: 1, values: vec![value], exhausted: false };
            queue.extend(study.apply(event).expect("a fact"));
        }
        prop_assert_eq!(study.phase(), SearchPhase::Finished);
        prop_assert_eq!(study.trials().len(), 30);
    }
}

#[test]
fn grid_search_tries_every_point_once() {
    let (study, _) = run(
        json!({
            "parameters": [
                {"name": "a", "type": "int", "low": 1, "high": 3},
                {"name": "kind", "type": "categorical", "choices": ["x", "y"]},
                {"name": "b", "type": "float", "low": 0.0, "high": 1.0, "step": 0.25,
                 "when": {"parameter": "kind", "is": ["y"]}},
            ],
            "constraints": ["a <= 2"], "searcher": {"kind": "grid"}, "trials": 1000,
        }),
        1,
    );
    let mut points: Vec<String> = study
        .trials()
        .iter()
        .map(|t| format!("{:?}", t.point))
        .collect();
    points.sort();
    points.dedup();
    // Two of `a`, and of `kind` x alone or y with five of `b`.
    assert_eq!(points.len(), 12);
    assert_eq!(study.trials().len(), 12);
}

/// Spaces without numbers, spaces with one value, and equal results contain nothing to learn.
#[test]
fn searchers_work_without_anything_to_learn() {
    for searcher in ["random", "sobol", "tpe", "gp", "cma_es", "evolution"] {
        for parameters in [
            json!([{"name": "a", "type": "categorical", "choices": ["x", "y"]}]),
            json!([{"name": "a", "type": "float", "low": 2.0, "high": 2.0}, {"name": "b", "type": "int", "low": 1, "high": 1}]),
        ] {
            let mut study = Study::new(spec(json!({
                "parameters": parameters, "searcher": {"kind": searcher}, "trials": 30,
            })))
            .expect("valid");
            let mut queue = study.apply(SearchEvent::Started).expect("may begin");
            while let Some(action) = queue.pop() {
                let SearchAction::Create { trial, .. } = action else {
                    continue;
                };
                let event = SearchEvent::Finished {
                    trial,
                    step: 1,
                    values: vec![if trial < 9 { 1.0 } else { f64::INFINITY }],
                    exhausted: false,
                };
                queue.extend(study.apply(event).expect("a fact"));
            }
            assert_eq!(study.trials().len(), 30, "{searcher}");
        }
    }
}

/// Promotions do not wait for the rung. Some promoted trials turn out not to be among the best
/// third, so slightly more than a third are promoted.
#[test]
fn asha_promotes_about_a_third_of_each_rung() {
    let (study, story) = run(
        json!({"searcher": {"kind": "random"}, "stopper": {"kind": "asha"}, "budget": {"max": 27}, "trials": 81}),
        4,
    );
    let counts = [0, 1, 2, 3].map(|rung| {
        let trials = study.trials().iter();
        trials.filter(|t| t.rungs.len() > rung).count()
    });
    assert_eq!(counts[0], 81);
    assert!((27..45).contains(&counts[1]), "{}", counts[1]);
    for pair in counts[1..].windows(2) {
        assert!((pair[0] / 3..=pair[0] * 2 / 3).contains(&pair[1]));
    }
    let mut steps: Vec<u64> = study
        .trials()
        .iter()
        .flat_map(|t| t.rungs.iter().map(|r| r.step))
        .collect();
    steps.sort_unstable();
    steps.dedup();
    assert_eq!(steps, [1, 3, 9, 27]);
    // All trials in full would have taken 81 * 27.
    assert!(story.trained < 81 * 27 / 4, "{}", story.trained);
}

#[test]
fn hyperband_has_brackets_from_many_short_to_few_long() {
    let (study, _) = run(
        json!({"searcher": {"kind": "random"}, "stopper": {"kind": "hyperband"}, "budget": {"max": 27}, "trials": 49}),
        4,
    );
    let brackets = [0, 1, 2, 3].map(|bracket| {
        let trials = study.trials().iter();
        let members: Vec<_> = trials.filter(|t| t.bracket == bracket).collect();
        let first = members[0].rungs[0].step;
        (members.len(), first)
    });
    // Li et al., table 1, for R = 27 and eta = 3.
    assert_eq!(brackets, [(27, 1), (12, 3), (6, 9), (4, 27)]);
}

#[test]
fn pbt_copies_checkpoints_of_better_trials() {
    let (study, _) = run(
        json!({
            "searcher": {"kind": "random"}, "stopper": {"kind": "pbt", "population": 8, "interval": 3},
            "budget": {"max": 30}, "trials": 40, "concurrency": 8,
        }),
        9,
    );
    let copies: Vec<_> = study
        .trials()
        .iter()
        .filter_map(|t| Some((t, t.from?)))
        .collect();
    assert!(copies.len() >= 5, "{} copies", copies.len());
    for (child, from) in copies {
        let parent = &study.trials()[from.trial as usize];
        assert!(
            parent.reports.iter().any(|r| r.step == from.step),
            "a checkpoint that was never written"
        );
        assert!(child.reports.iter().all(|r| r.step > from.step));
        assert_ne!(child.point, parent.point, "explore changes parameters");
    }
}

#[test]
fn hyper_drive_stops_hopeless_trials_and_ends_at_target() {
    let stoppers = [
        json!({"kind": "hyper_drive", "boundary": 4}),
        json!({"kind": "none"}),
    ];
    let [story, whole] = stoppers.map(|stopper| {
        let document = json!({
            "objectives": [{"metric": "loss", "goal": "minimize", "target": 0.06}],
            "searcher": {"kind": "random"}, "stopper": stopper, "budget": {"max": 60}, "trials": 60, "seed": 2,
        });
        let (study, story) = run(document, 3);
        let losses = study.best()[0].reports.iter().map(|r| r.losses[0]);
        assert!(losses.fold(f64::MAX, f64::min) <= 0.06);
        story
    });
    assert!(
        story.trained * 2 < whole.trained,
        "{} against {}",
        story.trained,
        whole.trained
    );
}

#[test]
fn two_objectives_give_pareto_front() {
    for searcher in ["tpe", "evolution"] {
        let mut study = Study::new(spec(json!({
            "objectives": [{"metric": "error", "goal": "minimize"}, {"metric": "speed", "goal": "maximize"}],
            "parameters": [{"name": "x", "type": "float", "low": 0.0, "high": 2.0},
                           {"name": "y", "type": "float", "low": 0.0, "high": 2.0}],
            "searcher": {"kind": searcher}, "trials": 120, "concurrency": 1,
        })))
        .expect("valid");
        let mut queue = study.apply(SearchEvent::Started).expect("may begin");
        while let Some(action) = queue.pop() {
            let SearchAction::Create {
                trial, parameters, ..
            } = action
            else {
                continue;
            };
            let (x, y) = (
                parameters["x"].as_f64().expect("x"),
                parameters["y"].as_f64().expect("y"),
            );
            let values = vec![x * x + y, -((x - 2.0).powi(2) + y)];
            let event = SearchEvent::Finished {
                trial,
                step: 1,
                values,
                exhausted: false,
            };
            queue.extend(study.apply(event).expect("a fact"));
        }
        let front = study.best();
        // On the true front y is 0.
        let near = front
            .iter()
            .filter(|t| t.point[1].is_some_and(|y| y < 0.2))
            .count();
        assert!(
            front.len() >= 5 && near * 3 >= front.len() * 2,
            "{searcher}: {near} of {}",
            front.len()
        );
    }
}

#[test]
fn late_and_repeated_events_have_no_effect() {
    let mut study = Study::new(spec(
        json!({"searcher": {"kind": "random"}, "budget": {"max": 3}}),
    ))
    .expect("valid");
    study.apply(SearchEvent::Started).expect("may begin");
    let report = SearchEvent::Reported {
        trial: 0,
        step: 1,
        values: vec![0.5],
    };
    study.apply(report.clone()).expect("a fact");
    let before = study.clone();
    assert_eq!(study.apply(report), Ok(vec![]));
    assert_eq!(study, before);
    let done = SearchEvent::Finished {
        trial: 0,
        step: 3,
        values: vec![0.4],
        exhausted: false,
    };
    assert_eq!(study.apply(done.clone()).expect("a fact").len(), 1);
    let before = study.clone();
    for late in [
        done,
        SearchEvent::Failed { trial: 0 },
        SearchEvent::Stopped { trial: 0 },
    ] {
        assert_eq!(study.apply(late), Ok(vec![]));
    }
    assert_eq!(study, before);
    let unknown = study.apply(SearchEvent::Failed { trial: 99 });
    assert_eq!(
        unknown,
        Err(EventError::UnknownTrial {
            trial: 99,
            created: 5
        })
    );
    let wrong = study.apply(SearchEvent::Reported {
        trial: 1,
        step: 1,
        values: vec![],
    });
    assert_eq!(
        wrong,
        Err(EventError::WrongValues {
            trial: 1,
            found: 0,
            expected: 1
        })
    );
}

/// End of a trial after one step.
fn finished(trial: TrialNumber, values: Vec<f64>) -> SearchEvent {
    SearchEvent::Finished {
        trial,
        step: 1,
        values,
        exhausted: false,
    }
}

#[test]
fn paused_study_starts_nothing_and_extended_study_continues() {
    let document = json!({"searcher": {"kind": "random"}, "trials": 3, "concurrency": 2});
    let mut study = Study::new(spec(document)).expect("valid");
    assert_eq!(
        study.apply(SearchEvent::Started).expect("may begin").len(),
        2
    );
    study.apply(SearchEvent::Paused).expect("a wish");
    assert_eq!(study.apply(finished(0, vec![1.0])), Ok(vec![]));
    assert_eq!(study.apply(finished(1, vec![1.0])), Ok(vec![]));
    assert_eq!(study.apply(SearchEvent::Resumed).expect("a wish").len(), 1);
    assert_eq!(
        study.apply(finished(2, vec![1.0])),
        Ok(vec![SearchAction::Finish])
    );
    assert_eq!(
        study
            .apply(SearchEvent::Extended { trials: 2 })
            .expect("a wish")
            .len(),
        2
    );
    assert_eq!(study.phase(), SearchPhase::Running);
    let before = study.clone();
    let most = MAX_TRIALS - 5;
    let trials = most + 1;
    assert_eq!(
        study.apply(SearchEvent::Extended { trials }),
        Err(EventError::TooMany {
            trials,
            most: MAX_TRIALS
        })
    );
    assert_eq!(study, before);
    study
        .apply(SearchEvent::Extended { trials: most })
        .expect("just as many as a document may ask for");
}

/// The end of a rung may be reported again while the trial is in its next rung, which it does not
/// end.
#[test]
fn repeated_end_of_rung_counts_once() {
    let mut study = Study::new(spec(json!({
        "searcher": {"kind": "random"}, "stopper": {"kind": "asha", "min": 1, "eta": 2},
        "budget": {"max": 4}, "trials": 2, "concurrency": 1,
    })))
    .expect("valid");
    study.apply(SearchEvent::Started).expect("begins");
    study.apply(finished(0, vec![1.0])).expect("taken in");
    let actions = study.apply(finished(1, vec![2.0])).expect("taken in");
    let goes_on = SearchAction::Continue {
        trial: 0,
        budget: 2,
    };
    assert!(actions.contains(&goes_on), "{actions:?}");
    let before = study.clone();
    assert_eq!(study.apply(finished(0, vec![1.0])).expect("taken in"), []);
    assert_eq!(study, before);
}

/// The last report of a stopping trial may be too late for storage. The trial has ended all the
/// same.
#[test]
fn stopping_trial_can_finish_without_value() {
    let target = json!([{"metric": "loss", "goal": "minimize", "target": 0.5}]);
    let mut study = Study::new(spec(json!({
        "objectives": target, "searcher": {"kind": "random"}, "trials": 2, "concurrency": 2,
    })))
    .expect("valid");
    study.apply(SearchEvent::Started).expect("begins");
    let refused = study.apply(finished(1, vec![]));
    assert_eq!(refused, Err(EventError::NoValue { trial: 1, step: 1 }));
    study.apply(finished(0, vec![0.1])).expect("taken in");
    assert_eq!(study.trials()[1].state, TrialState::Stopping);
    let late = SearchEvent::Reported {
        trial: 1,
        step: 1,
        values: vec![0.2],
    };
    assert_eq!(study.apply(late), Ok(vec![]));
    let actions = study.apply(finished(1, vec![]));
    assert_eq!(actions, Ok(vec![SearchAction::Finish]));
    assert_eq!(study.trials()[1].state, TrialState::Stopped);
    assert_eq!(study.phase(), SearchPhase::Finished);
}

fn reported(step: u64) -> SearchEvent {
    SearchEvent::Reported {
        trial: 0,
        step,
        values: vec![step as f64],
    }
}

#[test]
fn long_curve_is_thinned_and_keeps_newest_point() {
    let mut study = Study::new(spec(
        json!({"searcher": {"kind": "random"}, "budget": {"max": 1_000_000}}),
    ))
    .expect("valid");
    study.apply(SearchEvent::Started).expect("begins");
    for step in 1..=20_000 {
        study.apply(reported(step)).expect("taken in");
        let reports = &study.trials()[0].reports;
        assert_eq!(reports.last().map(|one| one.step), Some(step));
        assert!(reports.len() <= MAX_POINTS, "{}", reports.len());
    }
    let steps: Vec<u64> = study.trials()[0]
        .reports
        .iter()
        .map(|one| one.step)
        .collect();
    assert_eq!(steps[0], 1);
    assert!(steps.len() > MAX_POINTS / 3, "{}", steps.len());
    let widest = steps.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(widest <= Some(4 * 20_000 / MAX_POINTS as u64), "{widest:?}");
    let before = study.clone();
    for step in 1..100 {
        assert_eq!(study.apply(reported(step)), Ok(vec![]));
    }
    assert_eq!(study, before, "what was thinned out changes nothing");
}

/// A program may measure several times within one unit of the budget.
#[test]
fn value_at_the_end_replaces_a_report_of_its_step() {
    let document = json!({"searcher": {"kind": "random"}, "concurrency": 1});
    let mut study = Study::new(spec(document)).expect("valid");
    study.apply(SearchEvent::Started).expect("may begin");
    study.apply(reported(1)).expect("a fact");
    study.apply(finished(0, vec![0.25])).expect("a fact");
    let trial = &study.trials()[0];
    assert_eq!((trial.loss(), trial.reports.len()), (Some(0.25), 1));
}
