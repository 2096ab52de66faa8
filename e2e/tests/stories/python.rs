//! The Python package: its client submits, watches and steers jobs of a real cluster, whose
//! programs use the package's interface of tasks.

use muster_e2e::cluster::{TestCluster, TestClusterOptions, program};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const NODES: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 1 };

/// Trains with batches that do not depend on the number of workers. Ends without `finish`.
const TRAIN: &str = r#"
import json, os, sys
import muster
from muster.elastic import ElasticBatches

world = muster.world()
order = ElasticBatches(10, 4, rank=world.rank, world_size=world.size)
print("zażółć", world.rank, world.size, os.environ["COLOR"], sys.argv[1:], flush=True)
print("samples", json.dumps(list(order)))
for step in range(1, 31):
    muster.report(step, {"train/f1": step / 30}, loss=1.0 / step)
"#;

/// Runs a job of a folder and reads what it has reported.
const WATCHES: &str = r#"
import json
from muster import Client, errors

client = Client()
job = client.run(["python3", "train.py", 7], workers=2, gpus=1, env={"COLOR": "red"}, fields={"retries": 0})
lines = list(job.logs(follow=True))
assert lines[0] == "zażółć 0 2 red ['7']", lines
job.wait(60, check=True)
batches = [json.loads(job.logs(task=f"worker-{rank}").split("samples ")[1]) for rank in (0, 1)]
epoch = [index for step in zip(*batches) for part in step for index in part][:10]
assert sorted(epoch) == list(range(10)), batches
assert job.logs(tail_bytes=2) == "]\n"

# The end of the process has sent the buffered points.
assert job.metrics().names == ["loss", "train/f1"], job.metrics()
points = job.points()
assert (points["train/f1"].steps[-1], points["train/f1"].values[-1]) == (30, 1.0), points["train/f1"][-1]
assert "<polyline" in points._repr_html_() and "<polyline" in job._repr_html_()
assert [other.id for other in client.jobs(phase="succeeded")] == [job.id]
assert "train" in client.jobs()._repr_html_()
assert client.job("train").id == client.job(job.id).id == job.id
assert job.spec["command"]["code"]["archive"]
assert [node["name"] for node in client.nodes()] == ["node-1", "node-2"]
"#;

/// Sends wrong requests and changes jobs.
const STEERS: &str = r#"
import time
from muster import Client, errors

client = Client()
wrong = {"version": "muster/v1", "name": "wrong", "command": {"argv": ["true"]}, "scale": {"workers": {"min": 5, "max": 2}}}
for submit in (client.submit, lambda document: client.submit(document, code=".")):
    try:
        submit(wrong)
        raise SystemExit("it was accepted")
    except errors.InvalidRequest as error:
        assert error.errors[0].field == "scale.workers.max", error
        assert "expected at least min (5)" in str(error), error
for named in ("none", "01a22a46-394e-777c-bb5a-8b033b64468e"):
    try:
        client.job(named)
        raise SystemExit("it was found")
    except errors.NotFound:
        pass
try:
    Client(token="wrong").me()
    raise SystemExit("it was let in")
except errors.Unauthenticated:
    pass

job = client.submit("sleep.yaml")
try:
    job.wait(0.5)
    raise SystemExit("it ended")
except TimeoutError:
    pass
job.pause()
while job.phase != "paused":
    time.sleep(0.1)
job.resume()
while job.phase == "paused":
    time.sleep(0.1)
job.cancel()
assert job.wait(60).phase == "cancelled"
try:
    job.pause()
    raise SystemExit("it was paused")
except errors.Conflict as error:
    assert error.status == 409, error
failed = client.run(["sh", "-c", "exit 3"], code=None, fields={"retries": 0}).wait(60)
assert "exited with code 3" in failed.failure, failed.failure
"#;

/// Creates a study over an argument of a program of the folder.
const SEARCHES: &str = r#"
from muster import Client

study = Client().create_study({
    "version": "muster/v1", "kind": "study", "name": "search",
    "search": {
        "objectives": [{"metric": "test_loss", "goal": "minimize"}],
        "parameters": [{"name": "lr", "type": "discrete", "choices": [0.5, 0.25], "field": "command.argv[2]"}],
        "searcher": {"kind": "grid"}, "trials": 2, "concurrency": 2,
    },
    "job": {"command": {"argv": ["python3", "fit.py", "0"]}},
}, code=".")
assert study.wait(120).phase == "finished"
trials = study.trials()
assert [(trial["parameters"]["lr"], trial["outcome"]["values"]) for trial in trials] == [(0.5, [0.5]), (0.25, [0.25])], trials
assert study.best["trial"]["number"] == 1 and study.objectives == ["test_loss"], study.best
assert study.job(trials[0]).wait(60).phase == "succeeded"
assert "test_loss" in trials._repr_html_()
"#;

/// Runs a script with the client of this repository, in a folder.
fn python(cluster: &TestCluster, folder: &Path, script: &str) -> Output {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../executor/python");
    let mut command = Command::new("python3");
    // The settings of the command line are those of the client.
    for (name, value) in cluster.muster().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .env("MUSTER_CLI", program("muster"))
        .env("PYTHONPATH", package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-c", script])
        .current_dir(folder);
    command.output().expect("python3 runs")
}

#[tokio::test]
async fn python_client_runs_watches_and_steers_jobs() {
    let mut cluster = TestCluster::start(NODES).await;
    let folder = tempfile::tempdir().expect("a folder");
    let fit = "import sys\nprint(f'muster: step=1 loss=1.0 val_loss={sys.argv[1]}')\n";
    let sleeps = "version: muster/v1\nname: sleeps\ncommand: { argv: [sleep, '600'] }\n";
    for (name, text) in [("train.py", TRAIN), ("fit.py", fit), ("sleep.yaml", sleeps)] {
        fs::write(folder.path().join(name), text).expect("written");
    }
    for script in [WATCHES, STEERS, SEARCHES] {
        let output = python(&cluster, folder.path(), script);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
    cluster.down();
}
