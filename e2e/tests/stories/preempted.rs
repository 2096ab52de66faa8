//! A long program and a one-minute job of equal priority on one slot, without time slices. The
//! program makes room only once it reports its checkpoints, and the record states the cost.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::every_round_replays;
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::{AfterStop, JobPhase};
use std::time::Duration;

/// Longer than the cooldown after a start, in which no job is stopped for its equals.
const COOLDOWN: Duration = Duration::from_secs(13);

/// Runs until it is stopped. It reports a checkpoint every tenth of a second once `@SAVES@` exists.
const LONG: &str = r#"version: muster/v1
name: long
command:
  argv: ["sh", "-c", "trap 'exit 0' TERM; while :; do test -e @SAVES@ && echo 'muster: checkpoint step=7'; sleep 0.1; done"]
  steps: 1000000
"#;

/// 600 steps at the 10 steps per second that are assumed before a measurement.
const MINUTE: &str = r#"version: muster/v1
name: minute
command: { argv: ["sleep", "60"], steps: 600 }
"#;

#[tokio::test]
async fn long_program_makes_room_only_after_a_checkpoint() {
    let options = TestClusterOptions { nodes: 1, slots: 1 };
    let mut cluster = TestCluster::start_slicing(options, 0).await;
    let saves = cluster.data().join("saves");
    let text = LONG.replace("@SAVES@", &saves.to_string_lossy());
    let long = cluster.submit(&text).await.id;
    cluster
        .until(long, "that it runs", |job| job.phase == JobPhase::Running)
        .await;
    let minute = cluster.submit(MINUTE).await.id;
    tokio::time::sleep(COOLDOWN).await;
    let still = cluster.client().job(long).await.expect("there");
    assert_eq!((still.phase, still.revision), (JobPhase::Running, 1));
    assert_eq!(stops(&cluster, long).await, [""; 0], "all work is at risk");

    std::fs::write(&saves, "").expect("written");
    cluster
        .until(minute, "that it runs", |job| job.phase == JobPhase::Running)
        .await;
    let stops = stops(&cluster, long).await;
    let [why] = stops.as_slice() else {
        panic!("it was stopped once: {stops:?}");
    };
    let (before, after) = why.split_once("it loses ").expect("a cost");
    assert!(before.contains("minute needs room to start"), "{why}");
    let (work_s, after) = after.split_once(" s of work and ").expect("a cost");
    let work_s: f64 = work_s.parse().expect("seconds");
    assert!(work_s < 5.0, "since its checkpoint: {why}");
    assert!(after.contains("GPU-seconds that default bears"), "{why}");
    assert!(after.ends_with("minute gains 60 GPU-seconds"), "{why}");
    let told = cluster.run(&["events", "long"]);
    assert!(told.contains("GPU-seconds that default bears"), "{told}");
    every_round_replays(&cluster);
    cluster.down();
}

/// Reasons of the stops that put the job back into the queue.
async fn stops(cluster: &TestCluster, job: JobId) -> Vec<String> {
    let history = cluster.history(job).await.into_iter();
    let stops = history.filter_map(|entry| match entry.event {
        Event::JobStopRequested {
            then: AfterStop::Requeue { .. },
            why,
            ..
        } => Some(why),
        _ => None,
    });
    stops.collect()
}
