//! Benchmark of the decisions of `muster` on the published workloads of Pollux, 64 GPUs, one load
//! after the other. A decision includes the estimates: learned speed curves with the best batch of
//! every size, and the dense problem.
//!
//! `cargo bench -p muster-lab --bench decision_times` prints the median, the 99th percentile and
//! the maximum over all decisions of a load, in CPU time of the deciding thread. It also prints the
//! 99th percentile in wall time, and the 99th percentile of CPU time over the goal. `-- 2.0`
//! measures one load.

use muster_lab::contestants::contestant;
use muster_lab::reference_simulators::{
    Cluster, NodeGroup, Profiles, ReferenceSettings, SimulatorRules, run,
};
use muster_lab::trace::{Workload, file, read};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Highest 99th percentile that decisions on 64 GPUs should have, in milliseconds.
const GOAL_MS: f64 = 0.5;
const LOADS: [&str; 4] = ["0.5", "1.0", "1.5", "2.0"];

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the CPU time of this thread in seconds.
fn worked_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn main() {
    let only: Vec<String> = std::env::args()
        .filter(|one| LOADS.contains(&one.as_str()))
        .collect();
    let is_selected = |load: &&str| only.is_empty() || only.iter().any(|one| one == load);
    let pollux = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/pollux");
    let profiles = Profiles::read(&pollux).expect("the profiles are committed");
    println!(
        "{:<44} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10}",
        "muster on 64 GPUs, estimates included",
        "decisions",
        "median ms",
        "p99 ms",
        "most ms",
        "wall p99",
        "p99 / goal"
    );
    for load in LOADS.iter().copied().filter(is_selected) {
        let (mut worked_ms, mut took_ms) = (Vec::new(), Vec::new());
        for path in workloads(&pollux.join(format!("workloads-{load}"))) {
            let text = file::read_text(&path).expect("the workload is committed");
            let name = path.display().to_string();
            let jobs = read(&name, &name, &text).expect("the workload is valid");
            measure(&profiles, &jobs, &mut worked_ms, &mut took_ms);
        }
        show(
            &format!("workloads of Pollux at load {load}"),
            worked_ms,
            took_ms,
        );
    }
}

/// Returns the workloads of a folder in the order of their names.
fn workloads(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is committed");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    paths
}

/// Adds the CPU time and the wall time of every decision of a run.
fn measure(profiles: &Profiles, jobs: &Workload, worked_ms: &mut Vec<f64>, took_ms: &mut Vec<f64>) {
    let cluster = Cluster {
        groups: vec![NodeGroup {
            kind: None,
            nodes: 16,
            gpus: 4,
        }],
    };
    let settings = ReferenceSettings {
        rules: SimulatorRules::Pollux,
        interference: 0.0,
        until_s: ReferenceSettings::UNTIL_S,
    };
    let muster = contestant("muster").expect("it is a policy");
    let mut instants = Vec::new();
    let mut watch = || {
        instants.push(now());
        worked_s()
    };
    let run = run(
        profiles,
        jobs,
        &cluster,
        &settings,
        &muster,
        &mut watch,
        &mut |_| {},
    )
    .expect("a run");
    worked_ms.extend(run.decision_s.iter().map(|seconds| seconds * 1e3));
    let pairs = instants.chunks_exact(2);
    took_ms.extend(pairs.map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e3));
}

fn show(what: &str, mut worked_ms: Vec<f64>, mut took_ms: Vec<f64>) {
    worked_ms.sort_by(f64::total_cmp);
    took_ms.sort_by(f64::total_cmp);
    let p99 = quantile(&worked_ms, 0.99);
    println!(
        "{what:<44} {:>9} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>10.2}",
        worked_ms.len(),
        quantile(&worked_ms, 0.5),
        p99,
        quantile(&worked_ms, 1.0),
        quantile(&took_ms, 0.99),
        p99 / GOAL_MS,
    );
}

/// Returns a quantile of sorted times.
fn quantile(times: &[f64], share: f64) -> f64 {
    times[((times.len() - 1) as f64 * share) as usize]
}
