//! Compares the best network of regularized evolution over the model part with a hand-written one.
//! Both are trained in the same way: images, epochs, optimizer, batch.

use crate::slots::carry_out;
use crate::training::{Trainings, parameters};
use muster_model::spec::JobSpec;
use muster_model::study::StudySpec;
use serde_json::{Value, json};

const STUDY: &str = include_str!("../../../../../examples/studies/evolution.yaml");
const BY_HAND: &str = include_str!("../../../../../examples/fashion-cnn.yaml");
const TRIALS: u32 = 40;
const EPOCHS: usize = 3;
/// Seeds of the comparison after the search; no search uses them.
const FRESH: std::ops::Range<u64> = 1000..1005;

pub fn measure(trainings: &mut Trainings, seeds: &[u64]) {
    let dataset = json!({"name": "fashion-mnist", "train_limit": 6000, "test_limit": 10_000});
    let mut study: Value = serde_norway::from_str(STUDY).expect("YAML");
    let mut by_hand: Value = serde_norway::from_str(BY_HAND).expect("YAML");
    study["search"]["trials"] = json!(TRIALS);
    study["search"]["concurrency"] = json!(1);
    study["search"]["budget"]["max"] = json!(EPOCHS);
    by_hand["engine"]["dataset"] = dataset.clone();
    study["job"]["engine"]["dataset"] = dataset;
    let by_hand: JobSpec = serde_json::from_value(by_hand).expect("a job");
    println!(
        "evolution: {TRIALS} trainings of {EPOCHS} epochs of 6,000 images; judged by 5,000 test images"
    );
    println!(
        "then both trained with {} fresh seeds and judged by the other 5,000",
        FRESH.count()
    );
    println!("                    accuracy: mean  least   most  parameters  CPU s a training");
    show(trainings, "by hand", &by_hand);
    for seed in seeds {
        study["search"]["seed"] = json!(seed);
        let document: StudySpec = serde_json::from_value(study.clone()).expect("a study");
        let course = carry_out(&document, trainings);
        show(trainings, &format!("evolved, seed {seed}"), &course.job);
        let model = serde_json::to_string(&course.job.engine().model).expect("JSON");
        println!("  after {:.0} CPU s in all: {model}", course.slot_seconds);
    }
}

fn show(trainings: &mut Trainings, name: &str, job: &JobSpec) {
    let (mut accuracies, mut seconds) = (Vec::new(), 0.0);
    for seed in FRESH {
        let mut document = serde_json::to_value(job).expect("JSON");
        document["engine"]["seed"] = json!(seed);
        let job: JobSpec = serde_json::from_value(document).expect("a job");
        let epochs: Vec<_> = (0..EPOCHS).map(|n| trainings.epoch(&job, n)).collect();
        trainings.rest();
        accuracies.push(epochs[EPOCHS - 1].held_out);
        seconds += epochs.iter().map(|epoch| epoch.seconds).sum::<f64>();
    }
    let count = accuracies.len() as f64;
    let mean = accuracies.iter().sum::<f64>() / count;
    let least = accuracies.iter().copied().fold(1.0, f64::min);
    let most = accuracies.iter().copied().fold(0.0, f64::max);
    let parameters = parameters(job);
    println!(
        "{name:24} {mean:10.4} {least:6.4} {most:6.4} {parameters:11} {:17.1}",
        seconds / count
    );
}
