//! Population-based training of jobs: the worst trials are replaced by new ones that start from the
//! checkpoints of the best. Every interface shows the origins. A best trial then continues as a job
//! of its own.

use muster_e2e::cluster::{PATIENCE, TestCluster, TestClusterOptions};
use muster_e2e::story::no_gpu_was_held_twice;
use muster_e2e::study::{created, finished, trials};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::progress::Evaluation;
use muster_model::study::TrialPhase;
use muster_model::view::TrialView;
use serde_json::{Value, json};

const NODES: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 1 };
/// Steps of an epoch: 2560 examples in batches of 128.
const EPOCH: u64 = 20;

/// Rates from hopeless to good, so that the first comparison already copies.
fn document() -> Value {
    json!({
        "version": "muster/v1", "kind": "study", "name": "population",
        "search": {
            "objectives": [{"metric": "test_accuracy", "goal": "maximize"}],
            "parameters": [
                {"name": "rate", "field": "engine.optimizer.learning_rate", "type": "float", "low": 0.0001, "high": 0.3, "log": true},
            ],
            "searcher": {"kind": "sobol"},
            "stopper": {"kind": "pbt", "population": 4, "interval": 1},
            "budget": {"max": 4, "unit": "epochs"},
            "trials": 8, "concurrency": 2, "seed": 3, "reproducible": true,
        },
        "job": {
            "engine": {
                "model": {"kind": "mlp", "hidden": [32]},
                "dataset": {"name": "fashion-mnist", "train_limit": 2560, "test_limit": 500},
                "optimizer": {"kind": "sgd", "momentum": 0.5}, "batch": 128,
            },
            // The minimum that a policy may keep.
            "checkpoint": {"keep": 1},
        },
    })
}

#[tokio::test]
async fn worst_trials_are_replaced_from_best_checkpoints() {
    let mut cluster = TestCluster::start(NODES).await;
    let study = created(&cluster, &document()).await;
    finished(&cluster, study, PATIENCE, |_| {}).await;
    let trials = trials(&cluster, study).await;
    let copies: Vec<&TrialView> = trials.iter().filter(|one| one.from.is_some()).collect();
    assert!(copies.len() >= 2, "exploit: {trials:#?}");
    for copy in &copies {
        began_where_its_parent_stood(&cluster, &trials, copy).await;
    }
    let jobs: Vec<JobId> = trials.iter().filter_map(|one| one.job_id).collect();
    assert_eq!(jobs.len(), trials.len());
    no_gpu_was_held_twice(&cluster, &jobs).await;
    said_by_the_command(&cluster, copies[0]);
    goes_on_as_a_job(&cluster, &trials).await;
    cluster.down();
}

async fn began_where_its_parent_stood(
    cluster: &TestCluster,
    trials: &[TrialView],
    copy: &TrialView,
) {
    let from = copy.from.expect("a copy");
    let parent = &trials[from.trial as usize];
    assert_ne!(copy.state, TrialPhase::Failed, "{copy:#?}");
    assert_ne!(copy.parameters, parent.parameters, "explore");
    let copy_job = copy.job_id.expect("a job");
    let parent_job = parent.job_id.expect("a job");
    let job = cluster.client().job(copy_job).await.expect("its job");
    let origin = job.spec.from.expect("where it began");
    let step = from.step * EPOCH;
    assert_eq!((origin.job, origin.step), (parent_job, Some(step)));
    let first = evaluations(cluster, copy_job).await.remove(0);
    let parents = evaluations(cluster, parent_job).await;
    let same = parents.iter().find(|one| one.step == step);
    assert_eq!(Some(&first), same, "what it took over is what was there");
    assert_eq!(copy.curve[0].step, from.step, "its curve begins there too");
    let known = parent.curve.iter().find(|point| point.step == from.step);
    assert_eq!(Some(&copy.curve[0]), known);
}

async fn evaluations(cluster: &TestCluster, job: JobId) -> Vec<Evaluation> {
    let series = cluster.client().progress(job, None, None).await;
    let all = series.expect("a series").evaluations;
    all.into_iter().map(|one| one.evaluation).collect()
}

fn said_by_the_command(cluster: &TestCluster, copy: &TrialView) {
    let from = copy.from.expect("a copy");
    let output = cluster
        .muster()
        .args(["study", "trials", "population"])
        .output();
    let said = String::from_utf8(output.expect("muster runs").stdout).expect("text");
    let words = format!("{} at {}", from.trial, from.step);
    assert!(said.contains(&words), "{words}: {said}");
}

/// `muster submit --from JOB@STEP`: the trial's own document with changes.
async fn goes_on_as_a_job(cluster: &TestCluster, trials: &[TrialView]) {
    let best = trials.iter().find(|one| one.best).expect("a best one");
    let parent = best.job_id.expect("a job");
    let reached = best.outcome.as_ref().expect("a result").step;
    let from = format!("{parent}@{}", reached * EPOCH);
    let longer = format!("stop.epochs={}", reached + 1);
    let arguments = [
        "submit",
        "--from",
        &from,
        "--set",
        &longer,
        "--set",
        "name=continued",
        "--wait",
    ];
    let output = cluster
        .muster()
        .args(arguments)
        .output()
        .expect("muster runs");
    assert!(output.status.success(), "{output:?}");
    let query = muster_client::JobQuery {
        name: Some("continued".to_owned()),
        ..muster_client::JobQuery::default()
    };
    let jobs = cluster.client().jobs(&query).await.expect("jobs").items;
    assert_eq!(jobs[0].phase, JobPhase::Succeeded);
    let mine = evaluations(cluster, jobs[0].id).await;
    let steps: Vec<u64> = mine.iter().map(|one| one.step).collect();
    assert_eq!(steps, [reached * EPOCH, (reached + 1) * EPOCH]);
    let parents = evaluations(cluster, parent).await;
    assert_eq!(parents.last(), mine.first());
}
