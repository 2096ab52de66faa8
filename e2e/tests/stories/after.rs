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

async fn ended(cluster: &TestCluster, job: &JobView) -> JobView {
    cluster
        .until(job.id, "an end", |job| job.phase.is_terminal())
        .await
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
    let [prepare, train, publish, report] = [
        ended(&cluster, &prepare).await,
        ended(&cluster, &train).await,
        ended(&cluster, &publish).await,
        ended(&cluster, &report).await,
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

#[tokio::test]
async fn array_runs_a_job_per_index() {
    let mut cluster = TestCluster::start(NODE).await;
    let run = [
        "-o",
        "json",
        "run",
        "--no-code",
        "--name",
        "fold",
        "--array",
        "1,3",
    ];
    let script = ["--", "sh", "-c", "echo fold {index} of $ARRAY_INDEX"];
    let jobs = cluster.run(&[&run[..], &script].concat());
    let jobs: Vec<JobView> = serde_json::from_str(&jobs).expect("jobs");
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["fold-1", "fold-3"]);
    for job in &jobs {
        let ended = ended(&cluster, job).await;
        assert_eq!(ended.phase, JobPhase::Succeeded, "{:?}", ended.failure);
    }
    assert!(cluster.run(&["logs", "fold-3"]).contains("fold 3 of 3"));
    let label = format!("array={}", jobs[0].labels["array"]);
    let listed = cluster.run(&["list", "--label", &label]);
    assert!(
        listed.contains("fold-1") && listed.contains("fold-3"),
        "{listed}"
    );
    cluster.down();
}
