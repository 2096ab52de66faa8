//! A document names a commit of git. Both workers run it, and the job has the label of the commit.
//! Its scalars of TensorBoard are metrics.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::runtime::of_processes;
use muster_model::job::JobPhase;
use muster_model::view::JobView;
use std::fs;
use std::path::Path;
use std::process::Command;

const NODES: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 1 };

/// Event file that tensorboard 2.21 has written.
const EVENTS: &[u8] =
    include_bytes!("../../../executor/src/tracking/tensorboard/testdata/tensorboard.tfevents");

fn git(folder: &Path, arguments: &[&str]) -> String {
    let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
    let mut command = Command::new("git");
    command.current_dir(folder).args(author).args(arguments);
    let output = command.output().expect("git");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.trim().to_owned()
}

#[tokio::test]
async fn commit_runs_and_its_event_files_are_metrics() {
    of_processes("the repository is a folder of this machine, which a pod does not see");
    let origin = tempfile::tempdir().expect("a folder");
    let at = origin.path();
    git(at, &["init", "--quiet", "--initial-branch", "main"]);
    let script = "mkdir -p $MUSTER_OUTPUT_DIR/eval; cp events $MUSTER_OUTPUT_DIR/eval/events.out.tfevents.1; echo ran the commit";
    fs::write(at.join("train.sh"), script).expect("written");
    fs::write(at.join("events"), EVENTS).expect("written");
    git(at, &["add", "."]);
    git(at, &["commit", "--quiet", "-m", "one"]);
    let commit = git(at, &["rev-parse", "HEAD"]);
    fs::write(at.join("train.sh"), "exit 1").expect("written");
    git(at, &["commit", "--quiet", "-am", "two"]);

    let cluster = TestCluster::start(NODES).await;
    let document = serde_json::json!({
        "version": "muster/v1", "name": "from-git", "retries": 0, "scale": { "workers": { "min": 2, "max": 2 } },
        "command": {
            "argv": ["sh", "train.sh"],
            "git": { "url": format!("file://{}", at.display()), "commit": commit },
        },
    });
    let file = at.join("job.json");
    fs::write(&file, document.to_string()).expect("written");
    let submitted = cluster.run(&["submit", &file.display().to_string(), "-o", "json"]);
    let job: JobView = serde_json::from_str(&submitted).expect("a job");
    let label = format!("git-commit={commit}");
    let listed = cluster.run(&["list", "--label", &label, "-o", "json"]);
    assert!(listed.contains("from-git"), "{listed}");
    cluster
        .until(job.id, "the end", |job| job.phase == JobPhase::Succeeded)
        .await;
    let log = cluster.run(&["logs", "from-git"]);
    assert!(log.contains("ran the commit"), "{log}");
    let metrics = cluster.run(&["metrics", "from-git"]);
    for name in ["eval/loss", "eval/val", "eval/half"] {
        assert!(metrics.contains(name), "{metrics}");
    }

    let archive = at.join("all.tar");
    let download = ["artifacts", "from-git", "--download"];
    let to = archive.display().to_string();
    let _downloaded = cluster.run(&[&download[..], &[&to]].concat());
    let listed = Command::new("tar").arg("-tf").arg(&archive).output();
    let listed = String::from_utf8(listed.expect("tar").stdout).expect("text");
    let names: Vec<&str> = listed.lines().collect();
    let name = "eval/events.out.tfevents.1";
    assert_eq!(names, [name, &format!("rank-1/{name}")]);
}
