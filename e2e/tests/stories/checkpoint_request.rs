//! A program of two ranks on a node that is drained. It is asked for a checkpoint, writes it, and
//! continues from it on another node without the loss of a step.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::every_round_replays;
use muster_model::checkpoint::RequestResult;
use muster_model::event::Event;
use muster_model::task::Role;
use std::collections::BTreeSet;

/// Rank 0 counts to 40. It writes a checkpoint only when it is asked, and then waits for the stop.
/// Rank 1 ends with it.
const COUNTS: &str = r#"version: muster/v1
name: counts
preemption: { checkpoint_on_request: { timeout_s: 600 } }
scale: { workers: { min: 2, max: 2 } }
command:
  argv: [python3, count.py]
  steps: 40
  ends: first_worker
  files:
    count.py: |
      import time
      import muster

      job = muster.init()
      place = job.checkpoint_dir / "step"
      if job.rank > 0:
          job.wait_for_stop()
          raise SystemExit
      step = int(place.read_text()) if place.exists() else 0
      while step < 40:
          time.sleep(0.1)
          step += 1
          job.report(step, loss=1.0 / step)
          if job.should_checkpoint():
              place.write_text(str(step))
              job.checkpointed(step)
              job.wait_for_stop()
              raise SystemExit
      job.finish()
"#;

#[tokio::test]
async fn drained_program_is_asked_and_loses_no_step() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 3, slots: 1 }).await;
    let job = cluster.submit(COUNTS).await.id;
    cluster
        .until(job, "some steps", |job| {
            job.progress.as_ref().is_some_and(|known| known.step >= 5)
        })
        .await;
    let tasks = cluster.client().tasks(job).await.expect("tasks");
    let other = tasks
        .iter()
        .find(|task| task.role == Role::Worker { rank: 1 });
    let node = other.expect("two ranks").node.clone();
    cluster.client().drain(&node).await.expect("drained");
    let done = cluster.succeeded(job).await;
    assert_eq!(done.failures, 0);
    assert_eq!(done.progress.map(|progress| progress.step), Some(40));

    let history = cluster.history(job).await;
    let asks = history.iter().filter_map(|entry| match &entry.event {
        Event::JobStopRequested { asks_s, .. } => *asks_s,
        _ => None,
    });
    assert_eq!(asks.collect::<Vec<_>>(), [600]);
    let steps = history.iter().filter_map(|entry| match entry.event {
        Event::CheckpointRequestEnded {
            result: RequestResult::Reported { step },
            ..
        } => Some(step),
        _ => None,
    });
    let steps: Vec<u64> = steps.collect();
    assert_eq!(cluster.resumed_at(job).await, steps);
    let [step] = steps[..] else {
        panic!("it was asked once: {steps:?}");
    };
    assert!((5..40).contains(&step), "{step}");
    let placed = history.iter().rev().find_map(|entry| match &entry.event {
        Event::JobPlaced { nodes, .. } => Some(nodes.iter().collect::<BTreeSet<_>>()),
        _ => None,
    });
    let placed = placed.expect("placed");
    assert!(placed.len() == 2 && !placed.contains(&node), "{placed:?}");
    let told = cluster.run(&["events", "counts"]);
    let expected = format!("Checkpoint of step {step} reported ");
    assert!(told.contains(&expected), "{told}");
    every_round_replays(&cluster);
    cluster.down();
}
