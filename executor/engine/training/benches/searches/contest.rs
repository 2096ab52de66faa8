//! Searchers compared with Optuna's on real trainings: best results with the same budget.
//!
//! Both search the same four parameters of a small network, one trial at a time. A training depends
//! on its parameters only, so both sides get the same result for the same point.
//! `MUSTER_OPTUNA_PYTHON` names a python3 with optuna (`scripts/ensure-optuna`).

use crate::training::Trainings;
use muster_model::study::{Point, StudySpec};
use muster_search::{SearchAction, SearchEvent, Study};
use serde_json::{Map, Value, json};
use std::ffi::OsStr;

#[path = "../../../../../scheduler/search/benches/against_optuna/optuna.rs"]
mod optuna;

use optuna::Optuna;

const PEER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../scheduler/search/benches/against_optuna/optuna_peer.py"
);
/// Searchers, and the maximum number of trials of each.
const CONTEST: [(&str, u32); 3] = [("tpe", 40), ("gp", 30), ("cma_es", 60)];
const EPOCHS: u64 = 2;

/// Study document; `optuna_peer.py` has the same search space.
fn document(searcher: &str, seed: u64, trials: u32) -> StudySpec {
    let document = json!({
        "version": "muster/v1", "kind": "study", "name": "contest",
        "search": {
            "objectives": [{"metric": "test_accuracy", "goal": "maximize"}],
            "parameters": [
                {"name": "rate", "field": "engine.optimizer.learning_rate", "type": "float", "low": 1e-4, "high": 1.0, "log": true},
                {"name": "momentum", "field": "engine.optimizer.momentum", "type": "float", "low": 0.0, "high": 0.98},
                {"name": "decay", "field": "engine.optimizer.weight_decay", "type": "float", "low": 1e-6, "high": 0.03, "log": true},
                {"name": "width", "field": "engine.model.hidden[0]", "type": "int", "low": 8, "high": 64, "log": true},
            ],
            "searcher": {"kind": searcher}, "budget": {"max": EPOCHS, "unit": "epochs"},
            "trials": trials, "concurrency": 1, "seed": seed,
        },
        "job": {
            "engine": {
                "model": {"kind": "mlp", "hidden": [8]},
                "dataset": {"name": "fashion-mnist", "train_limit": 2048, "test_limit": 3000},
                "optimizer": {"kind": "sgd"}, "batch": 32, "seed": 1,
            },
        },
    });
    serde_json::from_value(document).expect("a study")
}

/// Evaluates points by training.
struct Judge<'a> {
    study: StudySpec,
    trainings: &'a mut Trainings,
}

impl Judge<'_> {
    /// Fraction of the unseen images that the trained network classifies correctly.
    fn accuracy(&mut self, study: &Study, point: &Point) -> f64 {
        let job = self.study.trial(study.space(), 0, point, 1, EPOCHS);
        let job = job.expect("a point of the space");
        let last = self.trainings.epoch(&job, EPOCHS as usize - 1);
        self.trainings.rest();
        last.accuracy
    }

    fn ours(&mut self) -> f64 {
        let mut study = self.begun();
        let mut actions = study.apply(SearchEvent::Started).expect("may begin");
        let mut best = 0.0_f64;
        while let Some(SearchAction::Create { trial, .. }) = actions.pop() {
            let point = study.trials()[trial as usize].point.clone();
            let accuracy = self.accuracy(&study, &point);
            best = best.max(accuracy);
            let ended = SearchEvent::Finished {
                trial,
                step: EPOCHS,
                values: vec![accuracy],
                exhausted: false,
            };
            actions = study.apply(ended).expect("a fact");
        }
        best
    }

    fn theirs(&mut self, peer: &mut Optuna, trials: u32) -> f64 {
        let study = self.begun();
        let mut best = 0.0_f64;
        for _ in 0..trials {
            let parameters = asked(peer);
            let dimensions = study.space().dimensions.iter();
            let point: Point = dimensions
                .map(|one| one.domain.read(&parameters[&one.name]))
                .collect();
            assert!(
                study.space().contains(&point),
                "{parameters:?} is in the space"
            );
            let accuracy = self.accuracy(&study, &point);
            best = best.max(accuracy);
            peer.tell(accuracy);
        }
        best
    }

    fn begun(&self) -> Study {
        Study::new(self.study.search.clone()).expect("a right document")
    }
}

/// Starts Optuna's side, which runs one study after the other.
fn peer(python: &OsStr, searcher: &str, trials: u32, seeds: u64) -> Optuna {
    let (trials, seeds) = (trials.to_string(), seeds.to_string());
    Optuna::start(python, PEER, &["asked", searcher, &trials, &seeds])
}

fn asked(peer: &mut Optuna) -> Map<String, Value> {
    serde_json::from_str(&peer.line()).expect("parameters by name")
}

pub fn measure(trainings: &mut Trainings, seeds: u64) {
    let python = std::env::var_os("MUSTER_OPTUNA_PYTHON");
    println!(
        "MLP on 2,048 images, {EPOCHS} epochs: the best accuracy on 1,500 unseen images that a search finds, median of {seeds} seeds"
    );
    println!("searcher  trials      ours    Optuna   ours better, equal");
    for (searcher, trials) in CONTEST {
        let mut optuna = python
            .as_ref()
            .map(|python| peer(python, searcher, trials, seeds));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for seed in 0..seeds {
            let mut judge = Judge {
                study: document(searcher, seed, trials),
                trainings,
            };
            ours.push(judge.ours());
            theirs.extend(optuna.as_mut().map(|optuna| judge.theirs(optuna, trials)));
        }
        let better = ours.iter().zip(&theirs).filter(|(a, b)| a > b).count();
        let equal = ours.iter().zip(&theirs).filter(|(a, b)| a == b).count();
        let their_median = if theirs.is_empty() {
            "-".to_owned()
        } else {
            format!("{:.4}", median(theirs))
        };
        println!(
            "{searcher:9} {trials:6} {:9.4} {their_median:>9} {better:9}, {equal} of {seeds}",
            median(ours)
        );
    }
}

fn median(values: Vec<f64>) -> f64 {
    let all: Vec<Option<f64>> = values.into_iter().map(Some).collect();
    crate::median(&all).expect("all are finite")
}
