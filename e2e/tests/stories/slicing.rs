//! Suspension of jobs with their processes kept, by a user and by time slicing. No job loses a
//! step, no slot is held twice, and no stopped process is left behind, also after kills.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::runtime::of_processes;
use muster_e2e::story::{document, every_round_replays, training_is_continuous};
use muster_model::event::Event;
use muster_model::id::{JobId, TaskId};
use muster_model::job::JobPhase;
use muster_model::task::TaskState;
use std::collections::BTreeMap;

const QUANTUM_MS: u32 = 1_500;
/// Several times what a fast machine trains in the slices between those of the short jobs.
const LONG_STEPS: u64 = 2_400;

#[tokio::test]
async fn suspended_job_releases_slots_and_continues_at_its_step() {
    of_processes("jobs in pods are not suspended");
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 1, slots: 2 }).await;
    let first = cluster
        .submit(&document("first", (2, 2), (1, 1), 800))
        .await
        .id;
    trains(&cluster, first).await;
    let suspended = cluster.muster().args(["suspend", "first"]).status();
    assert!(suspended.expect("muster runs").success());
    cluster
        .until(first, "that it stands still", |job| {
            job.phase == JobPhase::Suspended
        })
        .await;
    let second = cluster
        .submit(&document("second", (2, 2), (1, 1), 100))
        .await
        .id;
    cluster.succeeded(second).await;
    let still = cluster.client().job(first).await.expect("there");
    assert_eq!(
        still.phase,
        JobPhase::Suspended,
        "it waits for its owner's word"
    );

    cluster.client().go_on(first).await.expect("its owner may");
    let done = cluster.succeeded(first).await;
    assert_eq!(
        (done.failures, done.revision),
        (0, 1),
        "nothing was started again"
    );
    assert_eq!(turns(&cluster, first).await, [true, false]);
    training_is_continuous(&cluster, first, 800).await;
    no_slot_was_held_twice(&cluster, &[first, second]).await;

    let refused = cluster.client().suspend(second).await;
    assert!(refused.is_err(), "it has ended");
    every_round_replays(&cluster);
    cluster.down();
}

/// Slow shell program that counts and does not know time slices.
const COUNTER: &str = r#"version: muster/v1
name: counter
command:
  argv: ["sh", "-c", "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo $i >> $OUT; sleep 0.1; done"]
  env: { OUT: "@OUT@" }
"#;

#[tokio::test]
async fn program_is_suspended_and_resumed_by_signals() {
    of_processes("jobs in pods are not suspended");
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 1, slots: 1 }).await;
    let out = cluster.data().join("counted");
    let text = COUNTER.replace("@OUT@", &out.to_string_lossy());
    let job = cluster.submit(&text).await.id;
    cluster
        .until(job, "some numbers", |_| line_count(&out) >= 3)
        .await;
    cluster.client().suspend(job).await.expect("its owner may");
    loop {
        let tasks = cluster.client().tasks(job).await.expect("tasks");
        if tasks.iter().all(|task| task.state == TaskState::Suspended) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let before = line_count(&out);
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(line_count(&out), before, "it stands still");
    // A kill of the daemon does not resume it, and the next daemon finds it.
    let daemon = cluster.running("muster-executor").pop().expect("a daemon");
    cluster.kill(&daemon);
    cluster
        .until(job, "another daemon", |_| {
            let daemons = cluster.running("muster-executor");
            daemons.iter().any(|found| found.pid != daemon.pid)
        })
        .await;
    assert_eq!(line_count(&out), before);
    cluster.client().go_on(job).await.expect("its owner may");
    let done = cluster.succeeded(job).await;
    assert_eq!((line_count(&out), done.failures, done.revision), (40, 0, 1));
    cluster.down();
}

#[tokio::test]
async fn nine_jobs_share_four_slots_by_time_slicing() {
    of_processes("jobs in pods take no turns");
    let options = TestClusterOptions { nodes: 2, slots: 2 };
    let mut cluster = TestCluster::start_slicing(options, QUANTUM_MS).await;
    let long = cluster
        .submit(&document("long", (4, 4), (1, 1), LONG_STEPS))
        .await
        .id;
    trains(&cluster, long).await;
    let mut shorts = Vec::new();
    for number in 0..8 {
        let text = document(&format!("short-{number}"), (1, 1), (1, 1), 120);
        shorts.push(cluster.submit(&text).await.id);
    }
    for short in &shorts {
        cluster.succeeded(*short).await;
    }
    let running = cluster.client().job(long).await.expect("there");
    assert!(!running.phase.is_terminal(), "nobody waited for its end");
    cluster.succeeded(long).await;
    let mut all = shorts.clone();
    all.push(long);
    for job in &all {
        let view = cluster.client().job(*job).await.expect("there");
        if view.revision != 1 {
            cluster.print_history(*job).await;
        }
        assert_eq!(
            (view.failures, view.revision),
            (0, 1),
            "{} was not restarted",
            view.name
        );
    }
    let turns = turns(&cluster, long).await;
    assert!(turns.len() >= 2, "{turns:?}");
    let alternate = turns.windows(2).all(|pair| pair[0] != pair[1]);
    assert!(alternate && turns[0], "{turns:?}");
    training_is_continuous(&cluster, long, LONG_STEPS).await;
    no_slot_was_held_twice(&cluster, &all).await;
    every_round_replays(&cluster);
    cluster.down();
}

#[tokio::test]
async fn killed_executor_leaves_no_suspended_process() {
    of_processes("jobs in pods take no turns");
    let options = TestClusterOptions { nodes: 1, slots: 2 };
    let mut cluster = TestCluster::start_slicing(options, QUANTUM_MS).await;
    let mut jobs = Vec::new();
    for number in 0..4 {
        let text = document(&format!("job-{number}"), (1, 1), (1, 1), 300);
        jobs.push(cluster.submit(&text).await.id);
    }
    for kill in 1..=3 {
        cluster.until(jobs[0], "turns", |_| true).await;
        while turned(&cluster, &jobs).await < 3 * kill {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            if ended(&cluster, &jobs).await {
                break;
            }
        }
        for daemon in cluster.running("muster-executor") {
            cluster.kill(&daemon);
        }
    }
    for job in &jobs {
        cluster.succeeded(*job).await;
        training_is_continuous(&cluster, *job, 300).await;
    }
    no_slot_was_held_twice(&cluster, &jobs).await;
    assert!(cluster.running("muster-task").is_empty(), "all are gone");
    cluster.down();
}

/// Number of lines of the file; 0 if it does not exist.
fn line_count(file: &std::path::Path) -> usize {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().count()
}

async fn trains(cluster: &TestCluster, job: JobId) {
    cluster
        .until(job, "training", |job| {
            job.phase == JobPhase::Running && job.progress.as_ref().is_some_and(|p| p.step >= 10)
        })
        .await;
}

/// For each of its slice changes, whether it was a suspension.
async fn turns(cluster: &TestCluster, job: JobId) -> Vec<bool> {
    let history = cluster.history(job).await;
    let turns = history.iter().filter_map(|entry| match &entry.event {
        Event::JobTurned { suspended, .. } => Some(*suspended),
        _ => None,
    });
    turns.collect()
}

async fn turned(cluster: &TestCluster, jobs: &[JobId]) -> usize {
    let mut all = 0;
    for job in jobs {
        all += turns(cluster, *job).await.len();
    }
    all
}

async fn ended(cluster: &TestCluster, jobs: &[JobId]) -> bool {
    for job in jobs {
        let view = cluster.client().job(*job).await;
        if view.is_ok_and(|view| !view.phase.is_terminal()) {
            return false;
        }
    }
    true
}

/// Checks by the history of tasks. A task holds its slots from the allocation until it is suspended
/// or gone, and again after it resumes.
async fn no_slot_was_held_twice(cluster: &TestCluster, jobs: &[JobId]) {
    let mut slots: BTreeMap<TaskId, Vec<(String, u32)>> = BTreeMap::new();
    let mut steps: Vec<(i64, bool, TaskId)> = Vec::new();
    for job in jobs {
        for task in cluster.client().tasks(*job).await.expect("tasks") {
            let its = task.gpus.iter().map(|gpu| (task.node.clone(), *gpu));
            slots.insert(task.id, its.collect());
        }
        for entry in cluster.history(*job).await {
            if let Event::TaskStateChanged { task_id, state, .. } = entry.event {
                let number = entry
                    .cursor
                    .split_once('-')
                    .expect("transaction and number")
                    .1;
                steps.push((
                    number.parse().expect("a number"),
                    state.holds_gpus(),
                    task_id,
                ));
            }
        }
    }
    // In the order of the records, because clocks of nodes may differ.
    steps.sort_unstable();
    let mut holders: BTreeMap<(String, u32), TaskId> = BTreeMap::new();
    for (number, holds, task) in steps {
        for slot in slots.get(&task).into_iter().flatten() {
            if holds {
                let before = holders.insert(slot.clone(), task);
                let alone = before.is_none_or(|before| before == task);
                assert!(
                    alone,
                    "{slot:?} was held by {before:?} and {task} at event {number}"
                );
            } else if holders.get(slot) == Some(&task) {
                holders.remove(slot);
            }
        }
    }
}
