//! Simulated effect of time slicing on short jobs behind a long one; `e2e/benches/turns` compares
//! it with real processes.

use crate::fixed_job::fixed_job;
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Policy, Slicing};
use muster_model::spec::Range;
use muster_sim::scenario::{Scenario, SimJob, SimNode, SimTenant};
use muster_sim::{SimulationOutcome, simulate};

/// A job with one shard.
fn sim_job(name: String, submitted_s: i64, workers: u32, seconds: u64) -> SimJob {
    SimJob {
        ps_shards: Range { min: 1, max: 1 },
        ..fixed_job(name, submitted_s, workers, seconds)
    }
}

/// Four slots; a job on all of them for `long_s`, and after a minute eight jobs of one slot and
/// `short_s` each.
fn scenario(long_s: u64, short_s: u64) -> Scenario {
    let mut jobs = vec![sim_job("long".to_owned(), 0, 4, long_s)];
    jobs.extend((0..8).map(|n| sim_job(format!("short-{n}"), 60, 1, short_s)));
    Scenario {
        nodes: (0..2)
            .map(|n| SimNode {
                name: format!("node-{n}"),
                gpus: 2,
                gpu_model: "gpu".to_owned(),
                rack: None,
                speed: 1.0,
            })
            .collect(),
        tenants: vec![SimTenant {
            name: "t".to_owned(),
            gpu_quota: None,
        }],
        jobs,
        incidents: Vec::new(),
        launch_ms: 1_000,
        across_racks: 1.0,
        suspend_ms: 100,
        stop_ms: 500,
        sharing: None,
        round_ms: 1_000,
        until_ms: 24 * 3_600_000,
    }
}

#[test]
fn job_without_gpus_runs_beside_held_slots() {
    let mut scenario = scenario(1_200, 30);
    scenario.jobs.truncate(1);
    let alone = seconds(&run(&scenario, Some(60_000)), 0);
    let mut prepares = sim_job("prepares".to_owned(), 60, 2, 30);
    prepares.gpus_per_worker = 0;
    scenario.jobs.push(prepares);
    let beside = run(&scenario, Some(60_000));
    assert!((30.0..35.0).contains(&seconds(&beside, 1)), "{beside:?}");
    assert!((seconds(&beside, 0) - alone).abs() < 1.0, "{beside:?}");
}

fn run(scenario: &Scenario, quantum_ms: Option<u64>) -> SimulationOutcome {
    let slicing = quantum_ms.map(|quantum_ms| Slicing {
        quantum_ms,
        suspended_per_gpu: 3,
    });
    let policy = Policy {
        slicing,
        ..Policy::named(PolicyName::Fifo)
    };
    simulate(scenario, &policy).expect("every plan passes the check")
}

fn seconds(outcome: &SimulationOutcome, job: usize) -> f64 {
    outcome.jobs[job].jct_ms.expect("it has ended") as f64 / 1e3
}

fn mean_of_shorts(outcome: &SimulationOutcome) -> f64 {
    (1..=8).map(|job| seconds(outcome, job)).sum::<f64>() / 8.0
}

#[test]
fn sliced_short_jobs_do_not_wait_for_end_of_long_job() {
    let scenario = scenario(1_200, 30);
    let (fifo, turns) = (run(&scenario, None), run(&scenario, Some(60_000)));
    let (waiting, turning) = (mean_of_shorts(&fifo), mean_of_shorts(&turns));
    // By hand: FIFO ends them at 1,200 s + 30 s and + 60 s, minus their submission at 60 s. With
    // time slicing the first four run from 60 s on and the others after them, plus launches and
    // slices.
    assert!((1_180.0..1_200.0).contains(&waiting), "{waiting}");
    assert!((45.0..55.0).contains(&turning), "{turning}");
    let (before, after) = (seconds(&fifo, 0), seconds(&turns, 0));
    assert!(
        (after - before - 60.0).abs() < 10.0,
        "the long one gives a minute: {before} s, then {after} s"
    );
    println!(
        "short jobs: {waiting:.0} s waiting, {turning:.0} s in turns; long: {before:.0} and {after:.0} s"
    );
}
