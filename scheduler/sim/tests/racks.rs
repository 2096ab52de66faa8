//! Effect of the preference for one rack: a day of a cluster whose racks are joined by a slow
//! network.

use crate::fixed_job::fixed_job;
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_sim::scenario::{Scenario, SimNode, SimTenant};
use muster_sim::simulate;

/// Twelve nodes of two GPUs, alternating between racks by the order of their names. Gangs of two
/// nodes arrive beside jobs of one GPU.
fn scenario(racks: &[&str], across_racks: f64) -> Scenario {
    let gangs = (0..40).map(|n| fixed_job(format!("gang-{n:02}"), 300 * n, 4, 900));
    let singles = (0..60).map(|n| {
        fixed_job(
            format!("one-{n:02}"),
            200 * n + 50,
            1,
            400 + 37 * (n as u64 % 7),
        )
    });
    Scenario {
        nodes: (0..12)
            .map(|n| SimNode {
                name: format!("node-{n:02}"),
                gpus: 2,
                gpu_model: "gpu".to_owned(),
                rack: Some(racks[n % racks.len()].to_owned()),
                speed: 1.0,
            })
            .collect(),
        tenants: vec![SimTenant {
            name: "t".to_owned(),
            gpu_quota: None,
        }],
        jobs: gangs.chain(singles).collect(),
        incidents: Vec::new(),
        launch_ms: 1_500,
        suspend_ms: 100,
        stop_ms: 800,
        across_racks,
        sharing: None,
        round_ms: 5_000,
        until_ms: 48 * 3_600_000,
    }
}

/// Mean completion time of the gangs in seconds.
fn gangs_s(scenario: &Scenario, share: PolicyName) -> f64 {
    let policy = Policy {
        slicing: None,
        ..Policy::named(share)
    };
    let outcome = simulate(scenario, &policy).expect("every plan passes the check");
    let gangs = outcome.jobs.iter().take(40);
    let sum_ms: i64 = gangs.map(|job| job.jct_ms.expect("it has ended")).sum();
    sum_ms as f64 / 40.0 / 1e3
}

#[test]
fn gangs_lose_little_to_slow_network_between_racks() {
    for share in [PolicyName::Muster, PolicyName::Fifo, PolicyName::Tiresias] {
        let near = gangs_s(&scenario(&["a"], 0.5), share);
        let known = gangs_s(&scenario(&["a", "b"], 0.5), share);
        println!("{share:?}: {near:.0} s in one rack, {known:.0} s in two");
        // Placement by the order of names would put all gangs on two racks and double their times.
        assert!(
            known < 1.15 * near,
            "{share:?}: {near:.0} s in one rack, {known:.0} s in two"
        );
    }
}
