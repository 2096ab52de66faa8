//! For all workloads and incidents every job ends.

use muster_core::policy::Policy;
use muster_model::job::JobPhase;
use muster_model::spec::{Consistency, Range, Rate};
use muster_sim::scenario::{
    Incident, IncidentKind, Scenario, SimJob, SimNode, SimTenant, SpeedFormula, TrueSpeed,
};
use muster_sim::simulate;
use proptest::prelude::*;

fn sim_job(nodes: u32, gpus: u32) -> impl Strategy<Value = SimJob> {
    let size = (1..=nodes * gpus, 0..6_u32, 1..4_u32);
    let speed = (1..200_u32, 0..20_u32, 0..5_u32, 1..16_u32);
    let rest = (
        0..1_800_000_i64,
        -1..2_i32,
        1..5_000_u64,
        0..2_usize,
        any::<bool>(),
    );
    (size, speed, rest).prop_map(|((min, more, shards), speed, rest)| SimJob {
        name: String::new(),
        tenant: rest.3,
        priority: rest.1,
        submitted_ms: rest.0,
        workers: Range {
            min,
            max: min + more,
        },
        ps_shards: Range {
            min: 1,
            max: shards,
        },
        gpus_per_worker: 1,
        retries: 100,
        in_place: rest.4,
        consistency: if rest.4 {
            Consistency::default()
        } else {
            Consistency::Asp {
                rate: Rate::Constant,
            }
        },
        batch: 64,
        steps: rest.2,
        checkpoint_steps: 50,
        launch_ms: None,
        family: None,
        speed: TrueSpeed::Formula(SpeedFormula {
            parallel_s: f64::from(speed.0) / 1000.0,
            serial_s: 0.001 + f64::from(speed.1) / 1000.0,
            exchange_s: f64::from(speed.2) / 1000.0,
            per_worker_s: 0.0005,
            useful_workers: speed.3,
        }),
    })
}

/// Nodes are lost for a while and tasks fail; every fault ends.
fn incidents(nodes: usize, jobs: usize) -> impl Strategy<Value = Vec<Incident>> {
    let one =
        (0..3_600_000_i64, 0..nodes, 0..jobs, 0..3_u8).prop_map(|(at_ms, node, job, kind)| {
            let (first, then) = match kind {
                0 => (
                    IncidentKind::NodeLost { node },
                    Some(IncidentKind::NodeBack { node }),
                ),
                1 => (
                    IncidentKind::Drain { node },
                    Some(IncidentKind::Uncordon { node }),
                ),
                _ => (IncidentKind::TaskFails { job }, None),
            };
            let after = then.map(|what| Incident {
                at_ms: at_ms + 120_000,
                what,
            });
            [Some(Incident { at_ms, what: first }), after]
        });
    prop::collection::vec(one, 0..8).prop_map(|all| all.into_iter().flatten().flatten().collect())
}

fn scenario() -> impl Strategy<Value = Scenario> {
    (1..5_u32, 1..5_u32, 1..9_usize).prop_flat_map(|(nodes, gpus, jobs)| {
        let all = prop::collection::vec(sim_job(nodes, gpus), jobs);
        (all, incidents(nodes as usize, jobs)).prop_map(move |(mut jobs, incidents)| {
            for (number, job) in jobs.iter_mut().enumerate() {
                job.name = format!("j{number}");
            }
            Scenario {
                nodes: (0..nodes)
                    .map(|n| SimNode {
                        name: format!("node-{n}"),
                        gpus,
                        gpu_model: "gpu".to_owned(),
                        rack: None,
                        speed: 1.0,
                    })
                    .collect(),
                tenants: vec![
                    SimTenant {
                        name: "free".to_owned(),
                        gpu_quota: None,
                    },
                    SimTenant {
                        name: "bound".to_owned(),
                        gpu_quota: Some(nodes * gpus),
                    },
                ],
                jobs,
                incidents,
                launch_ms: 2_000,
                across_racks: 1.0,
                suspend_ms: 100,
                stop_ms: 1_000,
                sharing: None,
                round_ms: 30_000,
                until_ms: 14 * 24 * 3_600_000,
            }
        })
    })
}

fn plain_job(
    name: &str,
    tenant: usize,
    priority: i32,
    submitted_ms: i64,
    (min, max): (u32, u32),
) -> SimJob {
    SimJob {
        name: name.to_owned(),
        tenant,
        priority,
        submitted_ms,
        workers: Range { min, max },
        ps_shards: Range { min: 1, max: 1 },
        gpus_per_worker: 1,
        retries: 0,
        in_place: false,
        consistency: Consistency::Asp {
            rate: Rate::Constant,
        },
        batch: 64,
        steps: 4_000,
        checkpoint_steps: 50,
        launch_ms: None,
        family: None,
        speed: TrueSpeed::Formula(SpeedFormula {
            parallel_s: 0.08,
            serial_s: 0.01,
            exchange_s: 0.002,
            per_worker_s: 0.0005,
            useful_workers: 8,
        }),
    }
}

/// A job that waits for its quota blocks later jobs only while the quota is used up. The job that
/// uses it up starts in the same round and must count. Otherwise it would get the GPUs that the
/// small job was refused, be stopped for that job, and so on in a loop.
#[test]
fn job_waiting_for_quota_causes_no_start_stop_loop() {
    let scenario = Scenario {
        nodes: vec![SimNode {
            name: "node-0".to_owned(),
            gpus: 2,
            gpu_model: "gpu".to_owned(),
            rack: None,
            speed: 1.0,
        }],
        tenants: vec![
            SimTenant {
                name: "free".to_owned(),
                gpu_quota: None,
            },
            SimTenant {
                name: "bound".to_owned(),
                gpu_quota: Some(2),
            },
        ],
        jobs: vec![
            plain_job("waits", 1, 0, 10_000, (2, 2)),
            plain_job("small", 0, -1, 20_000, (1, 1)),
            plain_job("urgent", 1, 1, 30_000, (1, 3)),
        ],
        incidents: vec![
            Incident {
                at_ms: 1_000,
                what: IncidentKind::Drain { node: 0 },
            },
            Incident {
                at_ms: 1_000_000,
                what: IncidentKind::Uncordon { node: 0 },
            },
        ],
        launch_ms: 2_000,
        across_racks: 1.0,
        suspend_ms: 100,
        stop_ms: 1_000,
        sharing: None,
        round_ms: 30_000,
        until_ms: 2 * 3_600_000,
    };
    let outcome = simulate(&scenario, &Policy::optimus()).expect("plans obey the rules");
    for job in &outcome.jobs {
        let phase = job.state.phase();
        assert_eq!(phase, JobPhase::Succeeded, "{}", job.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_job_ends(scenario in scenario()) {
        let outcome = simulate(&scenario, &Policy::optimus()).expect("plans obey the rules");
        for job in &outcome.jobs {
            prop_assert_eq!(job.state.phase(), JobPhase::Succeeded, "{} in\n{}", job.name, outcome);
        }
        // A resize costs seconds; an unstable scheduler would restart jobs hundreds of times.
        let restarts: u64 = outcome.jobs.iter().map(|job| job.restarts).sum();
        prop_assert!(restarts < 100, "{} restarts in\n{}", restarts, outcome);
        let again = simulate(&scenario, &Policy::optimus()).expect("plans obey the rules");
        prop_assert_eq!(outcome, again);
    }
}
