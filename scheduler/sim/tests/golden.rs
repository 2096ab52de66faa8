//! Scenarios whose complete timeline is a golden file; `UPDATE_GOLDEN=1` rewrites them.

use muster_core::policies::name::PolicyName;
use muster_core::policy::{Packing, Policy, Slicing};
use muster_model::spec::{Consistency, Range};
use muster_sim::scenario::{
    GpuUse, Incident, IncidentKind, Scenario, Sharing, SimJob, SimNode, SimTenant, SpeedFormula,
    TrueSpeed,
};
use muster_sim::{SimulationOutcome, simulate};
use std::path::Path;

fn cluster(nodes: usize, gpus: u32) -> Scenario {
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
        sharing: None,
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
        launch_ms: None,
        family: None,
        speed: TrueSpeed::Formula(SpeedFormula {
            parallel_s: 0.1,
            serial_s: 0.005,
            exchange_s: 0.001,
            per_worker_s: 0.0,
            useful_workers: 1_024,
        }),
    }
}

fn compare(name: &str, scenario: &Scenario) {
    compare_under(name, scenario, &Policy::optimus());
}

fn compare_under(name: &str, scenario: &Scenario, policy: &Policy) -> SimulationOutcome {
    let simulated = simulate(scenario, policy).expect("plans obey the rules");
    let outcome = simulated.to_string();
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
    simulated
}

fn formula(job: &mut SimJob) -> &mut SpeedFormula {
    match &mut job.speed {
        TrueSpeed::Formula(formula) => formula,
        TrueSpeed::Table(_) | TrueSpeed::Goodput(_) => {
            panic!("the jobs of these scenarios follow a formula")
        }
    }
}

#[test]
fn elastic_job_shrinks_for_second_job_and_grows_back() {
    let mut scenario = cluster(2, 2);
    scenario.jobs = vec![job("a", 0, (1, 4), 12_000), job("b", 60, (1, 2), 1_500)];
    compare("second_job", &scenario);
}

#[test]
fn job_without_gain_stays_at_two_workers() {
    let mut scenario = cluster(2, 2);
    scenario.jobs = vec![job("a", 0, (1, 4), 12_000), job("b", 60, (1, 2), 3_000)];
    scenario
        .jobs
        .iter_mut()
        .for_each(|job| formula(job).useful_workers = 2);
    compare("two_cores", &scenario);
}

#[test]
fn jobs_survive_lost_node_that_returns() {
    let mut scenario = cluster(2, 2);
    scenario.jobs = vec![job("a", 0, (2, 4), 12_000), job("b", 5, (1, 1), 6_000)];
    scenario.incidents = vec![
        Incident {
            at_ms: 50_000,
            what: IncidentKind::NodeLost { node: 1 },
        },
        Incident {
            at_ms: 120_000,
            what: IncidentKind::NodeBack { node: 1 },
        },
    ];
    compare("node_lost", &scenario);
}

#[test]
fn higher_priority_preempts_and_failure_is_retried() {
    let mut scenario = cluster(1, 2);
    let mut high = job("high", 40, (2, 2), 1_000);
    high.priority = 10;
    scenario.jobs = vec![job("low", 0, (2, 2), 4_000), high];
    scenario.incidents = vec![
        Incident {
            at_ms: 20_000,
            what: IncidentKind::TaskFails { job: 0 },
        },
        Incident {
            at_ms: 60_000,
            what: IncidentKind::Drain { node: 0 },
        },
        Incident {
            at_ms: 80_000,
            what: IncidentKind::Uncordon { node: 0 },
        },
    ];
    compare("priority", &scenario);
}

const GIB: u64 = 1 << 30;

/// Two jobs of one worker on one GPU of 16 GiB, each with `alone_s` seconds of work. `uses` is
/// their share of GPU time and their memory in GiB.
fn on_one_gpu(alone_s: u64, uses: [(f64, u64); 2]) -> Scenario {
    let mut scenario = cluster(1, 1);
    scenario.round_ms = 1_000;
    scenario.jobs = ["a", "b"]
        .into_iter()
        .zip([0, 5])
        .map(|(name, submitted_s)| {
            let mut one = job(name, submitted_s, (1, 1), alone_s * 10);
            one.ps_shards = Range::NONE;
            let speed = formula(&mut one);
            (speed.serial_s, speed.exchange_s) = (0.0, 0.0);
            one
        })
        .collect();
    let uses = uses.map(|(busy, gib)| GpuUse {
        busy,
        memory_bytes: gib * GIB,
    });
    scenario.sharing = Some(Sharing {
        gpu_memory_bytes: 16 * GIB,
        sample_ms: 2_000,
        uses: uses.to_vec(),
    });
    scenario
}

fn in_turns(quantum_s: u64) -> Policy {
    Policy {
        slicing: Some(Slicing {
            quantum_ms: quantum_s * 1_000,
            suspended_per_gpu: 3,
        }),
        ..Policy::named(PolicyName::Fifo)
    }
}

fn packing(quantum_s: u64) -> Policy {
    Policy {
        packing: Some(Packing::default()),
        ..in_turns(quantum_s)
    }
}

fn times_s(outcome: &SimulationOutcome, what: &str) -> Vec<i64> {
    let entries = outcome.timeline.iter();
    let found = entries.filter(|entry| entry.what.contains(what));
    found.map(|entry| entry.at_ms / 1_000).collect()
}

/// Times at which pairs were formed and separated, in seconds.
fn trials(outcome: &SimulationOutcome) -> (Vec<i64>, Vec<i64>) {
    (
        times_s(outcome, "continues beside"),
        times_s(outcome, "no longer beside"),
    )
}

#[test]
fn jobs_with_idle_gpu_time_end_sooner_packed_than_sliced() {
    let scenario = on_one_gpu(300, [(0.4, 4), (0.3, 3)]);
    let turns = simulate(&scenario, &in_turns(30)).expect("plans obey the rules");
    let packed = compare_under("packed", &scenario, &packing(30));
    let [turns_s, packed_s] =
        [&turns, &packed].map(|outcome| outcome.mean_jct_ms().expect("both ended") / 1e3);
    // Alone 300 s each, so about 600 s for both with time slicing. In a pair, after the first two
    // slices, a step takes 1.12 times as long.
    assert!((560.0..620.0).contains(&turns_s), "{turns_s}");
    assert!((360.0..400.0).contains(&packed_s), "{packed_s}");
    assert_eq!(trials(&packed).1, [0_i64; 0], "they stay together");
}

#[test]
fn compute_bound_pair_is_separated_and_retried_after_pause() {
    let scenario = on_one_gpu(900, [(1.0, 4), (0.95, 3)]);
    let outcome = compare_under("packed_for_nothing", &scenario, &packing(120));
    let (together, parted) = trials(&outcome);
    assert_eq!(together.len(), 2, "{together:?}");
    for (from_s, to_s) in together.iter().zip(&parted) {
        assert!(
            (1..=60).contains(&(to_s - from_s)),
            "{together:?} {parted:?}"
        );
    }
    // From the last measurement of the pair.
    assert!(together[1] - parted[0] >= 895, "{together:?} {parted:?}");
}

fn uses(at_ms: i64, job: usize, busy_percent: u32, gib: u64) -> Incident {
    Incident {
        at_ms,
        what: IncidentKind::Uses {
            job,
            busy_percent,
            memory_bytes: gib * GIB,
        },
    }
}

#[test]
fn pair_is_separated_when_busier_or_larger() {
    let mut busier = on_one_gpu(300, [(0.4, 4), (0.3, 3)]);
    busier.incidents = vec![uses(200_000, 0, 100, 4), uses(200_000, 1, 100, 3)];
    let outcome = compare_under("packed_until_busy", &busier, &packing(30));
    let (together, parted) = trials(&outcome);
    assert_eq!((together.len(), parted.len()), (1, 1), "{outcome}");
    // A rate is a mean of about the newest eight samples.
    assert!((205..=240).contains(&parted[0]), "{parted:?}");

    let mut larger = on_one_gpu(300, [(0.4, 4), (0.3, 3)]);
    larger.incidents = vec![uses(200_000, 1, 30, 10), uses(220_000, 1, 30, 3)];
    let outcome = compare_under("packed_until_large", &larger, &packing(30));
    let (together, parted) = trials(&outcome);
    assert_eq!(
        together.len(),
        1,
        "what it once needed it may need again: {outcome}"
    );
    assert!((200..=204).contains(&parted[0]), "{parted:?}");
}

#[test]
fn jobs_that_exceed_gpu_memory_are_never_packed() {
    // 10 + 3 of 16 GiB leave less than a fifth.
    let scenario = on_one_gpu(200, [(0.1, 10), (0.1, 3)]);
    let packed = simulate(&scenario, &packing(30)).expect("plans obey the rules");
    let turns = simulate(&scenario, &in_turns(30)).expect("plans obey the rules");
    assert_eq!(trials(&packed).0, [0_i64; 0], "{packed}");
    assert_eq!(packed.to_string(), turns.to_string());
    let fits = on_one_gpu(200, [(0.1, 9), (0.1, 3)]);
    let fits = simulate(&fits, &packing(30)).expect("plans obey the rules");
    assert_eq!(trials(&fits).0.len(), 1, "{fits}");
}

#[test]
fn job_failed_in_pair_is_never_packed_again() {
    let mut scenario = on_one_gpu(300, [(0.4, 4), (0.3, 3)]);
    scenario.incidents = vec![Incident {
        at_ms: 150_000,
        what: IncidentKind::TaskFails { job: 0 },
    }];
    let outcome = simulate(&scenario, &packing(30)).expect("plans obey the rules");
    let together = trials(&outcome).0;
    assert!(together.iter().all(|&at_s| at_s < 150), "{outcome}");
    assert_eq!(together.len(), 1, "{outcome}");
    assert!(
        outcome.mean_jct_ms().is_some_and(|ms| ms > 450_000.0),
        "{outcome}"
    );
}
