//! Every document in examples/ on a fresh cluster. The fashion-* documents train for minutes, so
//! they are shortened; the others run unchanged.

use muster_e2e::cluster::{PATIENCE, TestCluster, TestClusterOptions};
use muster_e2e::study::{created, finished};
use muster_e2e::tools::{packages, path_with, tool};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Example that needs PyTorch, which takes 5 GB and is not installed for the tests.
const PYTORCH: &str = "pytorch-ddp";

#[tokio::test]
async fn every_example_succeeds_on_a_fresh_cluster() {
    let examples: Vec<_> = documents("examples")
        .into_iter()
        .filter(|(name, _)| name != PYTORCH)
        .collect();
    assert!(examples.len() >= 9, "{examples:?}");
    succeed(examples).await;
}

#[tokio::test]
async fn pytorch_example_succeeds_on_a_fresh_cluster() {
    let examples: Vec<_> = documents("examples")
        .into_iter()
        .filter(|(name, _)| name == PYTORCH)
        .collect();
    assert_eq!(examples.len(), 1);
    succeed(examples).await;
}

/// Submits the documents and waits until all of them have succeeded.
async fn succeed(examples: Vec<(String, Value)>) {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 2, slots: 3 }).await;
    let mut jobs: Vec<(String, JobId)> = Vec::new();
    for (name, mut document) in examples {
        if name.starts_with("fashion-") {
            document["stop"] = json!({ "steps": 40 });
            document["engine"]["dataset"]["train_limit"] = json!(2_560);
            document["engine"]["dataset"]["test_limit"] = json!(500);
        }
        for (variable, value) in variables(&name) {
            document["command"]["env"][variable] = json!(value);
        }
        let submitted = cluster.client().submit(&document, None).await;
        let job = submitted.unwrap_or_else(|error| panic!("{name}: {error}"));
        jobs.push((name, job.id));
    }
    for (name, job) in jobs {
        let done = cluster
            .until(job, &format!("{name} has ended"), |job| {
                job.phase.is_terminal()
            })
            .await;
        assert_eq!(
            done.phase,
            JobPhase::Succeeded,
            "{name}: {:?}",
            done.failure
        );
        assert_eq!(done.failures, 0, "{name}");
    }
    cluster.down();
}

#[tokio::test]
async fn every_study_example_has_a_best_trial() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 1, slots: 4 }).await;
    let mut studies = Vec::new();
    for (name, mut document) in documents("examples/studies") {
        if document["job"]["engine"].is_object() {
            document["job"]["engine"]["dataset"]["train_limit"] = json!(1_280);
            document["job"]["engine"]["dataset"]["test_limit"] = json!(200);
            document["search"]["budget"]["max"] = json!(1);
            document["search"]["trials"] = json!(2);
            document["search"]["stopper"] = json!({ "kind": "none" });
        }
        studies.push((name, created(&cluster, &document).await));
    }
    assert!(studies.len() >= 4, "{studies:?}");
    for (name, study) in studies {
        let done = finished(&cluster, study, PATIENCE, |_| {}).await;
        assert_eq!(done.trials.failed, 0, "{name}: {:?}", done.trials);
        assert!(!done.best.is_empty(), "{name}: {:?}", done.trials);
    }
    cluster.down();
}

/// Documents in a folder of the repository, by name.
fn documents(folder: &str) -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder);
    let entries = std::fs::read_dir(&folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
    files.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a document");
        let name = path.file_stem().expect("a name").to_string_lossy();
        (
            name.into_owned(),
            serde_norway::from_str(&text).expect("YAML"),
        )
    };
    files.into_iter().map(read).collect()
}

/// Variables by which a document finds its programs.
fn variables(name: &str) -> Vec<(&'static str, String)> {
    match name {
        "mpi-hello" => vec![
            ("PATH", path_with(&tool("MUSTER_MPIRUN"))),
            ("OMPI_ALLOW_RUN_AS_ROOT", "1".to_owned()),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1".to_owned()),
        ],
        PYTORCH => vec![
            ("PATH", path_with(&tool("MUSTER_TORCH_PYTHON"))),
            ("PYTHONPATH", packages(&tool("MUSTER_MLFLOW_PYTHON"))),
        ],
        _ => Vec::new(),
    }
}
