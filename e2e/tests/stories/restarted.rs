//! The cluster stops orderly and starts again: running jobs continue at the step at which they
//! stopped, and no data is lost.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::{document, no_gpu_was_held_twice, training_is_continuous};
use muster_model::event::Event;
use std::time::Duration;

const STEPS: u64 = 600;

#[tokio::test]
async fn running_job_continues_after_restart_of_cluster() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 2, slots: 1 }).await;
    let job = cluster
        .submit(&document("stopped", (2, 2), (2, 2), STEPS))
        .await
        .id;
    cluster
        .until(job, "some training", |job| {
            job.progress.as_ref().is_some_and(|p| p.step >= 120)
        })
        .await;
    let token = cluster.token();
    // As Ctrl-C does: no process is left, and the tasks have written a checkpoint.
    cluster.down();
    cluster.up_again().await;
    assert_eq!(cluster.token(), token, "the token is still good");
    let done = cluster.succeeded(job).await;
    assert_eq!(done.failures, 0, "a stop in order is no failure");

    let resumed = cluster.resumed_at(job).await;
    assert_eq!(resumed.len(), 1, "it was restarted once: {resumed:?}");
    let stop = format!("stopped in order at step {}", resumed[0]);
    let history = cluster.history(job).await;
    let mut notes = history.iter().filter_map(|entry| match &entry.event {
        Event::Note { message } => Some(message),
        _ => None,
    });
    assert!(
        notes.any(|message| message.contains(&stop)),
        "it went on from the checkpoint of the stop, not an older one: {resumed:?}"
    );
    training_is_continuous(&cluster, job, STEPS).await;
    no_gpu_was_held_twice(&cluster, &[job]).await;
    cluster.down();
}

#[tokio::test]
async fn command_line_covers_life_of_job() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 1, slots: 1 }).await;
    let file = cluster.data().join("job.yaml");
    std::fs::write(&file, document("by-hand", (1, 1), (1, 1), 200)).expect("a file");
    let dry = cluster.run(&["submit", "--dry-run", file.to_str().expect("UTF-8")]);
    assert!(dry.contains("nothing was changed"), "{dry}");
    let submitted = cluster.run(&[
        "submit",
        file.to_str().expect("UTF-8"),
        "--idempotency-key",
        "once",
    ]);
    let again = cluster.run(&[
        "submit",
        file.to_str().expect("UTF-8"),
        "--idempotency-key",
        "once",
    ]);
    assert_eq!(submitted, again, "the same key submits once");
    let waited = cluster.run(&["wait", "by-hand", "--timeout", "120"]);
    assert!(waited.contains("succeeded"), "{waited}");
    let listed: serde_json::Value =
        serde_json::from_str(&cluster.run(&["list", "-o", "json"])).expect("JSON");
    assert_eq!(
        listed["items"].as_array().map(Vec::len),
        Some(1),
        "{listed}"
    );
    assert_eq!(listed["items"][0]["progress"]["step"], 200);
    let shown = cluster.run(&["show", "by-hand"]);
    assert!(shown.contains("test accuracy"), "{shown}");
    let explained = cluster.run(&["explain", "by-hand"]);
    assert!(
        explained.contains("Placed: 1 worker and 1 PS shard on node-1"),
        "{explained}"
    );
    let events = cluster.run(&["events", "by-hand"]);
    assert!(events.contains("Training finished at step 200"), "{events}");
    // Logs arrive after the report of the end, and never delay it.
    let mut logs = String::new();
    for _ in 0..100 {
        logs = cluster.run(&["logs", "by-hand"]);
        if logs.contains("finished at step 200") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(logs.contains("finished at step 200"), "{logs}");
    assert!(cluster.run(&["checkpoints", "by-hand"]).contains("200"));
    assert!(cluster.run(&["nodes"]).contains("node-1"));
    assert!(
        cluster
            .run(&["whoami", "-o", "yaml"])
            .contains("access: admin")
    );
    let _ = cluster.run(&["tenants", "create", "vision", "--quota", "3"]);
    assert!(
        cluster
            .run(&["tenants", "quota", "vision", "5"])
            .contains("5 GPUs")
    );
    for _ in 0..2 {
        let asked = cluster.run(&["tenants", "quota", "vision"]);
        assert!(asked.contains("5 GPUs"), "to ask changes nothing: {asked}");
    }
    assert!(cluster.run(&["tenants"]).contains("vision"));
    let secret = cluster.run(&[
        "tokens", "create", "ci", "--tenant", "vision", "--user", "bob",
    ]);
    let theirs = cluster.run(&["--token", secret.trim(), "list"]);
    assert!(
        theirs.contains("no jobs"),
        "another tenant sees nothing of ours: {theirs}"
    );
    let tokens: serde_json::Value =
        serde_json::from_str(&cluster.run(&["--token", secret.trim(), "tokens", "-o", "json"]))
            .expect("JSON");
    let _ = cluster.run(&[
        "--token",
        secret.trim(),
        "tokens",
        "revoke",
        tokens[0]["id"].as_str().expect("an id"),
    ]);
    let refused = cluster
        .muster()
        .args(["--token", secret.trim(), "list"])
        .output()
        .expect("muster runs");
    assert_eq!(refused.status.code(), Some(6), "a revoked token is refused");
    let model = cluster.data().join("model.safetensors");
    let _ = cluster.run(&["model", "by-hand", "--to", model.to_str().expect("UTF-8")]);
    let done = cluster
        .client()
        .jobs(&muster_client::JobQuery::default())
        .await
        .expect("jobs")
        .items
        .remove(0);
    let kept = cluster
        .checkpoints()
        .join(done.model_path.expect("a model"));
    assert_eq!(
        std::fs::read(model).expect("downloaded"),
        std::fs::read(kept).expect("written")
    );
    let _ = cluster.run(&["delete", "by-hand"]);
    assert!(cluster.run(&["list"]).contains("no jobs"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            cluster.run(&["completion", shell]).contains("muster"),
            "{shell}"
        );
    }
    cluster.down();
}
