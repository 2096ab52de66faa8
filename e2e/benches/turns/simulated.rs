//! The same jobs in the simulator, which uses the same planner.

use crate::{JobTimes, SHORT_JOBS, ShortJobAlone};
use muster_model::spec::{Consistency, Range};
use muster_sim::core::policies::name::PolicyName;
use muster_sim::core::policy::{Policy, Slicing};
use muster_sim::scenario::{Scenario, SimJob, SimNode, SimTenant, SpeedFormula, TrueSpeed};
use muster_sim::simulate;

/// Finer than a time slice, so that rounding to steps has no effect.
const STEPS_PER_S: i64 = 100;

/// Simulates the long job and the short ones submitted after it, with time slices of `quantum_ms`
/// or without.
pub fn run(
    alone: ShortJobAlone,
    long_ms: i64,
    submitted_ms: &[i64],
    quantum_ms: Option<u64>,
) -> JobTimes {
    let mut jobs = vec![job("long".to_owned(), 0, 4, long_ms)];
    let short =
        |(number, &at_ms): (usize, &i64)| job(format!("short-{number}"), at_ms, 1, alone.works_ms);
    jobs.extend(submitted_ms.iter().enumerate().map(short));
    let node = |number| SimNode {
        name: format!("node-{number}"),
        gpus: 2,
        gpu_model: "gpu".to_owned(),
        rack: None,
        speed: 1.0,
    };
    let scenario = Scenario {
        nodes: (0..2).map(node).collect(),
        tenants: vec![SimTenant {
            name: "t".to_owned(),
            gpu_quota: None,
        }],
        jobs,
        incidents: Vec::new(),
        launch_ms: alone.around_ms,
        across_racks: 1.0,
        suspend_ms: 50,
        stop_ms: 0,
        sharing: None,
        round_ms: 1_000,
        until_ms: 3_600_000,
    };
    let slicing = quantum_ms.map(|quantum_ms| Slicing {
        quantum_ms,
        suspended_per_gpu: 3,
    });
    let policy = Policy {
        slicing,
        ..Policy::named(PolicyName::Fifo)
    };
    let outcome = simulate(&scenario, &policy).expect("every plan passes the check");
    let lived_s = |job: usize| outcome.jobs[job].jct_ms.expect("it has ended") as f64 / 1e3;
    let first_s = |job: usize| {
        let started_ms = outcome.jobs[job].sizes[0].0;
        (started_ms + scenario.launch_ms - submitted_ms[job - 1]) as f64 / 1e3
    };
    JobTimes {
        shorts_s: (1..=SHORT_JOBS).map(lived_s).collect(),
        long_s: lived_s(0),
        first_s: (1..=SHORT_JOBS).map(first_s).collect(),
        offsets_ms: submitted_ms.iter().map(|ms| ms - submitted_ms[0]).collect(),
    }
}

fn job(name: String, submitted_ms: i64, workers: u32, works_ms: i64) -> SimJob {
    SimJob {
        name,
        tenant: 0,
        priority: 0,
        submitted_ms,
        workers: Range {
            min: workers,
            max: workers,
        },
        ps_shards: Range { min: 1, max: 1 },
        gpus_per_worker: 1,
        retries: 0,
        in_place: false,
        consistency: Consistency::default(),
        batch: 128,
        steps: u64::try_from(works_ms * STEPS_PER_S / 1_000).expect("positive"),
        checkpoint_steps: 100,
        launch_ms: None,
        family: None,
        speed: TrueSpeed::Formula(SpeedFormula {
            parallel_s: 1.0 / STEPS_PER_S as f64,
            serial_s: 0.0,
            exchange_s: 0.0,
            per_worker_s: 0.0,
            useful_workers: 1,
        }),
    }
}
