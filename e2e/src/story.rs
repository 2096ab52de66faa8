//! Checks at the end of every story: promises that hold in every case.

use crate::cluster::TestCluster;
use muster_client::JobQuery;
use muster_model::id::JobId;
use muster_model::view::{JobView, TaskView};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Job that trains for about ten seconds on two workers: long enough to be interrupted, short
/// enough for many runs.
#[must_use]
pub fn document(name: &str, workers: (u32, u32), shards: (u32, u32), steps: u64) -> String {
    let mut text = String::new();
    write!(
        text,
        "version: muster/v1
name: {name}
engine:
  model: {{ kind: cnn, channels: [16, 32], dense: [64] }}
  dataset: {{ name: fashion-mnist, train_limit: 12800, test_limit: 2000 }}
  optimizer: {{ kind: adam, learning_rate: 0.001 }}
  batch: 128
  seed: 3
scale:
  workers: {{ min: {}, max: {} }}
  ps_shards: {{ min: {}, max: {} }}
checkpoint: {{ every_steps: {CHECKPOINT_EVERY}, keep: 3 }}
stop: {{ steps: {steps} }}
",
        workers.0, workers.1, shards.0, shards.1
    )
    .expect("a string takes all");
    text
}

/// Steps between checkpoints of [`document`].
pub const CHECKPOINT_EVERY: u64 = 50;

/// All jobs.
///
/// # Panics
/// If they cannot be listed.
pub async fn jobs(cluster: &TestCluster) -> Vec<JobView> {
    let every = JobQuery::default();
    cluster.client().all_jobs(&every).await.expect("jobs")
}

/// Checks that two tasks never held a GPU slot at the same time.
///
/// # Panics
/// If they did.
pub async fn no_gpu_was_held_twice(cluster: &TestCluster, jobs: &[JobId]) {
    let mut by_gpu: BTreeMap<(String, u32), Vec<TaskView>> = BTreeMap::new();
    for job in jobs {
        for task in cluster.client().tasks(*job).await.expect("tasks") {
            for gpu in task.gpus.clone() {
                by_gpu
                    .entry((task.node.clone(), gpu))
                    .or_default()
                    .push(task.clone());
            }
        }
    }
    for (gpu, mut tasks) in by_gpu {
        tasks.sort_by_key(|task| task.created_at);
        for pair in tasks.windows(2) {
            let free_at = pair[0]
                .released_at
                .unwrap_or_else(|| panic!("{gpu:?}: {} still holds it", pair[0].name));
            assert!(
                free_at <= pair[1].created_at,
                "{gpu:?} was held by {:?} and {:?}",
                pair[0],
                pair[1]
            );
        }
    }
}

/// Checks that the training series has no gap, and that each revision continued from a checkpoint.
///
/// # Panics
/// If steps are missing, or more steps were lost than lie between two checkpoints.
pub async fn training_is_continuous(cluster: &TestCluster, job: JobId, steps: u64) {
    let series = cluster
        .client()
        .progress(job, None, None)
        .await
        .expect("the series");
    let seen: Vec<u64> = series
        .samples
        .iter()
        .map(|point| point.sample.step)
        .collect();
    assert!(
        seen.is_sorted(),
        "steps of the series are in order: {seen:?}"
    );
    assert_eq!(
        seen.last(),
        Some(&steps),
        "the series ends with the last step"
    );
    let widest = seen
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .max()
        .unwrap_or(0);
    assert!(
        widest <= 2 * CHECKPOINT_EVERY,
        "a gap of {widest} steps in {seen:?}"
    );
    assert!(
        series
            .samples
            .iter()
            .all(|point| point.sample.loss.is_finite())
    );
}

/// Checks with the command line that every stored round replays to the same bytes.
pub fn every_round_replays(cluster: &TestCluster) {
    rounds_replay(cluster, &["--since", "1h"]);
}

/// As [`every_round_replays`], for the rounds that these arguments of `muster replay` select.
///
/// # Panics
/// If a round gives other bytes, or there are fewer than 4 rounds.
pub fn rounds_replay(cluster: &TestCluster, selection: &[&str]) {
    let output = cluster
        .muster()
        .arg("replay")
        .args(selection)
        .output()
        .expect("muster replay runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaint}");
    let rounds = said.lines().count();
    assert!(rounds >= 4, "{said}");
    assert!(
        said.lines().all(|line| line.ends_with("the same bytes")),
        "{said}"
    );
}

/// Number of equal polls after which a log counts as complete.
const SAME_LOOKS: usize = 4;

/// Output of the newest task with that name. Waits until it is complete, because logs arrive apart
/// from the end.
///
/// # Panics
/// If there is no such task, or no output arrives.
pub async fn log(cluster: &TestCluster, job: JobId, name: &str) -> String {
    let tasks = cluster.client().tasks(job).await.expect("tasks");
    let task: TaskView = tasks
        .into_iter()
        .filter(|task| task.name == name)
        .max_by_key(|task| task.revision)
        .unwrap_or_else(|| panic!("no {name}"));
    // Logs are sent apart from the report of a task's end, so the last lines may follow it.
    let (mut before, mut same) = (String::new(), 0);
    for _ in 0..100 {
        let output = cluster
            .muster()
            .args(["logs", &job.to_string(), "--task", &task.name])
            .output()
            .expect("muster runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        same = if text == before { same + 1 } else { 0 };
        if same >= SAME_LOOKS && !text.trim().is_empty() {
            return text;
        }
        before = text;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("{name} has no log");
}
