//! Artifacts on real processes: a program writes files and logs others with MLflow's client. They
//! remain when it fails, and only its tenant can read them.

use crate::shared::tenant;
use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::tools::tool;
use muster_model::job::JobPhase;

const ONE: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 1 };

/// Logs files with MLflow, reads them again, writes others and is killed.
const WRITES: &str = r#"
import mlflow, os, signal
out = os.environ["MUSTER_OUTPUT_DIR"]
with mlflow.start_run():
    mlflow.log_text("héllo", "notes/hello.txt")
    mlflow.log_dict({"lr": 0.1}, "config.json")
    os.makedirs("local/deep")
    with open("local/deep/weights.bin", "wb") as file:
        file.write(bytes(range(256)) * 4096)
    mlflow.log_artifact("local/deep/weights.bin", "model")
    mlflow.log_artifacts("local", "all")
    root = mlflow.active_run().info.artifact_uri
    assert root.startswith("mlflow-artifacts:/"), root
    client = mlflow.MlflowClient()
    run = mlflow.active_run().info.run_id
    listed = [(file.path, file.is_dir, file.file_size) for file in client.list_artifacts(run)]
    assert listed == [("all", True, None), ("config.json", False, 15), ("model", True, None), ("notes", True, None)], listed
    inner = [file.path for file in client.list_artifacts(run, "model")]
    assert inner == ["model/weights.bin"], inner
    folder = mlflow.artifacts.download_artifacts(run_id=run, dst_path="back")
    assert open("back/notes/hello.txt", encoding="utf-8").read() == "héllo"
    assert open("back/all/deep/weights.bin", "rb").read() == open("local/deep/weights.bin", "rb").read()
    assert mlflow.artifacts.load_dict(root + "/config.json") == {"lr": 0.1}
    found = mlflow.search_runs(experiment_ids=["0"], output_format="list")
    assert [one.info.run_id for one in found] == [run], found
    assert [one.experiment_id for one in mlflow.search_experiments()] == ["0"]
    model = mlflow.initialize_logged_model(name="net", source_run_id=run)
    client.log_model_artifacts(model.model_id, "local")
    mlflow.finalize_logged_model(model.model_id, "READY")
    assert mlflow.get_logged_model(model.model_id).status == "READY"
with open(out + "/curve.csv", "w") as file:
    file.write("step,loss\n1,0.5\n")
os.symlink("/etc/shadow", out + "/shadow")
print("written", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"#;

#[tokio::test]
async fn artifacts_of_a_killed_program_remain_for_its_tenant() {
    let mlflow = tool("MUSTER_MLFLOW_PYTHON");
    let mut cluster = TestCluster::start(ONE).await;
    let document = serde_json::json!({
        "version": "muster/v1", "name": "writer", "retries": 0,
        "command": { "argv": [mlflow, "script.py"], "files": { "script.py": WRITES } },
    });
    let job = cluster.submit(&document.to_string()).await.id;
    cluster
        .until(job, "the failure", |job| job.phase == JobPhase::Failed)
        .await;
    let found = cluster.client().artifacts(job, "").await.expect("a list");
    // The id of the logged model is random.
    let (models, found): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|one| one.path.starts_with("models/m-"));
    assert_eq!(models.len(), 1);
    assert!(models[0].path.ends_with("/deep/weights.bin"));
    let found: Vec<(&str, u64)> = found
        .iter()
        .map(|one| (one.path.as_str(), one.bytes))
        .collect();
    let weights = 256 * 4096;
    let expected = [
        ("all/deep/weights.bin", weights),
        ("config.json", 15),
        ("curve.csv", 16),
        ("model/weights.bin", weights),
        ("notes/hello.txt", 6),
    ];
    assert_eq!(found, expected, "{}", cluster.run(&["logs", "writer"]));
    let events = cluster.run(&["events", "writer"]);
    assert!(
        events.contains("\"shadow\"") && events.contains("is a link"),
        "{events}"
    );

    let listed = cluster.run(&["artifacts", "writer", "--prefix", "model/"]);
    assert!(
        listed.contains("model/weights.bin") && listed.contains("1.0 MiB"),
        "{listed}"
    );
    assert!(!listed.contains("curve.csv"), "{listed}");
    let to = tempfile::tempdir().expect("a folder");
    let path = to.path().display().to_string();
    let said = cluster.run(&["artifacts", "writer", "--download", &path]);
    assert!(said.contains("6 files"), "{said}");
    let read = |name: &str| std::fs::read(to.path().join(name)).expect("downloaded");
    assert_eq!(read("notes/hello.txt"), "héllo".as_bytes());
    assert_eq!(read("curve.csv"), b"step,loss\n1,0.5\n");
    let content: Vec<u8> = (0..=255).collect();
    assert_eq!(read("model/weights.bin"), content.repeat(4096));

    let bob = tenant(&cluster, "bob").await;
    let hidden = bob.artifacts(job, "").await.expect_err("not bob's");
    assert!(hidden.to_string().contains("no job"), "{hidden}");
    assert!(bob.artifact(job, "curve.csv").await.is_err());
    cluster.down();
}
