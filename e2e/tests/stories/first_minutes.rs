//! A new user's first minutes: scripts that know nothing of Muster run by `muster run`, without a
//! document, and their metrics and files are there afterwards.

use muster_e2e::cluster::{TestCluster, TestClusterOptions, program};
use muster_e2e::tools::tool;
use muster_model::view::MetricView;
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

/// Trains a network with torch alone. Its scalars go to TensorBoard's default folder.
const TORCH: &str = r#"
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(512, 20)
y = (x[:, :1] > 0).float()
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
writer = SummaryWriter()
for epoch in range(1, 21):
    optimizer.zero_grad()
    loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
    loss.backward()
    optimizer.step()
    writer.add_scalar("loss/train", loss.item(), epoch)
writer.close()
torch.save(model.state_dict(), "model.pt")
"#;

/// Trains with Lightning, its default logger and MLflow's autologging.
const LIGHTNING: &str = r#"
import lightning as L
import mlflow
import torch
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val_acc", (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


L.seed_everything(0)
torch.set_num_threads(1)
x = torch.randn(640, 20)
data = TensorDataset(x, (x[:, 0] > 0).long())
trainer = L.Trainer(max_epochs=4, log_every_n_steps=5, accelerator="cpu", enable_progress_bar=False)
trainer.fit(Classifier(), DataLoader(data, 32, shuffle=True), DataLoader(data, 128))
"#;

/// Trains a tiny model that is made on the spot, with the MLflow callback of Transformers.
const TRANSFORMERS: &str = r#"
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
torch.set_num_threads(1)
config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
rows = (torch.arange(32).repeat(256, 1) + torch.arange(256)[:, None]) % 64
rows = [{"input_ids": row, "labels": row} for row in rows]
arguments = TrainingArguments(
    output_dir="out", num_train_epochs=2, per_device_train_batch_size=16, logging_steps=4, eval_strategy="epoch",
    save_strategy="epoch", report_to=["mlflow"], use_cpu=True, disable_tqdm=True,
)
Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=rows, eval_dataset=rows[:32]).train()
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
    let output = cluster
        .muster()
        .args(["metrics", "train", "-o", "json"])
        .output();
    let output = output.expect("muster runs").stdout;
    let metrics: Vec<MetricView> = serde_json::from_slice(&output).expect("metrics");
    let [loss, accuracy] = &metrics[..] else {
        panic!("{metrics:?}");
    };
    assert_eq!(
        (loss.name.as_str(), accuracy.name.as_str()),
        ("loss", "test_accuracy")
    );
    // 30 of the training, and three averages behind "loss:" of the tests.
    assert_eq!((loss.values, loss.max, accuracy.last), (33, 1.0, 97.03));
    cluster.down();
}

#[tokio::test]
async fn scripts_with_libraries_of_pytorch_run_unchanged() {
    let python = tool("MUSTER_TORCH_PYTHON");
    let python = python.to_str().expect("text");
    let mut cluster = TestCluster::start(NODE).await;
    let script = |name: &str, kept: &str, script: &str| {
        let arguments = ["--name", name, "--keep", kept, "--", python, "train.py"];
        run(&cluster, script, &arguments);
    };
    script("plain", "runs", TORCH);
    script("lightning", "lightning_logs", LIGHTNING);
    script("transformers", "out", TRANSFORMERS);
    look(
        &cluster,
        r#"
from muster import Client
for name, metrics, file in [
    ("plain", {"loss/train": 20}, "/events.out.tfevents."),
    ("lightning", {"train_loss": 80, "val_acc": 80}, ".ckpt"),
    ("transformers", {"loss": 32, "eval_loss": 32}, "out/checkpoint-32/model.safetensors"),
]:
    job = Client().job(name)
    found = {metric["name"]: metric["last_step"] for metric in job.metrics()}
    assert all(abs(found[metric] - step) <= 1 for metric, step in metrics.items()), (name, found)
    paths = [artifact["path"] for artifact in job.artifacts()]
    assert any(file in path for path in paths), (name, paths)
assert Client().job("transformers").points()["loss"].values[-1] < 4.1
"#,
    );
    cluster.down();
}
