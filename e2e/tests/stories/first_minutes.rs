//! A new user's first minutes: scripts that know nothing of Muster run by `muster run`, without a
//! document, and their metrics and files are there afterwards.

use muster_e2e::cluster::{TestCluster, TestClusterOptions, program};
use muster_e2e::tools::tool;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const NODE: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 1 };

/// Classifies the digits that scikit-learn carries, with MLflow's own logging.
const SCIKIT_LEARN: &str = r#"
import mlflow
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import classification_report
from sklearn.model_selection import train_test_split

mlflow.sklearn.autolog()
images, labels = load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(images, labels, random_state=0)
with mlflow.start_run(run_name="digits"):
    model = SGDClassifier(random_state=0).fit(train_x, train_y)
    accuracy = model.score(test_x, test_y)
    mlflow.log_metric("test_accuracy", accuracy)
    mlflow.log_dict(classification_report(test_y, model.predict(test_x), output_dict=True), "report.json")
print(f"test accuracy {accuracy:.3f}")
"#;

/// What a user looks at afterwards, with the package of this repository.
const LOOKS: &str = r#"
from muster import Client

job = Client().job("train")
assert job.phase == "succeeded", job
metrics = {metric["name"]: metric["last"] for metric in job.metrics()}
assert metrics["test_accuracy"] > 0.85 and metrics["training_f1_score"] > 0.85, metrics
paths = [artifact["path"] for artifact in job.artifacts()]
assert "report.json" in paths and any(path.endswith("/model.pkl") for path in paths), paths
"#;

/// Prints a loss and writes nothing else, like PyTorch's own examples. Needs no package.
const PRINTS: &str = r#"
for epoch in range(1, 4):
    for batch in range(0, 60000, 6000):
        print(f"Train Epoch: {epoch} [{batch}/60000 ({batch // 600}%)]\tLoss: {1 / (epoch + batch / 60000):.6f}")
    print(f"\nTest set: Average loss: {0.1 / epoch:.4f}, Accuracy: {9700 + epoch}/10000 ({97 + epoch / 100:.2f}%)\n", flush=True)
"#;

/// Runs `muster run` in a folder that contains the script, and returns what it printed.
fn run(cluster: &TestCluster, script: &str, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("train.py"), script).expect("written");
    let output = cluster
        .muster()
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .arg("run")
        .args(arguments)
        .output();
    let output = output.expect("muster runs");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Installs the package into an environment of its own and runs a script there.
fn look(cluster: &TestCluster, script: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let environment = folder.path().join("environment");
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../executor/python");
    // A copy, because the installation writes into the folder of its source.
    let source = folder.path().join("source");
    let copied = Command::new("cp").arg("-r").arg(tree).arg(&source).status();
    assert!(copied.expect("cp runs").success());
    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(&environment)
        .status();
    assert!(made.expect("python3 runs").success());
    let python = environment.join("bin/python");
    let pip = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/pip");
    let installed = Command::new(pip)
        .arg("--python")
        .arg(&python)
        .args(["install", "--quiet"])
        .arg(source)
        .output()
        .expect("pip runs");
    let said = String::from_utf8_lossy(&installed.stderr);
    assert!(installed.status.success(), "{said}");
    let mut command = Command::new(python);
    for (name, value) in cluster.muster().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command
        .env("MUSTER_CLI", program("muster"))
        .args(["-c", script])
        .current_dir(folder.path())
        .output()
        .expect("python runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[tokio::test]
async fn script_with_scikit_learn_and_mlflow_runs_unchanged() {
    let python = tool("MUSTER_MLFLOW_PYTHON");
    let mut cluster = TestCluster::start(NODE).await;
    let python = python.to_str().expect("text");
    let out = run(&cluster, SCIKIT_LEARN, &["--", python, "train.py"]);
    assert!(out.contains("test accuracy 0.9"), "{out}");
    look(&cluster, LOOKS);
    cluster.down();
}

#[tokio::test]
async fn script_that_only_prints_has_curves_of_named_metrics() {
    let mut cluster = TestCluster::start(NODE).await;
    let arguments = [
        "--metric",
        "loss",
        "--metric",
        r"test_accuracy=Accuracy: .*\(([\d.]+)%\)",
        "--",
        "python3",
        "train.py",
    ];
    run(&cluster, PRINTS, &arguments);
    look(
        &cluster,
        r#"
from muster import Client
job = Client().job("train")
metrics = {metric["name"]: metric for metric in job.metrics()}
assert sorted(metrics) == ["loss", "test_accuracy"], metrics
# Those of the training, and the averages behind "loss:" of the tests.
assert (metrics["loss"]["values"], metrics["loss"]["max"]) == (33, 1.0), metrics["loss"]
assert metrics["test_accuracy"]["last"] == 97.03, metrics
"#,
    );
    cluster.down();
}
