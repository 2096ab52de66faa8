//! Stragglers and hangs are found and replaced: a slowed worker, and a program that hangs.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::processes::OsProcess;
use muster_e2e::story::document;
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::task::Role;
use muster_model::verdict::{Finding, Remedy, Verdict};
use muster_model::view::TaskView;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[tokio::test]
async fn slowed_worker_is_replaced_alone() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 3, slots: 2 }).await;
    let text = document("slowed", (3, 3), (1, 1), 1_000_000);
    let job = cluster
        .submit(&format!("{text}verdicts: {{ straggler_s: 6 }}\n"))
        .await
        .id;
    trains(&cluster, job, 20).await;
    let before = processes(&cluster, job).await;
    assert_eq!(before.len(), 4, "three workers and a shard");
    let (victim, process) = before["worker-2"].clone();
    let brake = Brake::on(process);

    let verdict = judged(&cluster, job).await;
    assert_eq!(verdict.task_id, victim.id);
    assert_eq!(verdict.role, Role::Worker { rank: 2 });
    assert_eq!(verdict.node, victim.node);
    assert_eq!(verdict.remedy, Remedy::Replaced);
    match verdict.finding {
        Finding::Straggler { own_us, median_us } => assert!(own_us > 2 * median_us),
        other => panic!("{other:?}"),
    }
    let replaced = |tasks: &BTreeMap<String, (TaskView, OsProcess)>| {
        let newcomer = tasks.values().find(|(task, _)| {
            matches!(task.role, Role::Worker { .. }) && !before.contains_key(&task.name)
        });
        newcomer.map(|(task, _)| task.node.clone())
    };
    let mut after = processes(&cluster, job).await;
    let mut waited = 0;
    while replaced(&after).is_none() || after.contains_key("worker-2") {
        waited += 1;
        assert!(waited < 600, "{:#?}", cluster.history(job).await);
        tokio::time::sleep(Duration::from_millis(200)).await;
        after = processes(&cluster, job).await;
    }
    brake.release();
    assert_ne!(replaced(&after), Some(victim.node), "it is on another node");
    for name in ["worker-0", "worker-1", "ps-0"] {
        assert_eq!(after[name].1.pid, before[name].1.pid, "{name} went on");
    }
    let view = cluster.client().job(job).await.expect("there");
    assert_eq!((view.revision, view.failures), (2, 0));
    let step = view.progress.as_ref().map_or(0, |progress| progress.step);
    trains(&cluster, job, step + 20).await;
    cluster.client().cancel(job).await.expect("its owner may");
    cluster
        .until(job, "its end", |job| job.phase == JobPhase::Cancelled)
        .await;
    cluster.down();
}

/// Two ranks that wait for each other in every step and print their steps.
const PAIR: &str = r#"version: muster/v1
name: pair
command:
  argv:
    - sh
    - -c
    - |
      i=0
      while [ $i -lt 60 ]; do
        i=$((i+1))
        echo $i > $OUT/$MUSTER_RESTART_COUNT.$RANK
        while [ "$(cat $OUT/$MUSTER_RESTART_COUNT.$((1-RANK)) 2>/dev/null || echo 0)" -lt $i ]; do sleep 0.05; done
        echo "muster: step=$i loss=0.5"
        sleep 0.3
      done
  env: { OUT: "@OUT@" }
scale: { workers: { min: 2, max: 2 } }
verdicts: { hang_s: 5 }
"#;

#[tokio::test]
async fn hanging_program_is_restarted() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 2, slots: 1 }).await;
    let out = cluster.data().join("pair");
    std::fs::create_dir_all(&out).expect("our own folder");
    let text = PAIR.replace("@OUT@", &out.to_string_lossy());
    let job = cluster.submit(&text).await.id;
    // Three reports of each rank, two seconds apart.
    trains(&cluster, job, 24).await;
    let tasks = cluster.client().tasks(job).await.expect("tasks");
    let victim = tasks.iter().find(|task| task.name == "worker-1");
    let id = victim.expect("rank 1").id.to_string();
    for process in cluster.processes() {
        let is_its_program = process.program == "sh" && process.mentions(&id);
        if is_its_program {
            process.signal(Signal::STOP);
        }
    }
    let verdict = judged(&cluster, job).await;
    assert_eq!(verdict.remedy, Remedy::Restarted);
    // The last report of the rank may be two reports behind the job's progress at that time.
    match verdict.finding {
        Finding::Hang { step, .. } => assert!(step >= 12, "{verdict:?}"),
        other => panic!("{other:?}"),
    }
    let done = cluster
        .until(job, "its end", |job| job.phase == JobPhase::Succeeded)
        .await;
    assert_eq!((done.failures, done.revision), (1, 2));
    cluster.down();
}

/// Lets a process run for a small part of the time.
struct Brake {
    is_released: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Brake {
    fn on(process: OsProcess) -> Self {
        let is_released = Arc::new(AtomicBool::new(false));
        let released = Arc::clone(&is_released);
        let thread = thread::spawn(move || {
            while !released.load(Ordering::Relaxed) && process.is_alive() {
                process.signal(Signal::STOP);
                thread::sleep(Duration::from_millis(450));
                process.signal(Signal::CONT);
                thread::sleep(Duration::from_millis(50));
            }
        });
        Self {
            is_released,
            thread,
        }
    }

    fn release(self) {
        self.is_released.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic");
    }
}

/// Running tasks by name, each with its process.
async fn processes(cluster: &TestCluster, job: JobId) -> BTreeMap<String, (TaskView, OsProcess)> {
    let tasks = cluster.client().tasks(job).await.expect("tasks");
    let running = cluster.running("muster-task");
    let mut found = BTreeMap::new();
    for task in tasks.into_iter().filter(|task| task.released_at.is_none()) {
        let id = task.id.to_string();
        if let Some(process) = running.iter().find(|process| process.mentions(&id)) {
            found.insert(task.name.clone(), (task, process.clone()));
        }
    }
    found
}

async fn trains(cluster: &TestCluster, job: JobId, step: u64) {
    cluster
        .until(job, "progress", |job| {
            let progress = job.progress.as_ref();
            progress.is_some_and(|progress| progress.step >= step)
        })
        .await;
}

/// Waits for the first verdict on the job.
async fn judged(cluster: &TestCluster, job: JobId) -> Verdict {
    for _ in 0..600 {
        for entry in cluster.history(job).await {
            if let Event::RankJudged { verdict } = entry.event {
                return verdict;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("no verdict on {job}: {:#?}", cluster.history(job).await);
}

/// Dies on the node that the file names, and succeeds on others.
const VICTIM: &str = r#"version: muster/v1
name: @NAME@
command:
  argv: [sh, -c, 'case $MUSTER_TASK_DIR in *"$(cat $OUT/bad)"/*) kill -9 $$;; esac']
  env: { OUT: "@OUT@" }
retries: 100
"#;

/// Occupies the other nodes until the file exists.
const FILLER: &str = r#"version: muster/v1
name: filler
command:
  argv: [sh, -c, "until [ -e $OUT/over ]; do sleep 0.1; done"]
  env: { OUT: "@OUT@" }
scale: { workers: { min: 2, max: 2 } }
exclusive: true
"#;

#[tokio::test]
async fn node_with_failures_of_several_jobs_takes_no_new_tasks() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 3, slots: 1 }).await;
    let out = cluster.data().join("victims");
    std::fs::create_dir_all(&out).expect("our own folder");
    let text = |text: &str| text.replace("@OUT@", &out.to_string_lossy());
    let filler = cluster.submit(&text(FILLER)).await.id;
    cluster
        .until(filler, "that it runs", |job| job.phase == JobPhase::Running)
        .await;
    let tasks = cluster.client().tasks(filler).await.expect("tasks");
    let nodes = cluster.client().nodes().await.expect("nodes");
    let mut names = nodes.iter().map(|node| &node.name);
    let bad = names.find(|name| tasks.iter().all(|task| task.node != **name));
    let bad = bad.expect("a node without the filler").clone();
    std::fs::write(out.join("bad"), &bad).expect("our own folder");
    let mut victims = Vec::new();
    for number in 0..3 {
        let text = text(VICTIM).replace("@NAME@", &format!("victim-{number}"));
        victims.push(cluster.submit(&text).await.id);
    }
    let excluded = async || {
        let node = cluster.client().nodes().await.expect("nodes");
        let node = node.into_iter().find(|node| node.name == bad);
        node.expect("it is there").excluded
    };
    let mut waited = 0;
    while excluded().await.is_none() {
        assert!(waited < 600, "it is not excluded");
        waited += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let why = excluded().await.expect("it is excluded").why;
    assert!(why.contains("3 jobs") && why.contains("signal 9"), "{why}");
    let listed = cluster.muster().arg("nodes").output().expect("muster runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("excluded") && listed.contains(&why),
        "{listed}"
    );

    std::fs::write(out.join("over"), "").expect("our own folder");
    for job in victims {
        let done = cluster
            .until(job, "its end", |job| job.phase == JobPhase::Succeeded)
            .await;
        assert!(done.failures >= 1, "it died there once at least");
        let tasks = cluster.client().tasks(job).await.expect("tasks");
        let last = tasks.iter().max_by_key(|task| task.revision);
        assert_ne!(last.expect("a task").node, bad);
    }
    let back = cluster.muster().args(["uncordon", &bad]).status();
    assert!(back.expect("muster runs").success());
    assert_eq!(excluded().await, None);
    cluster.down();
}
