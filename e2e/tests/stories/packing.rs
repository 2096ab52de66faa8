//! Packing of two users' programs that share a slot by time slicing. A pair stays while it is
//! faster and is separated otherwise. After kills no work is lost and no lane is held twice.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::runtime::of_processes;
use muster_e2e::story::every_round_replays;
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::TaskView;
use std::time::Duration;

const QUANTUM_MS: u32 = 5_000;
const SLOT: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 1 };

/// Waits for its data most of the time, as jobs do for which packing is meant.
const WAITS: &str = r#"version: muster/v1
name: @NAME@
command:
  argv: ["sh", "-c", "i=0; while [ $i -lt 500 ]; do i=$((i+1)); sleep 0.1; echo muster: step=$i loss=1; done"]
"#;

/// Computes all the time and competes with the other one: beside it a step takes four times the
/// work.
const HOGS: &str = r#"version: muster/v1
name: @NAME@
command:
  argv: ["sh", "-c", "burn() { n=0; while [ $n -lt 75000 ]; do n=$((n+1)); done; }; i=0; while [ $i -lt 300 ]; do i=$((i+1)); touch $OUT/@NAME@; burn; if [ -n \"$(find $OUT/@OTHER@ -newermt '1 second ago' 2>/dev/null)\" ]; then burn; burn; burn; fi; echo muster: step=$i loss=1; done"]
  env: { OUT: "@OUT@" }
"#;

/// Also waits, with more than two fifths of the node's memory in use.
const HEAVY: &str = r#"version: muster/v1
name: @NAME@
command:
  argv: ["sh", "-c", "(head -c 96000000 /dev/zero; exec sleep 3600) | tail -c 96000000 > /dev/null & i=0; while [ $i -lt 200 ]; do i=$((i+1)); sleep 0.1; echo muster: step=$i loss=1; done"]
resources:
  worker: { gpus: 1, cpu_milli: 100, memory_bytes: 109051904 }
"#;
const SMALL_BYTES: u64 = 224 << 20;

#[tokio::test]
async fn packed_pair_survives_kills_of_daemons() {
    of_processes("jobs in pods take no turns");
    let mut cluster = TestCluster::start_packing(SLOT, QUANTUM_MS, None).await;
    let jobs = [
        submit(&cluster, WAITS, "first", "second").await,
        submit(&cluster, WAITS, "second", "first").await,
    ];
    let shared = loop {
        let tasks = both(&cluster, jobs).await;
        if let [Some(one), Some(two)] = tasks.clone().map(|task| task.rate_beside) {
            break (one, two);
        }
        assert!(!has_ended(&cluster, jobs).await, "they were never packed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(shared.0 + shared.1 > 1.1, "{shared:?}");
    let [one, two] = both(&cluster, jobs).await;
    assert_eq!(one.shared_with, Some(jobs[1]));
    assert_eq!(two.shared_with, Some(jobs[0]));
    assert!(one.usage.is_some_and(|usage| usage.peak_bytes > Some(0)));
    let why = turned(&cluster, jobs, "beside").await;
    assert!(why.iter().any(|why| why.contains("memory 0.")), "{why:?}");

    let daemon = cluster.running("muster-executor").pop().expect("a daemon");
    cluster.kill(&daemon);
    cluster
        .until(jobs[0], "another daemon", |_| {
            let daemons = cluster.running("muster-executor");
            daemons.iter().any(|found| found.pid != daemon.pid)
        })
        .await;
    for job in jobs {
        let done = cluster.succeeded(job).await;
        assert_eq!((done.failures, done.revision), (0, 1), "{}", done.name);
    }
    let parted = turned(&cluster, jobs, "no longer").await;
    assert!(parted.is_empty(), "they paid to the end: {parted:?}");
    every_round_replays(&cluster);
    cluster.down();
}

#[tokio::test]
async fn interfering_pair_is_separated_by_measurements() {
    of_processes("jobs in pods take no turns");
    let mut cluster = TestCluster::start_packing(SLOT, QUANTUM_MS, None).await;
    let jobs = [
        submit(&cluster, HOGS, "first", "second").await,
        submit(&cluster, HOGS, "second", "first").await,
    ];
    let why = loop {
        if let Some(why) = turned(&cluster, jobs, "no longer").await.pop() {
            break why;
        }
        assert!(!has_ended(&cluster, jobs).await, "they were never parted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    // The reason can be the measured interference or a missing step, depending on the machine.
    assert!(why.contains("together"), "{why}");
    for job in jobs {
        let done = cluster.succeeded(job).await;
        assert_eq!((done.failures, done.revision), (0, 1), "{}", done.name);
    }
    let packed = turned(&cluster, jobs, "continues beside").await;
    assert_eq!(packed.len(), 1, "nothing flaps: {packed:?}");
    every_round_replays(&cluster);
    cluster.down();
}

#[tokio::test]
async fn jobs_that_exceed_memory_are_sliced_and_not_packed() {
    of_processes("jobs in pods take no turns");
    let mut cluster = TestCluster::start_packing(SLOT, QUANTUM_MS, Some(SMALL_BYTES)).await;
    let jobs = [
        submit(&cluster, HEAVY, "first", "second").await,
        submit(&cluster, HEAVY, "second", "first").await,
    ];
    let mut measured = 0;
    loop {
        for task in both(&cluster, jobs).await {
            assert_eq!(task.shared_with, None);
            let peak_bytes = task.usage.and_then(|usage| usage.peak_bytes);
            measured = measured.max(peak_bytes.unwrap_or(0));
        }
        if has_ended(&cluster, jobs).await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(
        measured > 96_000_000,
        "what it holds was measured: {measured}"
    );
    for job in jobs {
        let done = cluster.succeeded(job).await;
        assert_eq!((done.failures, done.revision), (0, 1), "{}", done.name);
    }
    assert!(turned(&cluster, jobs, "beside").await.is_empty());
    let turns = turned(&cluster, jobs, "its time slice has expired").await;
    assert!(turns.len() > 1, "they took turns: {turns:?}");
    every_round_replays(&cluster);
    cluster.down();
}

async fn submit(cluster: &TestCluster, text: &str, name: &str, other: &str) -> JobId {
    let out = cluster.data().to_string_lossy().into_owned();
    let text = text
        .replace("@NAME@", name)
        .replace("@OTHER@", other)
        .replace("@OUT@", &out);
    cluster.submit(&text).await.id
}

/// Task of each job, which it has from its first slice on.
async fn both(cluster: &TestCluster, jobs: [JobId; 2]) -> [TaskView; 2] {
    let mut found = Vec::new();
    for job in jobs {
        let tasks = match cluster.client().tasks(job).await.expect("tasks") {
            none if none.is_empty() => {
                cluster
                    .until(job, "its first turn", |view| view.phase != JobPhase::Queued)
                    .await;
                cluster.client().tasks(job).await.expect("tasks")
            }
            tasks => tasks,
        };
        found.extend(tasks.into_iter().next());
    }
    found.try_into().expect("two that were started")
}

async fn has_ended(cluster: &TestCluster, jobs: [JobId; 2]) -> bool {
    for job in jobs {
        let view = cluster.client().job(job).await.expect("there");
        if view.phase.is_terminal() {
            return true;
        }
    }
    false
}

/// Reasons of their slices that contain `about`.
async fn turned(cluster: &TestCluster, jobs: [JobId; 2], about: &str) -> Vec<String> {
    let mut found = Vec::new();
    for job in jobs {
        for entry in cluster.history(job).await {
            match entry.event {
                Event::JobTurned { why, .. } if why.contains(about) => found.push(why),
                _ => {}
            }
        }
    }
    found
}
