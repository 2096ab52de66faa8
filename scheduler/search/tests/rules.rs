//! Stoppers with few slots, stopped and failed trials, and repeated events.

use crate::cluster::{Cluster, spec};
use muster_search::{SearchAction, SearchEvent, SearchPhase, Study, TrialNumber, TrialState};
use serde_json::{Value, json};

fn study(document: Value) -> Study {
    Study::new(spec(document)).expect("valid")
}

/// Number of trials of a bracket that have completed each rung.
fn rungs(study: &Study, bracket: u32) -> Vec<usize> {
    let members = study.trials().iter().filter(|t| t.bracket == bracket);
    let highest = members.clone().map(|t| t.rungs.len()).max().unwrap_or(0);
    (0..highest)
        .map(|rung| members.clone().filter(|t| t.rungs.len() > rung).count())
        .collect()
}

fn finished(trial: TrialNumber, step: u64, loss: f64) -> SearchEvent {
    SearchEvent::Finished {
        trial,
        step,
        values: vec![loss],
        exhausted: false,
    }
}

/// Trains all requested trials at once, in order, with the trial's number as its loss. After each
/// event `then` may add actions.
fn train(
    study: &mut Study,
    mut actions: Vec<SearchAction>,
    mut then: impl FnMut(&mut Study) -> Vec<SearchAction>,
) -> Vec<SearchAction> {
    let mut all = actions.clone();
    while !actions.is_empty() {
        let mut next = Vec::new();
        for action in actions {
            if let SearchAction::Create { trial, budget, .. }
            | SearchAction::Continue { trial, budget } = action
            {
                let event = finished(trial, budget, f64::from(trial));
                next.extend(study.apply(event).expect("a fact"));
                next.extend(then(study));
            }
        }
        all.extend(next.clone());
        actions = next;
    }
    all
}

fn halving(slots: u32) -> Study {
    study(json!({
        "searcher": {"kind": "random"}, "stopper": {"kind": "successive_halving"},
        "budget": {"max": 27}, "trials": 27, "concurrency": slots,
    }))
}

#[test]
fn halving_completes_every_rung_with_any_number_of_slots() {
    for slots in [1, 2, 5, 27] {
        let (study, _) = Cluster::new(4).run(halving(slots), |s, _| s);
        assert_eq!(rungs(&study, 0), [27, 9, 3, 1], "{slots} slots");
    }
}

#[test]
fn hyperband_brackets_complete_rungs_separately() {
    for slots in [1, 3] {
        let document = json!({
            "searcher": {"kind": "random"}, "stopper": {"kind": "hyperband"},
            "budget": {"max": 27}, "trials": 49, "concurrency": slots,
        });
        let (study, _) = Cluster::new(4).run(study(document), |s, _| s);
        assert_eq!(rungs(&study, 0), [27, 9, 3, 1], "{slots} slots");
        assert_eq!(rungs(&study, 1), [12, 4, 1], "{slots} slots");
        assert_eq!(rungs(&study, 2), [6, 2], "{slots} slots");
        assert_eq!(rungs(&study, 3), [4], "{slots} slots");
    }
}

#[test]
fn pause_does_not_end_rung() {
    let mut study = halving(1);
    let actions = study.apply(SearchEvent::Started).expect("may begin");
    train(&mut study, actions, |study| {
        assert_eq!(study.apply(SearchEvent::Paused), Ok(vec![]));
        study.apply(SearchEvent::Resumed).expect("a wish")
    });
    assert_eq!(rungs(&study, 0), [27, 9, 3, 1]);
}

#[test]
fn promoted_trial_that_was_stopped_is_not_continued() {
    let mut study = halving(1);
    let actions = study.apply(SearchEvent::Started).expect("may begin");
    // Trials 0 to 8 are promoted; a user stops 3 while it waits for its slot.
    let all = train(&mut study, actions, |study| {
        let waits = study.trials().get(3).map(|t| t.state) == Some(TrialState::Waiting);
        if waits && study.trials().len() == 27 && !study.trials()[26].rungs.is_empty() {
            return study
                .apply(SearchEvent::Stopped { trial: 3 })
                .expect("a fact");
        }
        Vec::new()
    });
    assert_eq!(study.trials()[3].state, TrialState::Stopped);
    let continued = all
        .iter()
        .find(|a| matches!(a, SearchAction::Continue { trial: 3, .. }));
    assert_eq!(continued, None);
    assert_eq!(rungs(&study, 0), [27, 8, 2, 1]);
}

/// The scheduler may be killed after it has reported the end of a rung and report it again.
#[test]
fn repeated_end_of_rung_does_not_end_next_rung() {
    for reproducible in [false, true] {
        let mut study = study(json!({
            "searcher": {"kind": "random"}, "stopper": {"kind": "asha"}, "budget": {"max": 9}, "trials": 3,
            "concurrency": 1, "reproducible": reproducible,
        }));
        study.apply(SearchEvent::Started).expect("may begin");
        study.apply(finished(0, 1, 0.1)).expect("a fact");
        study.apply(finished(1, 1, 0.2)).expect("a fact");
        let actions = study.apply(finished(2, 1, 0.3)).expect("a fact");
        let expected = SearchAction::Continue {
            trial: 0,
            budget: 3,
        };
        assert_eq!(actions, [expected]);
        let before = study.clone();
        assert_eq!(study.apply(finished(0, 1, 0.1)), Ok(vec![]));
        assert_eq!(study, before);
        study.apply(finished(0, 3, 0.05)).expect("a fact");
        assert_eq!(study.trials()[0].rungs.len(), 2);
    }
}

fn population(trials: u32) -> Study {
    study(json!({
        "searcher": {"kind": "random"}, "stopper": {"kind": "pbt", "population": 8, "interval": 3},
        "budget": {"max": 60}, "trials": trials, "concurrency": 8,
    }))
}

#[test]
fn population_continues_after_failed_or_stopped_trial() {
    for end in [
        SearchEvent::Failed { trial: 2 },
        SearchEvent::Stopped { trial: 2 },
    ] {
        let mut study = population(60);
        let actions = study.apply(SearchEvent::Started).expect("may begin");
        assert_eq!(actions.len(), 8);
        let mut more = study.apply(end.clone()).expect("a fact");
        assert!(
            matches!(
                more[..],
                [SearchAction::Create {
                    trial: 8,
                    from: None,
                    ..
                }]
            ),
            "{more:?}"
        );
        more.extend(
            actions
                .into_iter()
                .filter(|a| !matches!(a, SearchAction::Create { trial: 2, .. })),
        );
        train(&mut study, more, |_| Vec::new());
        assert_eq!(study.phase(), SearchPhase::Finished);
        let copies = study.trials().iter().filter(|t| t.from.is_some()).count();
        assert!(copies >= 8, "{copies} copies after {end:?}");
    }
}

fn reported(trial: TrialNumber, step: u64, loss: f64) -> SearchEvent {
    SearchEvent::Reported {
        trial,
        step,
        values: vec![loss],
    }
}

#[test]
fn expectation_rises_with_rung_and_rank_within_rung() {
    let mut study = study(json!({
        "searcher": {"kind": "random"}, "stopper": {"kind": "asha", "min": 2, "eta": 3},
        "budget": {"max": 6}, "trials": 9, "concurrency": 3,
    }));
    study.apply(SearchEvent::Started).expect("may begin");
    assert_eq!(study.expectations(), [(0, 0.5), (1, 0.5), (2, 0.5)]);
    study.apply(reported(0, 1, 0.1)).expect("a fact");
    study.apply(reported(1, 1, 0.5)).expect("a fact");
    assert_eq!(study.expectations(), [(0, 1.0), (1, 0.0), (2, 0.5)]);
    for trial in 0..3 {
        let loss = 0.1 + f64::from(trial) * 0.2;
        study.apply(finished(trial, 2, loss)).expect("a fact");
    }
    let expected = study.expectations();
    let [promoted, waiting, fresh] =
        [0, 1, 4].map(|trial| expected.iter().find(|(number, _)| *number == trial));
    let (_, promoted) = promoted.expect("it was promoted");
    let (_, fresh) = fresh.expect("it is new");
    assert!(promoted > fresh, "{expected:?}");
    assert_eq!(waiting, None, "a waiting trial holds no slot");
}

#[test]
fn external_study_trains_proposed_points_only() {
    let mut study = study(json!({
        "searcher": {"kind": "external"}, "stopper": {"kind": "none"},
        "budget": {"max": 3}, "trials": 3, "concurrency": 2,
    }));
    assert_eq!(study.apply(SearchEvent::Started), Ok(vec![]));
    let width = study.space().len();
    let [low, high] = [0.0, 0.9].map(|unit| {
        let dimensions = study.space().dimensions.iter();
        let mut point: Vec<Option<f64>> = dimensions.map(|d| Some(d.domain.at(unit))).collect();
        study.space().prune(&mut point);
        point
    });
    let wrong = SearchEvent::Proposed {
        points: vec![low.clone(), vec![None; width]],
    };
    assert!(study.apply(wrong).is_err());
    let actions = study
        .apply(SearchEvent::Proposed {
            points: vec![low.clone(), high.clone(), low.clone()],
        })
        .expect("points of the space");
    assert_eq!(actions.len(), 2, "as many as there are slots: {actions:?}");
    assert_eq!(study.trials()[1].point, high);
    study.apply(finished(0, 3, 0.5)).expect("a fact");
    study.apply(finished(1, 3, 0.5)).expect("a fact");
    assert_eq!(study.phase(), SearchPhase::Running);
    let last = study.apply(finished(2, 3, 0.5)).expect("a fact");
    assert_eq!(
        last,
        [SearchAction::Finish],
        "it may have no more than three"
    );
    study
        .apply(SearchEvent::Extended { trials: 1 })
        .expect("a wish");
    assert_eq!(study.phase(), SearchPhase::Running, "one more is awaited");
    study
        .apply(SearchEvent::Proposed { points: vec![high] })
        .expect("a point");
    assert_eq!(study.trials().len(), 4);
}
