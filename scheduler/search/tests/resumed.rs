//! A study that is saved after any event, loaded and continued gives the same results.

use crate::cluster::{Cluster, spec};
use muster_search::{SearchPhase, Study};
use proptest::prelude::*;
use serde_json::{Value, json};

fn through_json(study: &Study) -> Study {
    let saved = serde_json::to_string(study).expect("serialisable");
    serde_json::from_str(&saved).expect("readable")
}

/// Whether the process dies before this event; with `one_in` 1 it dies before each.
fn dies(seed: u64, event: u64, one_in: u64) -> bool {
    (seed ^ event)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .is_multiple_of(one_in)
}

fn assert_same_when_killed(document: Value, seed: u64, one_in: u64) {
    let mut document = document;
    document["seed"] = json!(seed);
    let study = Study::new(spec(document)).expect("valid");
    let (whole, story) = Cluster::new(seed).run(study.clone(), |s, _| s);
    let (broken, again) = Cluster::new(seed).run(study, |study, event| {
        if dies(seed, event, one_in) {
            let loaded = through_json(&study);
            assert_eq!(loaded, study, "seed {seed}, event {event}");
            return loaded;
        }
        study
    });
    assert_eq!(whole.phase(), SearchPhase::Finished, "seed {seed}");
    assert_eq!(story.actions, again.actions, "seed {seed}");
    assert_eq!(whole.best(), broken.best(), "seed {seed}");
    assert_eq!(whole, broken, "seed {seed}");
}

#[test]
fn asha_study_is_same_after_kills_at_random_points() {
    let document = json!({
        "searcher": {"kind": "random"},
        "stopper": {"kind": "asha", "min": 1, "eta": 3},
        "budget": {"max": 27},
    });
    for seed in 0..500 {
        assert_same_when_killed(document.clone(), seed, 7);
    }
}

/// State outside of the saved study would be lost here.
#[test]
fn searchers_and_stoppers_survive_kill_before_every_event() {
    for searcher in ["random", "sobol", "tpe", "gp", "cma_es", "evolution"] {
        let document = json!({
            "trials": 24, "searcher": {"kind": searcher},
            "stopper": {"kind": "asha"}, "budget": {"max": 9},
        });
        assert_same_when_killed(document, 3, 1);
    }
    for stopper in stoppers() {
        let document = json!({
            "objectives": [{"metric": "loss", "goal": "minimize", "target": 0.02}],
            "searcher": {"kind": "random"}, "stopper": stopper, "budget": {"max": 27},
        });
        assert_same_when_killed(document, 5, 1);
    }
}

fn stoppers() -> Vec<Value> {
    vec![
        json!({"kind": "none"}),
        json!({"kind": "median", "startup": 3, "warmup": 2}),
        json!({"kind": "successive_halving", "min": 1, "eta": 3}),
        json!({"kind": "hyperband", "min": 1, "eta": 3}),
        json!({"kind": "asha", "min": 1, "eta": 3}),
        json!({"kind": "hyper_drive", "boundary": 3}),
        json!({"kind": "pbt", "population": 8, "interval": 3}),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With `reproducible` the trials do not depend on the speed of machines.
    #[test]
    fn reproducible_studies_do_not_depend_on_speed(seed in 0u64..1000, one: u64, other: u64) {
        let rules = stoppers().into_iter().filter(|s| s["kind"] != "median");
        // A target that is never reached, and one that some trial reaches during a rung.
        for (stopper, target) in rules.flat_map(|s| [(s.clone(), -1.0), (s, 0.35)]) {
            let study = Study::new(spec(json!({
                "objectives": [{"metric": "loss", "goal": "minimize", "target": target}],
                "searcher": {"kind": "tpe"}, "reproducible": true, "seed": seed,
                "stopper": stopper, "budget": {"max": 9}, "trials": 20,
            })));
            let Ok(study) = study else { continue };
            let (first, _) = Cluster::new(one).run(study.clone(), |s, _| s);
            let (second, _) = Cluster::new(other).run(study, |s, _| s);
            prop_assert_eq!(first.trials().len(), second.trials().len());
            for (one, other) in first.trials().iter().zip(second.trials()) {
                prop_assert_eq!(&one.point, &other.point);
                prop_assert_eq!(&one.rungs, &other.rungs);
                prop_assert_eq!(one.from, other.from);
            }
            prop_assert_eq!(first.best().len(), second.best().len());
            for (one, other) in first.best().into_iter().zip(second.best()) {
                prop_assert_eq!(one.number, other.number);
                prop_assert_eq!(&one.outcome, &other.outcome);
            }
        }
    }
}
