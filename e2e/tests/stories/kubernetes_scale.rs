//! Kubernetes cluster full of jobs by kubectl, whose machines are cordoned, drained, tainted, lost,
//! deleted and added again. A real API server, and on every machine a real executor with eight GPUs
//! and tasks as pods.

use muster_e2e::clock;
use muster_e2e::cluster::PATIENCE;
use muster_e2e::fleet::{Fleet, GPUS};
use muster_e2e::kubernetes::{History, ObjectEvent, StatusDelays};
use muster_e2e::story;
use muster_model::id::JobId;
use muster_model::node::{Closed, NodeState};
use muster_model::view::NodeView;
use std::fmt::Write as _;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(500);
/// Workers and GPUs per worker, by job in rotation: eight GPUs per job on average.
const GANGS: [(u32, u32); 5] = [(1, 8), (2, 4), (4, 4), (1, 4), (2, 2)];
/// Period and size of larger jobs, which do not all fit, so that some wait.
const LARGE: (usize, (u32, u32)) = (40, (8, 8));
const TAINT: &str = "example.com/maintenance=now:NoExecute";

struct Size {
    machines: u32,
    jobs: usize,
    /// Duration of each job.
    seconds: u32,
    /// Idle time before the jobs are submitted.
    idle: Duration,
    patience: Duration,
}

#[tokio::test]
async fn twenty_full_machines_come_and_go() {
    let size = Size {
        machines: 20,
        jobs: 20,
        seconds: 8,
        idle: Duration::ZERO,
        patience: PATIENCE,
    };
    machines_come_and_go(&size).await;
}

#[tokio::test]
#[ignore = "takes minutes: make story-scale"]
async fn two_hundred_full_machines_come_and_go() {
    let size = Size {
        machines: 200,
        jobs: 200,
        seconds: 60,
        idle: Duration::from_secs(30),
        patience: 5 * PATIENCE,
    };
    machines_come_and_go(&size).await;
}

async fn machines_come_and_go(size: &Size) {
    let began = clock::now();
    let mut fleet = Fleet::set(size.machines).await;
    let said = |what: &str| eprintln!("{:>6.1} s: {what}", (clock::now() - began).as_seconds_f64());
    said("all machines have joined and are heard of");
    eprint!("{}", fleet.usage());
    if !size.idle.is_zero() {
        let before = fleet.usage();
        tokio::time::sleep(size.idle).await;
        said("of these, idle, for so long nothing was done");
        eprint!("{}", fleet.usage().since(&before));
    }
    let before = fleet.usage();
    let shown = History::of(fleet.kubernetes(), "trainingjobs");
    fleet.kubernetes().applied(&documents(size));
    said("all jobs are applied");
    until_half_full(&fleet, size).await;
    said("tasks hold half of all GPUs");
    come_and_go(&mut fleet, size).await;
    said("machines were taken and given back");
    until_all_have_ended(&fleet, &shown, size).await;
    said("every job has ended");
    eprint!("{}{}", fleet.usage().since(&before), fleet.rounds());
    none_was_given_twice(&fleet).await;
    tell_how_late(&fleet, &shown).await;
    fleet.down();
}

fn documents(size: &Size) -> String {
    let mut text = String::new();
    for number in 0..size.jobs {
        let is_large = number % LARGE.0 == LARGE.0 - 1;
        let (workers, gpus) = if is_large {
            LARGE.1
        } else {
            GANGS[number % GANGS.len()]
        };
        write!(
            text,
            "---
apiVersion: muster.dev/v1alpha1
kind: TrainingJob
metadata: {{ name: job-{number} }}
spec:
  command: {{ argv: [sleep, '{}'] }}
  retries: 0
  scale: {{ workers: {{ min: {workers}, max: {workers} }} }}
  resources: {{ worker: {{ gpus: {gpus} }} }}
",
            size.seconds
        )
        .expect("a string takes all");
    }
    text
}

/// Number of held GPUs of each node.
async fn held(fleet: &Fleet) -> Vec<(String, usize)> {
    let nodes = fleet.cluster.client().nodes().await.expect("nodes");
    let held = nodes.into_iter().map(|node| {
        let held = node.gpus.iter().filter(|gpu| gpu.task_id.is_some());
        (node.name, held.count())
    });
    held.collect()
}

/// Waits until tasks hold half of all GPUs.
async fn until_half_full(fleet: &Fleet, size: &Size) {
    let half = (size.machines * GPUS / 2) as usize;
    let mut waited = Duration::ZERO;
    loop {
        let there: usize = held(fleet).await.iter().map(|(_, held)| held).sum();
        if there >= half {
            return;
        }
        assert!(waited < size.patience, "{there} GPUs are held, not {half}");
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
}

fn is_closed(node: &NodeView, closed: Closed) -> bool {
    let notice = node.notice.as_ref();
    notice.is_some_and(|notice| notice.closed == closed)
}

fn is_empty(node: &NodeView) -> bool {
    node.gpus.iter().all(|gpu| gpu.task_id.is_none())
}

/// Of the busy machines, some are cordoned, drained or tainted, some get a new executor, and some
/// are lost and deleted.
async fn come_and_go(fleet: &mut Fleet, size: &Size) {
    let mut busy = held(fleet).await;
    busy.sort_by_key(|(_, held)| std::cmp::Reverse(*held));
    let each = (size.machines as usize / 20).max(1);
    let names: Vec<&str> = busy.iter().map(|(name, _)| name.as_str()).collect();
    let mut groups = names.chunks(each);
    let mut group = || groups.next().expect("there are twenty groups");
    let (cordoned, drained, tainted, replaced, lost) =
        (group(), group(), group(), group(), group());
    let _ = fleet.kubectl(&[&["cordon"], cordoned].concat());
    for name in drained {
        fleet.cluster.client().drain(name).await.expect("drained");
    }
    let _ = fleet.kubectl(&[&["taint", "node"], tainted, &[TAINT]].concat());
    for name in replaced {
        fleet.kill_executor(name);
        fleet.join(name);
    }
    for name in lost {
        fleet.lose(name);
        fleet.delete(name);
    }
    until(fleet, size, cordoned, "cordoned", |node| {
        is_closed(node, Closed::ToNew)
    })
    .await;
    until(fleet, size, drained, "drained", is_empty).await;
    until(fleet, size, tainted, "left", |node| {
        is_closed(node, Closed::ToAll) && is_empty(node)
    })
    .await;
    until(fleet, size, lost, "lost", |node| {
        node.state == NodeState::Lost && is_empty(node)
    })
    .await;
    until_cordoned(fleet, size, drained).await;
    let _ = fleet.kubectl(&[&["uncordon"], cordoned].concat());
    for name in drained {
        let client = fleet.cluster.client();
        client.uncordon(name).await.expect("uncordoned");
    }
    let _ = fleet.kubectl(&[&["taint", "node"], tainted, &[&format!("{TAINT}-")]].concat());
    for name in lost {
        fleet.add(name);
        fleet.join(name);
    }
    until(fleet, size, &names[..5 * each], "back", |node| {
        node.state == NodeState::Up && !node.drained && is_closed(node, Closed::Open)
    })
    .await;
}

/// Waits until `right` is true of each of these nodes.
async fn until(
    fleet: &Fleet,
    size: &Size,
    names: &[&str],
    what: &str,
    right: impl Fn(&NodeView) -> bool,
) {
    let mut waited = Duration::ZERO;
    loop {
        let mut nodes = fleet.cluster.client().nodes().await.expect("nodes");
        nodes.retain(|node| names.contains(&node.name.as_str()) && !right(node));
        if nodes.is_empty() {
            return;
        }
        if waited > size.patience {
            fleet.operator.print_log();
            panic!("not {what}: {nodes:#?}");
        }
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
}

/// Waits until these nodes are unschedulable in Kubernetes.
async fn until_cordoned(fleet: &Fleet, size: &Size, names: &[&str]) {
    let field = "jsonpath={range .items[?(@.spec.unschedulable)]}{.metadata.name} {end}";
    let mut waited = Duration::ZERO;
    loop {
        let said = fleet.kubectl(&["get", "nodes", "-o", field]);
        let said: Vec<&str> = said.split_ascii_whitespace().collect();
        if names.iter().all(|name| said.contains(name)) {
            return;
        }
        assert!(waited < size.patience, "{said:?}, and not {names:?}");
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
}

/// Uses the watch only: repeated listings of hundreds of objects would load the machine.
async fn until_all_have_ended(fleet: &Fleet, shown: &History, size: &Size) {
    let mut waited = Duration::ZERO;
    loop {
        let newest = shown.newest();
        let failed = newest
            .iter()
            .find(|(_, status)| status["phase"] == "Failed");
        assert!(failed.is_none(), "{failed:#?}");
        let phases = newest.values().map(|status| &status["phase"]);
        let ended = phases.filter(|phase| *phase == "Succeeded").count();
        if ended == size.jobs {
            return;
        }
        if waited > size.patience {
            fleet.operator.print_log();
            panic!("{ended} of {} have ended: {newest:#?}", size.jobs);
        }
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
}

/// Checks double use of GPUs by the living processes of each machine, by Muster's records and by
/// the scheduler's plan check.
async fn none_was_given_twice(fleet: &Fleet) {
    let most = fleet.cluster.pods().kubelet.most_gpus_held();
    let over = most.iter().find(|(_, most)| **most > u64::from(GPUS));
    assert!(over.is_none(), "{over:?} were held at one time");
    let jobs = story::jobs(&fleet.cluster).await;
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    story::no_gpu_was_held_twice(&fleet.cluster, &ids).await;
    assert_eq!(fleet.counted("muster_scheduler_refusals_total"), 0);
    let moved = jobs.iter().filter(|job| job.revision > 1).count();
    eprintln!("{moved} of {} jobs were moved", jobs.len());
    assert!(moved > 0, "machines in use were taken");
}

async fn tell_how_late(fleet: &Fleet, shown: &History) {
    let all = shown.all();
    let mut late = StatusDelays::default();
    for job in story::jobs(&fleet.cluster).await {
        let seen = all.iter().filter(|seen| seen.name == job.name);
        let seen: Vec<ObjectEvent> = seen.cloned().collect();
        late.add(&job.name, &fleet.cluster.history(job.id).await, &seen);
    }
    eprintln!("{late}");
}
