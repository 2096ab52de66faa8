//! Checkpoints in an object store: nodes share no folder, a killed job continues, and users can
//! download their files.

use crate::s3;
use muster_e2e::cluster::{CheckpointBucket, TestCluster, TestClusterOptions};
use muster_e2e::story::{CHECKPOINT_EVERY, document};

const NODES: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 1 };
const STEPS: u64 = 300;

#[tokio::test]
async fn job_continues_from_bucket_and_files_are_served() {
    let server = s3::TestBucket::start();
    let bucket = CheckpointBucket {
        place: server.place(),
        environment: server.environment(),
    };
    let mut cluster = TestCluster::start_saving(NODES, bucket).await;
    let job = cluster
        .submit(&document("saved", (2, 2), (1, 1), STEPS))
        .await
        .id;
    let at = CHECKPOINT_EVERY + CHECKPOINT_EVERY / 2;
    let well_on_its_way =
        |job: &muster_model::view::JobView| job.progress.as_ref().is_some_and(|now| now.step >= at);
    cluster.until(job, "steps", well_on_its_way).await;
    let (_, chief) = cluster.task_process(job, "worker-0").await;
    cluster.kill(&chief);
    let done = cluster.succeeded(job).await;
    let resumed = cluster.resumed_at(job).await;
    assert!(
        resumed.iter().all(|&step| step >= CHECKPOINT_EVERY),
        "{resumed:?}"
    );
    assert!(!resumed.is_empty(), "the kill was noticed");

    assert!(
        cluster
            .run(&["checkpoints", "saved"])
            .contains(&STEPS.to_string())
    );
    let path = done.model_path.expect("a model");
    let kept = server.read(&path);
    let model = cluster.data().join("model.safetensors");
    let to = model.to_str().expect("UTF-8");
    let _ = cluster.run(&["model", "saved", "--to", to]);
    assert!(std::fs::read(&model).expect("downloaded") == kept);
    let exported = cluster.data().join("exported.safetensors");
    let to = exported.to_str().expect("UTF-8");
    let _ = cluster.run(&["export", "saved", "--file", to]);
    assert!(std::fs::metadata(&exported).expect("exported").len() > 10_000);
    let folder = cluster.checkpoints();
    let left: Vec<_> = std::fs::read_dir(folder).expect("a folder").collect();
    assert!(left.is_empty(), "nothing lies in the folder: {left:?}");
    let _ = cluster.run(&["delete", "saved"]);
    let erased = async {
        while !server.objects().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    let erased = tokio::time::timeout(std::time::Duration::from_secs(90), erased).await;
    assert!(erased.is_ok(), "left: {:?}", server.objects());
    cluster.down();
}
