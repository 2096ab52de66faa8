//! Effect of the measured speeds of nodes: some nodes of a half used cluster are slow.

use crate::fixed_job::fixed_job;
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_sim::scenario::{Scenario, SimJob, SimNode, SimTenant};
use muster_sim::simulate_recorded;
use muster_sim::simulation_record::SimulationRecord;

const JOBS: usize = 120;
/// Jobs from this one on start when the nodes are known.
const LATER_JOBS: usize = 60;
/// Names sort the slow nodes first, so a placement by name prefers them.
const SPEEDS: [f64; 8] = [0.6, 0.7, 1.0, 1.0, 1.0, 1.0, 1.1, 1.1];

/// A job of one of four families. Jobs without families are not compared.
fn sim_job(number: usize, has_family: bool) -> SimJob {
    let workers = 1 + 3 * u32::from(number.is_multiple_of(3));
    let seconds = 500 + 100 * (number as u64 % 5);
    SimJob {
        family: has_family.then(|| format!("family-{}", number % 4)),
        ..fixed_job(
            format!("job-{number:03}"),
            60 * number as i64,
            workers,
            seconds,
        )
    }
}

fn scenario(have_families: bool) -> Scenario {
    let nodes = SPEEDS.iter().enumerate();
    Scenario {
        nodes: nodes
            .map(|(n, &speed)| SimNode {
                name: format!("node-{n}"),
                gpus: 4,
                gpu_model: "gpu".to_owned(),
                rack: None,
                speed,
            })
            .collect(),
        tenants: vec![SimTenant {
            name: "t".to_owned(),
            gpu_quota: None,
        }],
        jobs: (0..JOBS)
            .map(|number| sim_job(number, have_families))
            .collect(),
        incidents: Vec::new(),
        launch_ms: 1_500,
        suspend_ms: 100,
        stop_ms: 800,
        across_racks: 1.0,
        sharing: None,
        round_ms: 5_000,
        until_ms: 48 * 3_600_000,
    }
}

fn run(have_families: bool, share: PolicyName) -> SimulationRecord {
    let policy = Policy {
        slicing: None,
        ..Policy::named(share)
    };
    let scenario = scenario(have_families);
    simulate_recorded(&scenario, &policy, &mut || 0.0, &mut |_| ())
        .expect("every plan passes the check")
}

/// Mean completion time of the later jobs, in seconds.
fn mean_jct_s(record: &SimulationRecord) -> f64 {
    let jobs = record.outcome.jobs.iter().skip(LATER_JOBS);
    let sum_ms: i64 = jobs.map(|job| job.jct_ms.expect("it has ended")).sum();
    sum_ms as f64 / (JOBS - LATER_JOBS) as f64 / 1e3
}

/// Share of the later jobs that held GPUs of a slow node.
fn share_on_slow_nodes(record: &SimulationRecord) -> f64 {
    let later = record.holds.iter().filter(|hold| hold.job >= LATER_JOBS);
    let slow = later.clone().filter(|hold| hold.node < 2);
    slow.count() as f64 / later.count() as f64
}

#[test]
fn known_slow_nodes_are_avoided_and_jobs_end_earlier() {
    for share in [PolicyName::Muster, PolicyName::Fifo] {
        let runs = [true, false].map(|have_families| run(have_families, share));
        let [on_slow, on_slow_unknown] = runs.each_ref().map(share_on_slow_nodes);
        assert!(
            on_slow < on_slow_unknown / 2.0,
            "{share:?}: {on_slow:.2} and {on_slow_unknown:.2} of the jobs are on slow nodes"
        );
        let [known, unknown] = runs.each_ref().map(mean_jct_s);
        println!("{share:?}: mean completion time {known:.0} s, {unknown:.0} s if not compared");
        assert!(
            known < 0.95 * unknown,
            "{share:?}: {known:.0} s, {unknown:.0} s"
        );
    }
}
