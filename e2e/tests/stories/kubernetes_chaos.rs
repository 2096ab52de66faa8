//! Two hundred jobs by kubectl on a real API server and a real Muster: behaviour under faults, and
//! delay of status changes.

use muster_e2e::cluster::{PATIENCE, TestClusterOptions};
use muster_e2e::kubernetes::{History, KubernetesTestbed, ObjectEvent, StatusDelays, sleeper};
use muster_e2e::story;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(200);
const NODES: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 8 };
const JOBS: usize = 200;
/// Maximum number of patches of one object by the operator, through all faults.
const PATCHES: u64 = 40;

/// The operator is killed at any moment, its connections are cut, the API server is restarted, and
/// another manager writes invalid values. Each object still has one job and ends as its job does.
#[tokio::test]
#[ignore = "takes minutes: make story-kubernetes"]
async fn each_object_is_submitted_once_under_faults() {
    let mut testbed = KubernetesTestbed::set(NODES, &[], "", &[]).await;
    let mut documents = String::new();
    for number in 0..JOBS {
        let script = match number % 20 {
            7 => "exit 3",
            _ => "sleep 4",
        };
        writeln!(
            documents,
            "{}  retries: 0",
            sleeper(&format!("job-{number}"), &format!("[sh, -c, '{script}']"))
        )
        .expect("a string takes all");
    }
    testbed.kubernetes.applied(&documents);
    let mut chance = Chance(20_261_122);
    let (mut kills, mut cuts, mut restarts, mut waited) = (0, 0, 0, Duration::ZERO);
    loop {
        let pause = Duration::from_millis(200 + chance.below(1_500));
        tokio::time::sleep(pause).await;
        waited += pause;
        match chance.below(8) {
            0..3 => {
                testbed.operator.kill();
                tokio::time::sleep(Duration::from_millis(chance.below(400))).await;
                testbed.operator.start_again();
                kills += 1;
            }
            3..5 => {
                testbed.api_proxy.cut();
                cuts += 1;
            }
            5 if restarts < 3 => {
                testbed.kubernetes.restart_server().await;
                restarts += 1;
            }
            _ => meddle(&testbed, chance.below(JOBS as u64)),
        }
        let Some(statuses) = testbed.statuses("mj") else {
            continue;
        };
        let ended = statuses.values().filter(|status| is_over(status)).count();
        if ended == JOBS && kills >= 15 {
            break;
        }
        if waited > 3 * PATIENCE {
            testbed.operator.print_log();
            panic!(
                "{ended} of {JOBS} have ended after {kills} kills, {cuts} cuts and {restarts} restarts"
            );
        }
    }
    eprintln!(
        "{JOBS} jobs have ended through {kills} kills, {cuts} cuts and {restarts} restarts of the server"
    );
    assert_eq!(testbed.statuses("mj").map(|all| all.len()), Some(JOBS));
    for number in 0..JOBS {
        let phase = if number % 20 == 7 {
            "Failed"
        } else {
            "Succeeded"
        };
        testbed.until_phase(&format!("job-{number}"), phase).await;
    }
    let mut uids = BTreeSet::new();
    let jobs = story::jobs(&testbed.cluster).await;
    for job in &jobs {
        let uid = job
            .labels
            .get("muster.dev/uid")
            .expect("the operator's label");
        assert!(uids.insert(uid), "{} was submitted twice", job.name);
    }
    assert_eq!(jobs.len(), JOBS);
    testbed.operator.kill();
    testbed.api_proxy.cut();
    // A finalizer, an annotation, a few phases, and restored fields. A higher number would mean
    // endless retries.
    let patches = testbed.kubernetes.times_asked("trainingjobs", "patch");
    let most = patches.values().max().copied().unwrap_or_default();
    let all: u64 = patches.values().sum();
    eprintln!("the operator has patched {all} times, one object {most} times at most");
    assert!(most <= PATCHES, "{patches:?}");
    testbed.cluster.down();
}

/// Without faults: compares what kubectl's watch shows of each job with the job's own history.
/// Prints the delay; the promise is two seconds on a machine with free capacity.
#[tokio::test]
#[ignore = "takes minutes: make story-kubernetes"]
async fn kubectl_shows_each_change_soon_and_in_order() {
    let mut testbed = KubernetesTestbed::set(NODES, &[], "", &[]).await;
    let shown = History::of(&testbed.kubernetes, "trainingjobs");
    let mut documents = String::new();
    for number in 0..JOBS {
        let name = format!("job-{number}");
        write!(documents, "{}", sleeper(&name, "[sleep, '3']")).expect("a string takes all");
    }
    testbed.kubernetes.applied(&documents);
    let mut waited = Duration::ZERO;
    // Uses the watch only: repeated listings of two hundred objects would load the machine.
    loop {
        let newest = shown.newest();
        if newest.len() == JOBS && newest.values().all(is_over) {
            break;
        }
        if waited > 2 * PATIENCE {
            testbed.operator.print_log();
            let left = newest.iter().filter(|(_, status)| !is_over(status));
            let left: Vec<_> = left.collect();
            panic!(
                "{} are shown, of which these do not end: {left:#?}",
                newest.len()
            );
        }
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
    let all = shown.all();
    let mut late = StatusDelays::default();
    for job in story::jobs(&testbed.cluster).await {
        let seen = all.iter().filter(|seen| seen.name == job.name);
        let seen: Vec<ObjectEvent> = seen.cloned().collect();
        late.add(&job.name, &testbed.cluster.history(job.id).await, &seen);
    }
    eprintln!("{JOBS} jobs: {late}");
    testbed.operator.kill();
    testbed.cluster.down();
}

fn meddle(testbed: &KubernetesTestbed, number: u64) {
    let name = format!("job-{number}");
    // The server may be unavailable, or the object not created yet.
    let _ = testbed
        .kubernetes
        .kubectl(&[
            "patch",
            "mj",
            &name,
            "--type=merge",
            "--subresource=status",
            "--field-manager=meddler",
        ])
        .args([
            "-p",
            r#"{"status":{"phase":"Nonsense","position":7,"reason":"Because"}}"#,
        ])
        .output();
}

fn is_over(status: &Value) -> bool {
    matches!(
        status["phase"].as_str(),
        Some("Succeeded" | "Failed" | "Cancelled")
    )
}

/// Knuth's multiplicative generator, so that the order of faults is the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
