//! Slot-seconds that each stopper needs to reach the result of random search.

use crate::slots::{StudyResult, carry_out};
use crate::training::Trainings;
use crate::{median, ratio};
use muster_model::study::StudySpec;
use serde_json::{Value, json};

const SLOTS: u32 = 4;
const TRIALS: u32 = 40;
const EPOCHS: u64 = 27;

/// Name, searcher, stopper, and maximum number of trials. HyperDrive divides its time among all of
/// its trials, so it has as many as random search, as in its paper. Stoppers that drop trials
/// continue with new ones until they reach the result, with at most five times as many.
fn contest() -> Vec<(&'static str, Value, Value, u32)> {
    let asha = json!({"kind": "asha", "min": 1, "eta": 3});
    let random = json!({"kind": "random"});
    vec![
        ("asha", random.clone(), asha.clone(), 5 * TRIALS),
        (
            "hyper_drive",
            random,
            json!({"kind": "hyper_drive"}),
            TRIALS,
        ),
        ("tpe + asha", json!({"kind": "tpe"}), asha, 5 * TRIALS),
    ]
}

fn document(
    seed: u64,
    searcher: &Value,
    stopper: &Value,
    trials: u32,
    target: Option<f64>,
) -> StudySpec {
    let mut objective = json!({"metric": "test_accuracy", "goal": "maximize"});
    if let Some(target) = target {
        objective["target"] = json!(target);
    }
    let document = json!({
        "version": "muster/v1", "kind": "study", "name": "stoppers",
        "search": {
            "objectives": [objective],
            "parameters": [
                {"name": "rate", "field": "engine.optimizer.learning_rate", "type": "float", "low": 1e-4, "high": 1.0, "log": true},
                {"name": "momentum", "field": "engine.optimizer.momentum", "type": "float", "low": 0.0, "high": 0.98},
                {"name": "decay", "field": "engine.optimizer.weight_decay", "type": "float", "low": 1e-6, "high": 0.03, "log": true},
                {"name": "width", "field": "engine.model.hidden[0]", "type": "int", "low": 16, "high": 256, "log": true},
            ],
            "searcher": searcher, "stopper": stopper, "budget": {"max": EPOCHS, "unit": "epochs"},
            "trials": trials, "concurrency": SLOTS, "seed": seed,
        },
        "job": {
            "engine": {
                "model": {"kind": "mlp", "hidden": [16]},
                "dataset": {"name": "fashion-mnist", "train_limit": 4096, "test_limit": 3000},
                "optimizer": {"kind": "sgd"}, "batch": 64,
            },
        },
    });
    serde_json::from_value(document).expect("a study")
}

pub fn measure(trainings: &mut Trainings, seeds: &[u64]) {
    println!(
        "slot-seconds (CPU seconds of training and judging) until random search's final best, {SLOTS} slots;"
    );
    println!(
        "MLP on 4,096 images, {SLOTS} slots, up to {EPOCHS} epochs; random: {TRIALS} trials to the end"
    );
    println!(
        "seed  random: best  slot-s  reached at | slot-s to the same, share of random's (trials, epochs)"
    );
    let mut shares: Vec<Vec<Option<f64>>> = vec![Vec::new(); contest().len()];
    let mut own = Vec::new();
    for seed in seeds {
        let random = json!({"kind": "random"});
        let none = json!({"kind": "none"});
        let all = carry_out(&document(*seed, &random, &none, TRIALS, None), trainings);
        let reached = all.reached(all.last).expect("it is its own best");
        own.push(Some(reached / all.slot_seconds));
        print!(
            "{seed:4} {:13.4} {:7.1} {:11.1} |",
            all.last, all.slot_seconds, reached
        );
        for ((name, searcher, stopper, trials), shares) in contest().into_iter().zip(&mut shares) {
            let document = document(*seed, &searcher, &stopper, trials, Some(all.last));
            let course = carry_out(&document, trainings);
            let share = course.reached(all.last).map(|s| s / all.slot_seconds);
            shares.push(share);
            print!(" {name}: {}", shown(&course, all.last, share));
        }
        println!();
    }
    println!(
        "median over {} seeds of the share of random's slot-seconds:",
        seeds.len()
    );
    println!(
        "  random itself comes to its best after {}",
        ratio(median(&own))
    );
    for ((name, ..), shares) in contest().iter().zip(&shares) {
        let came = shares.iter().flatten().count();
        println!(
            "  {name:12} {} (came to it in {came} of {})",
            ratio(median(shares)),
            seeds.len()
        );
    }
}

fn shown(course: &StudyResult, target: f64, share: Option<f64>) -> String {
    let (trials, epochs) = (course.trials, course.epochs);
    match course.reached(target) {
        Some(seconds) => format!("{seconds:.1} s, {} ({trials}, {epochs});", ratio(share)),
        None => format!(
            "{:.4} after {:.1} s ({trials}, {epochs});",
            course.best, course.slot_seconds
        ),
    }
}
