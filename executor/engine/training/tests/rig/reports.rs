//! Reports of tasks, as tests look for them.

use super::RigTask;
use muster_model::assignment::TaskReport;
use muster_model::progress::{Evaluation, Sample};

pub fn listening(report: &TaskReport) -> Option<String> {
    match report {
        TaskReport::Listening { address } => Some(address.clone()),
        _ => None,
    }
}

pub fn finished(report: &TaskReport) -> Option<u64> {
    match report {
        TaskReport::Finished { step, .. } => Some(*step),
        _ => None,
    }
}

pub fn interrupted(report: &TaskReport) -> Option<u64> {
    match report {
        TaskReport::Interrupted { step } => Some(*step),
        _ => None,
    }
}

/// Step of a stored checkpoint.
pub fn written(report: &TaskReport) -> Option<u64> {
    match report {
        TaskReport::CheckpointWritten { checkpoint } => Some(checkpoint.step),
        _ => None,
    }
}

pub fn evaluated(report: &TaskReport) -> Option<Evaluation> {
    match report {
        TaskReport::Evaluated { evaluation } => Some(evaluation.clone()),
        _ => None,
    }
}

pub fn evaluations(events: &[TaskReport]) -> Vec<Evaluation> {
    events.iter().filter_map(evaluated).collect()
}

/// Accuracy of the last evaluation that has one.
pub fn last_accuracy(events: &[TaskReport]) -> f64 {
    let all = evaluations(events).into_iter().rev();
    let mut accuracies = all.filter_map(|evaluation| evaluation.accuracy);
    accuracies.next().expect("an evaluation with accuracy")
}

/// Waits for the evaluation of `step`. Returns its accuracy.
pub fn accuracy_at(chief: &RigTask, step: u64) -> f64 {
    chief.wait_for("a last evaluation", |report| {
        let evaluation = evaluated(report).filter(|evaluation| evaluation.step == step);
        evaluation.and_then(|evaluation| evaluation.accuracy)
    })
}

pub fn samples(events: &[TaskReport]) -> Vec<Sample> {
    let samples = events.iter().filter_map(|event| match event {
        TaskReport::Progress { sample } => Some(sample.clone()),
        _ => None,
    });
    samples.collect()
}
