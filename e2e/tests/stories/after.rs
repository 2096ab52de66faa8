//! Jobs that start after others have ended, and everyday commands about them.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_model::job::JobPhase;
use muster_model::view::JobView;

const NODE: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 4 };

/// Submits a program without code, and returns its job.
fn submit(cluster: &TestCluster, name: &str, after: &[&str], script: &str) -> JobView {
    let mut arguments = vec!["-o", "json", "run", "--detach", "--no-code", "--name", name];
    arguments.extend(after.iter().flat_map(|job| ["--after", job]));
    arguments.extend(["--set", "retries=0", "--", "sh", "-c", script]);
    serde_json::from_str(&cluster.run(&arguments)).expect("a job")
}

/// A slot is free the whole time, so only the conditions hold the jobs back.
#[tokio::test]
async fn pipeline_of_jobs_runs_in_its_order() {
    let mut cluster = TestCluster::start(NODE).await;
    let prepare = submit(&cluster, "prepare", &[], "sleep 3; echo prepared");
    let train = submit(&cluster, "train", &["prepare"], "echo trained; exit 3");
    let publish = submit(&cluster, "publish", &["train"], "echo published");
    let report = submit(
        &cluster,
        "report",
        &["prepare", "train:end"],
        "echo reported",
    );
    let waits = cluster.run(&["explain", "train"]);
    assert!(
        waits.contains(&format!("starts after {}", prepare.id)),
        "{waits}"
    );
    let ended = async |job: &JobView| {
        cluster
            .until(job.id, "an end", |job| job.phase.is_terminal())
            .await
    };
    let [prepare, train, publish, report] = [
        ended(&prepare).await,
        ended(&train).await,
        ended(&publish).await,
        ended(&report).await,
    ];
    assert_eq!(
        [prepare.phase, train.phase, publish.phase, report.phase],
        [
            JobPhase::Succeeded,
            JobPhase::Failed,
            JobPhase::Cancelled,
            JobPhase::Succeeded
        ]
    );
    assert!(train.started_at >= prepare.finished_at, "{train:?}");
    assert!(report.started_at >= train.finished_at, "{report:?}");
    assert_eq!(publish.started_at, None);
    let history = cluster.run(&["events", "publish"]);
    assert!(
        history.contains("starts only after the success of job train"),
        "{history}"
    );

    // The end of an id names a job, and lists show it on a terminal.
    let digits = report.id.0.simple().to_string();
    let logs = cluster.run(&["logs", &digits[24..]]);
    assert!(logs.contains("reported"), "{logs}");
    let differs = cluster.run(&["diff", "prepare", "report"]);
    assert!(differs.contains("after[0].job"), "{differs}");
    cluster.down();
}
