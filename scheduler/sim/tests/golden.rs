//! Scenarios whose whole course is kept as a golden file; `UPDATE_GOLDEN=1` rewrites them.

use muster_core::policy::Policy;
use muster_model::spec::{Consistency, Range};
use muster_sim::scenario::{Incident, Scenario, SimJob, SimNode, SimTenant, TrueSpeed, What};
use muster_sim::simulate;
use std::path::Path;

fn cluster(nodes: usize, gpus: u32) -> Scenario {
    Scenario {
        nodes: (0..nodes)
            .map(|n| SimNode {
                name: format!("node-{n}"),
                gpus,
                rack: None,
            })
            .collect(),
        tenants: vec![SimTenant {
            name: "t".to_owned(),
            gpu_quota: None,
        }],
        jobs: Vec::new(),
        incidents: Vec::new(),
        launch_ms: 1_500,
        across_racks: 1.0,
        suspend_ms: 100,
        stop_ms: 800,
        round_ms: 5_000,
        until_ms: 24 * 3_600_000,
    }
}

fn job(name: &str, submitted_s: i64, workers: (u32, u32), steps: u64) -> SimJob {
    SimJob {
        name: name.to_owned(),
        tenant: 0,
        priority: 0,
        submitted_ms: submitted_s * 1_000,
        workers: Range {
            min: workers.0,
            max: workers.1,
        },
        ps_shards: Range { min: 1, max: 1 },
        gpus_per_worker: 1,
        retries: 3,
        in_place: false,
        consistency: Consistency::default(),
        batch: 128,
        steps,
        checkpoint_steps: 100,
        speed: TrueSpeed {
            parallel_s: 0.1,
            serial_s: 0.005,
            exchange_s: 0.001,
            per_worker_s: 0.0,
            useful_workers: 1_024,
        },
    }
}

fn compare(name: &str, scenario: &Scenario) {
    let outcome = simulate(scenario, &Policy::optimus())
        .expect("plans obey the rules")
        .to_string();
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &outcome).expect("write the golden file");
    }
    let golden = std::fs::read_to_string(&path).expect("read the golden file");
    assert_eq!(
        outcome, golden,
        "{name} took another course; UPDATE_GOLDEN=1 accepts it"
    );
}

#[test]
fn a_second_job_comes_and_goes() {
    let mut scenario = cluster(2, 2);
    scenario.jobs = vec![job("a", 0, (1, 4), 12_000), job("b", 60, (1, 2), 1_500)];
    compare("second_job", &scenario);
}

#[test]
fn slots_of_two_cores_bring_nothing_beyond_two_workers() {
    let mut scenario = cluster(2, 2);
    scenario.jobs = vec![job("a", 0, (1, 4), 12_000), job("b", 60, (1, 2), 3_000)];
    scenario
        .jobs
        .iter_mut()
        .for_each(|job| job.speed.useful_workers = 2);
    compare("two_cores", &scenario);
}

#[test]
fn a_node_is_lost_and_comes_back() {
    let mut scenario = cluster(2, 2);
    scenario.jobs = vec![job("a", 0, (2, 4), 12_000), job("b", 5, (1, 1), 6_000)];
    scenario.incidents = vec![
        Incident {
            at_ms: 50_000,
            what: What::NodeLost { node: 1 },
        },
        Incident {
            at_ms: 120_000,
            what: What::NodeBack { node: 1 },
        },
    ];
    compare("node_lost", &scenario);
}

#[test]
fn a_higher_priority_displaces_and_a_failure_is_retried() {
    let mut scenario = cluster(1, 2);
    let mut high = job("high", 40, (2, 2), 1_000);
    high.priority = 10;
    scenario.jobs = vec![job("low", 0, (2, 2), 4_000), high];
    scenario.incidents = vec![
        Incident {
            at_ms: 20_000,
            what: What::TaskFails { job: 0 },
        },
        Incident {
            at_ms: 60_000,
            what: What::Drain { node: 0 },
        },
        Incident {
            at_ms: 80_000,
            what: What::Uncordon { node: 0 },
        },
    ];
    compare("priority", &scenario);
}
