//! Helpers of stories of studies: creation, waiting, and the part of the trials that must not
//! depend on faults.

use crate::cluster::TestCluster;
use muster_model::id::StudyId;
use muster_model::study::StudyPhase;
use muster_model::view::{StudyView, TrialView};
use serde_json::{Value, json};
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(100);

/// Creates a study.
///
/// # Panics
/// If the document is refused.
pub async fn created(cluster: &TestCluster, document: &Value) -> StudyId {
    let study = cluster.client().create_study(document, None).await;
    study.expect("the document is right").id
}

/// All trials with their curves.
///
/// # Panics
/// If the cluster does not answer.
pub async fn trials(cluster: &TestCluster, id: StudyId) -> Vec<TrialView> {
    cluster.client().trials(id, true).await.expect("trials")
}

/// Waits for the end of the study. Calls `meanwhile` with its state at each poll.
///
/// # Panics
/// If it has not finished within `patience`.
pub async fn finished(
    cluster: &TestCluster,
    id: StudyId,
    patience: Duration,
    mut meanwhile: impl FnMut(&StudyView),
) -> StudyView {
    let mut waited = Duration::ZERO;
    loop {
        let study = cluster.client().study(id).await.expect("the study");
        if study.phase == StudyPhase::Finished {
            return study;
        }
        assert!(waited <= patience, "the study has not finished: {study:#?}");
        meanwhile(&study);
        tokio::time::sleep(LOOK).await;
        waited += LOOK;
    }
}

/// Part of the trials that must not depend on the time of faults.
#[must_use]
pub fn sequence(trials: &[TrialView]) -> Vec<Value> {
    let facts = trials.iter().map(|trial| {
        json!([
            trial.number,
            trial.state,
            trial.parameters,
            trial.seed,
            trial.budget,
            trial.rung,
            trial.from,
            trial.rungs,
            trial.best
        ])
    });
    facts.collect()
}
