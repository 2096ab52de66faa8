//! `muster run --image`: a program runs in an image on a node without Kubernetes and without a
//! container runtime.

use crate::registry::{Registry, busybox};
use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use std::fs;
use std::path::Path;
use std::process::Stdio;

const TRAIN: &str = "
cat /etc/of-image
echo user $(id -u), $WORLD_SIZE worker, in_image $IN_IMAGE
test -e /usr/bin/python3 && echo sees the node
echo weights > $MUSTER_CHECKPOINT_DIR/weights
echo muster: step=1 loss=0.5
echo last words
";

/// Exit code of a failed job.
const FAILED: i32 = 10;

fn run(cluster: &TestCluster, folder: &Path, image: &str) -> (Option<i32>, String, String) {
    let output = cluster
        .muster()
        .current_dir(folder)
        .stdin(Stdio::null())
        .args(["run", "--image", image, "--", "sh", "train.sh"])
        .output()
        .expect("muster runs");
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn program_of_a_folder_runs_in_an_image() {
    let registry = tokio::task::spawn_blocking(|| {
        let registry = Registry::start();
        registry.push("team/base:1", vec![busybox()]);
        registry
    });
    let registry = registry.await.expect("started");
    let options = TestClusterOptions { nodes: 1, slots: 1 };
    let settings = vec![
        (
            "MUSTER_EXECUTOR_INSECURE_REGISTRIES",
            registry.address.clone(),
        ),
        ("MUSTER_EXECUTOR_TASK_USER", "200000-200099".to_owned()),
    ];
    let mut cluster = TestCluster::start_set(options, settings).await;
    let nodes = cluster.run(&["nodes"]);
    assert!(nodes.contains("tasks can run in images"), "{nodes}");
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("train.sh"), TRAIN).expect("written");
    let (code, out, err) = run(&cluster, folder.path(), &registry.name("team/base:1"));
    assert_eq!(code, Some(0), "{out}{err}");
    for expected in [
        "pulling ",
        "hello\n",
        ", 1 worker, in_image yes\n",
        "last words\n",
    ] {
        assert!(out.contains(expected), "{expected:?} is not in {out}");
    }
    assert!(!out.contains("sees the node"), "{out}");
    assert!(err.contains("muster: job train succeeded"), "{err}");

    let (code, out, err) = run(&cluster, folder.path(), &registry.name("team/none:1"));
    assert_eq!(code, Some(FAILED), "{out}{err}");
    assert!(err.contains("has no image"), "{out}{err}");
    cluster.down();
}
