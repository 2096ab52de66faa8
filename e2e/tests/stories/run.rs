//! `muster run`: a program of a working folder becomes a job, whose output the command shows.

use crate::s3;
use muster_e2e::cluster::{CheckpointBucket, TestCluster, TestClusterOptions};
use muster_model::job::JobPhase;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const NODES: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 1 };

/// Exit code of a failed job.
const FAILED: i32 = 10;

/// Imports a module of the folder, and prints what it finds there.
const TRAIN: &str = r#"
import os, sys
from model import curve
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], os.environ["COLOR"], sys.argv[1:])
print("files", sorted(name for name in os.listdir(".") if name != "__pycache__"))
for step, loss in enumerate(curve, 1):
    print(f"muster: step={step} loss={loss}", flush=True)
print("last words")
"#;

/// A working folder with a file that is not to be sent.
fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    fs::write(at.join("train.py"), TRAIN).expect("written");
    fs::write(at.join("model.py"), "curve = [0.5, 0.25, 0.125]\n").expect("written");
    fs::write(at.join(".gitignore"), "*.npz\n").expect("written");
    fs::write(at.join("data.npz"), "large").expect("written");
    folder
}

fn command(cluster: &TestCluster, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = cluster.muster();
    command
        .current_dir(folder)
        .env("COLOR", "red")
        .stdin(Stdio::null())
        .arg("run")
        .args(arguments);
    command
}

fn run(cluster: &TestCluster, folder: &Path, arguments: &[&str]) -> (Output, String, String) {
    let output = command(cluster, folder, arguments).output();
    let output = output.expect("muster runs");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, out, err)
}

/// Returns the only stored archive.
fn archive(cluster: &TestCluster) -> PathBuf {
    only_entry(&only_entry(&cluster.checkpoints().join("code")))
}

fn only_entry(folder: &Path) -> PathBuf {
    let mut entries = fs::read_dir(folder).expect("a folder");
    entries.next().expect("an entry").expect("readable").path()
}

#[tokio::test]
async fn program_of_a_folder_runs_on_two_nodes() {
    let mut cluster = TestCluster::start(NODES).await;
    let folder = project();
    let train = [
        "--workers",
        "2",
        "--env",
        "COLOR",
        "--",
        "python3",
        "train.py",
        "--lr",
        "0.1",
    ];
    let (output, out, err) = run(&cluster, folder.path(), &train);
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("rank 0 of 2 red ['--lr', '0.1']"), "{out}");
    assert!(
        out.contains("files ['.gitignore', 'model.py', 'train.py']"),
        "{out}"
    );
    assert!(out.ends_with("last words\n"), "{out}");
    assert!(err.contains("muster: job train succeeded"), "{err}");
    let other = cluster.run(&["logs", "train", "--task", "worker-1"]);
    assert!(other.contains("rank 1 of 2 red"), "{other}");

    // An unchanged folder is not uploaded again. An upload would replace the file.
    let stored = archive(&cluster);
    let before = fs::metadata(&stored).expect("there").ino();
    let fails = [
        "--set",
        "retries=0",
        "--",
        "sh",
        "-c",
        "cat model.py; exit 3",
    ];
    let (output, out, err) = run(&cluster, folder.path(), &fails);
    assert_eq!(output.status.code(), Some(FAILED), "{out}{err}");
    assert!(out.contains("curve = "), "{out}");
    assert!(err.contains("worker-0 exited with code 3"), "{err}");
    assert_eq!(fs::metadata(&stored).expect("there").ino(), before);

    // The code of a job comes back.
    let again = folder.path().join("again");
    let to = again.to_str().expect("UTF-8");
    let _ = cluster.run(&["code", "train", "--to", to]);
    assert_eq!(
        fs::read_to_string(again.join("train.py")).expect("there"),
        TRAIN
    );
    fs::remove_dir_all(&again).expect("removed");

    // Another process has replaced the archive, and no node has a copy.
    fs::write(&stored, "another program").expect("written");
    for node in ["node-1", "node-2"] {
        let _ = fs::remove_dir_all(cluster.data().join("nodes").join(node).join("code"));
    }
    let (_, document, _) = run(
        &cluster,
        folder.path(),
        &["--dry-run", "--", "python3", "train.py"],
    );
    let job = cluster.submit(&format!("{document}retries: 0\n")).await.id;
    let ended = cluster
        .until(job, "an end", |job| job.phase.is_terminal())
        .await;
    assert_eq!(ended.phase, JobPhase::Failed);
    let failure = ended.failure.expect("a reason");
    assert!(failure.contains("has another content"), "{failure}");
    cluster.down();
}

/// A search over an argument of the program.
const SEARCH: &str = r#"
search:
  objectives: [{ metric: test_loss, goal: minimize }]
  parameters: [{ name: lr, type: discrete, choices: [0.5, 0.25] }]
  searcher: { kind: grid }
  trials: 2
  concurrency: 2
"#;

#[tokio::test]
async fn arguments_of_a_program_are_searched() {
    let mut cluster = TestCluster::start(NODES).await;
    let folder = tempfile::tempdir().expect("a folder");
    let train = "import sys\nprint(f'muster: step=1 loss=1.0 val_loss={sys.argv[1]}')\n";
    fs::write(folder.path().join("fit.py"), train).expect("written");
    fs::write(folder.path().join("search.yaml"), SEARCH).expect("written");
    let fits = ["--study", "search.yaml", "--", "python3", "fit.py", "{lr}"];
    let (output, out, err) = run(&cluster, folder.path(), &fits);
    assert!(output.status.success(), "{out}{err}");
    let mut shown = String::new();
    for _ in 0..600 {
        shown = cluster.run(&["study", "show", "fit"]);
        if shown.contains("2 completed") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let best = cluster.run(&["study", "best", "fit", "-o", "json"]);
    assert!(
        best.contains("0.25") && !best.contains("0.5,"),
        "{shown}{best}"
    );
    cluster.down();
}

#[tokio::test]
async fn interrupted_run_leaves_the_job() {
    let mut cluster = TestCluster::start(NODES).await;
    let folder = project();
    let long = ["--name", "long", "--", "sh", "-c", "echo begun; sleep 600"];
    let mut running = command(&cluster, folder.path(), &long)
        .stdout(Stdio::piped())
        .spawn()
        .expect("muster runs");
    let mut lines = BufReader::new(running.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("UTF-8"), "begun");
    let id = i32::try_from(running.id()).expect("a process id");
    kill_process(Pid::from_raw(id).expect("positive"), Signal::INT).expect("it runs");
    let ended = running.wait().expect("it ends");
    assert!(ended.success(), "{ended}");
    let shown = cluster.run(&["show", "long", "-o", "json"]);
    assert!(shown.contains("\"phase\": \"running\""), "{shown}");
    let _ = cluster.run(&["cancel", "long"]);
    cluster.down();
}

#[tokio::test]
async fn program_of_a_folder_comes_from_a_bucket() {
    let server = s3::TestBucket::start();
    let bucket = CheckpointBucket {
        place: server.place(),
        environment: server.environment(),
    };
    let mut cluster = TestCluster::start_saving(NODES, bucket).await;
    let folder = project();
    let train = ["--env", "COLOR", "--", "python3", "train.py"];
    let (output, out, err) = run(&cluster, folder.path(), &train);
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("rank 0 of 1 red []"), "{out}");
    let objects = server.objects();
    assert!(
        objects.iter().any(|name| name.contains("code/")),
        "{objects:?}"
    );
    cluster.down();
}

/// Writes a wheel without pip, so that the story needs no network.
const WHEEL: &str = r#"
import zipfile
info = "greeting-1.0.dist-info"
with zipfile.ZipFile("wheels/greeting-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("greeting.py", "text = 'hello from the wheel'\n")
    wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: story\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/RECORD", "")
"#;

#[tokio::test]
async fn program_runs_with_its_requirements() {
    let mut cluster = TestCluster::start(NODES).await;
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    fs::create_dir(at.join("wheels")).expect("made");
    let made = Command::new("python3")
        .args(["-c", WHEEL])
        .current_dir(at)
        .status();
    assert!(made.expect("python3 runs").success());
    let requirements = "--no-index\n--find-links wheels\ngreeting==1.0\n";
    fs::write(at.join("requirements.txt"), requirements).expect("written");
    let greet = "import greeting, sys; print(greeting.text, 'environments' in sys.prefix)";
    let arguments = [
        "--requirements",
        "requirements.txt",
        "--workers",
        "2",
        "--",
        "python3",
        "-c",
        greet,
    ];
    let (output, out, err) = run(&cluster, at, &arguments);
    assert!(output.status.success(), "{out}{err}");
    assert!(
        out.contains("installing the packages of requirements.txt"),
        "{out}"
    );
    assert!(out.contains("hello from the wheel True"), "{out}");
    let (output, out, err) = run(&cluster, at, &arguments);
    assert!(output.status.success(), "{out}{err}");
    assert!(!out.contains("installing"), "{out}");
    assert!(out.contains("hello from the wheel True"), "{out}");

    let absent = ["--requirements", "absent.txt", "--", "true"];
    let (output, _, err) = run(&cluster, at, &absent);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(
        err.contains("--requirements absent.txt: expected a file of"),
        "{err}"
    );

    fs::write(at.join("requirements.txt"), "--no-index\nmissing==1.0\n").expect("written");
    let (output, out, err) = run(
        &cluster,
        at,
        &[&["--set", "retries=0"], &arguments[..]].concat(),
    );
    assert_eq!(output.status.code(), Some(FAILED), "{out}{err}");
    assert!(
        err.contains("pip install ended with exit status: 1"),
        "{err}"
    );
    assert!(
        err.contains("No matching distribution found for missing==1.0"),
        "{err}"
    );
    cluster.down();
}

/// Program whose rank 1 fails after both ranks have printed something.
const FAILING: &str = r#"
echo "hello of $RANK"
if [ "$RANK" = 1 ]; then sleep 1; echo "boom on rank 1"; exit 3; fi
sleep 600
"#;

#[tokio::test]
async fn logs_show_the_rank_that_failed() {
    let mut cluster = TestCluster::start(NODES).await;
    let document = serde_json::json!({
        "version": "muster/v1", "name": "failing", "retries": 0,
        "scale": { "workers": { "min": 2, "max": 2 } },
        "command": { "argv": ["sh", "-c", FAILING] },
    });
    cluster.submit(&document.to_string()).await;
    let logs = |arguments: &[&str]| {
        let output = cluster.muster().arg("logs").args(arguments).output();
        let output = output.expect("muster runs");
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), out, err)
    };
    let (code, out, err) = logs(&["-f", "failing"]);
    assert_eq!(code, Some(FAILED), "{err}");
    assert!(out.contains("hello of 0") && !out.contains("boom"), "{out}");
    assert!(
        err.contains("last lines of worker-1:\nhello of 1\nboom on rank 1"),
        "{err}"
    );
    assert!(err.contains("job failing failed"), "{err}");

    let (_, out, _) = logs(&["--all", "failing"]);
    let mut lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.pop(), Some("worker-1 | boom on rank 1"), "{out}");
    lines.sort_unstable();
    assert_eq!(lines, ["worker-0 | hello of 0", "worker-1 | hello of 1"]);

    let (_, out, _) = logs(&["-t", "worker-1", "--tail", "1", "--timestamps", "failing"]);
    let (time, line) = out
        .trim_end()
        .split_once(' ')
        .expect("a time before the line");
    assert!(time.starts_with("20") && time.ends_with('Z'), "{out}");
    assert_eq!(line, "boom on rank 1");
    let (_, out, err) = logs(&["--since", "1d", "failing"]);
    assert_eq!(out, "hello of 0\n");
    assert!(
        err.contains("worker-1 failed: muster logs -t worker-1 failing"),
        "{err}"
    );
    cluster.down();
}
