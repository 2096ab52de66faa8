//! Executors that run each tenant's tasks as a Unix user of its own: a job of the engine keeps its
//! checkpoints over a restart, its tenant downloads them, and another tenant's program cannot read
//! them.

use crate::shared::{submit, tenant, until};
use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::document;
use muster_model::job::JobPhase;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const FIRST_UID: u32 = 200_000;

/// Returns the users that own something below a folder.
fn owners(folder: &Path) -> Vec<u32> {
    let mut found = vec![std::fs::metadata(folder).expect("there").uid()];
    for entry in std::fs::read_dir(folder).expect("readable") {
        let entry = entry.expect("readable");
        if entry.file_type().expect("known").is_dir() {
            found.extend(owners(&entry.path()));
        } else {
            found.push(entry.metadata().expect("there").uid());
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[tokio::test]
async fn tenants_run_as_separate_unix_users() {
    let options = TestClusterOptions { nodes: 2, slots: 1 };
    let range = format!("{FIRST_UID}-{}", FIRST_UID + 99);
    let settings = vec![("MUSTER_EXECUTOR_TASK_USER", range)];
    let mut cluster = TestCluster::start_set(options, settings).await;
    let (ada, bob) = (tenant(&cluster, "ada").await, tenant(&cluster, "bob").await);
    let training = submit(&ada, &document("training", (1, 1), (1, 1), 600)).await;
    until(&ada, training, "a checkpoint", |job| {
        job.progress.as_ref().is_some_and(|p| p.step >= 200)
    })
    .await;
    ada.pause(training).await.expect("paused");
    until(&ada, training, "its pause", |job| {
        job.phase == JobPhase::Paused
    })
    .await;
    ada.resume(training).await.expect("resumed");

    let tenants = cluster.client().tenants().await.expect("tenants");
    let tenant_ada = tenants.iter().find(|tenant| tenant.name == "ada");
    let checkpoints = cluster.checkpoints();
    let of_ada = checkpoints.join(tenant_ada.expect("created").id.to_string());
    let script = format!(
        "id -u; ls {} && echo reads; cat {}/*/*/manifest.json && echo reads; exit 0",
        of_ada.join(training.to_string()).display(),
        of_ada.display()
    );
    let spy = serde_json::json!({
        "version": "muster/v1", "name": "spy", "command": { "argv": ["sh", "-c", script] },
    });
    let spy = submit(&bob, &spy.to_string()).await;
    until(&bob, spy, "its end", |job| job.phase == JobPhase::Succeeded).await;
    let ended = until(&ada, training, "success", |job| {
        job.phase == JobPhase::Succeeded
    })
    .await;
    assert_eq!(ended.failures, 0);

    let log = cluster
        .muster()
        .args(["--as-tenant", "bob", "logs", "spy"])
        .output()
        .expect("muster runs");
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    let uid: u32 = log
        .lines()
        .next()
        .and_then(|line| line.parse().ok())
        .expect("a user");
    assert!((FIRST_UID..FIRST_UID + 99).contains(&uid), "{log}");
    assert!(
        log.contains("Permission denied") && !log.contains("reads"),
        "{log}"
    );

    let owned = owners(&of_ada.join(training.to_string()));
    assert_eq!(owned.len(), 1, "{owned:?}");
    assert!(owned[0] > FIRST_UID && owned[0] != uid, "{owned:?}");
    let newest = ada.checkpoints(training).await.expect("listed")[0]
        .written
        .step;
    let manifest = ada.checkpoint_file(training, newest, "manifest.json").await;
    manifest.expect("the API server reads files of the tenant's user");
    cluster.down();
}
