//! Forecasts on several GPU kinds: the simulated future uses the speed that was learned for the
//! kind on which a job runs.

use crate::live::{cluster, job};
use muster_core::learn::Observation;
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::snapshot::{ClusterSnapshot, SnapshotFamily};
use muster_model::spec::Range;
use muster_sim::forecast::{ClusterDelays, ForecastRun, believed};

const STEPS: u64 = 40_000;

fn measured(kind: &str, steps_per_s: f64) -> Observation {
    Observation {
        gpu_kind: kind.to_owned(),
        workers: 1,
        ps_shards: 0,
        nodes: 1,
        steps_per_s,
        samples: 100.0,
        batch: None,
    }
}

/// One fast and one slow node. A job is queued whose family is four times as fast on the fast kind.
fn two_kinds() -> ClusterSnapshot {
    let mut snapshot = cluster(2);
    for (node, kind) in snapshot.nodes.iter_mut().zip(["fast", "slow"]) {
        node.gpu_model = kind.to_owned();
        node.gpus = 1;
    }
    let mut job = job(0, 0, STEPS);
    job.workers = Range { min: 1, max: 1 };
    job.ps_shards = Range::NONE;
    job.family = Some("keen".to_owned());
    snapshot.families.push(SnapshotFamily {
        restarts: None,
        tenant: job.tenant,
        family: "keen".to_owned(),
        noises: Vec::new(),
        speeds: vec![measured("fast", 40.0), measured("slow", 10.0)],
    });
    snapshot.jobs.push(job);
    snapshot
}

/// Seconds from the start to the end of the only job.
fn lasts_s(snapshot: ClusterSnapshot) -> f64 {
    let policy = Policy::named(PolicyName::Muster);
    let believed = believed(&snapshot, &policy);
    let mut run = ForecastRun::new(snapshot, believed, Vec::new(), ClusterDelays::LIVE);
    run.run(&policy).expect("the core keeps its own rules");
    let result = run.results().next().expect("the job");
    let (start_ms, finish_ms) = (result.start_ms.expect("starts"), result.finish_ms);
    (finish_ms.expect("ends") - start_ms) as f64 / 1_000.0
}

#[test]
fn forecast_lasts_as_long_as_the_kind_takes() {
    for (closed, steps_per_s) in [(1, 40.0), (0, 10.0)] {
        let mut snapshot = two_kinds();
        snapshot.nodes[closed].drained = true;
        let (lasts_s, expected_s) = (lasts_s(snapshot), STEPS as f64 / steps_per_s);
        let error = (lasts_s / expected_s - 1.0).abs();
        assert!(error < 0.05, "{lasts_s} s instead of {expected_s} s");
    }
}

#[test]
fn forecast_job_moves_to_faster_kind_that_opens() {
    let policy = Policy::named(PolicyName::Muster);
    let mut snapshot = two_kinds();
    snapshot.nodes[0].cordoned = true;
    let truths = believed(&snapshot, &policy);
    let mut run = ForecastRun::new(snapshot, truths, Vec::new(), ClusterDelays::LIVE);
    run.run_until(1_000_000, &policy).expect("valid rounds");
    let mut later = run.snapshot().clone();
    let slow = later.nodes[1].id;
    assert_eq!(later.jobs[0].tasks[0].node, slow);
    // The simulated measurements name their kind, so the job still counts as faster elsewhere.
    later.nodes[0].cordoned = false;
    let truths = believed(&later, &policy);
    let now_ms = later.now_ms;
    let mut run = ForecastRun::new(later, truths, Vec::new(), ClusterDelays::LIVE);
    run.run(&policy).expect("valid rounds");
    let finish_ms = run.results().next().and_then(|one| one.finish_ms);
    let left_s = (finish_ms.expect("ends") - now_ms) as f64 / 1_000.0;
    assert!(left_s < 1_200.0, "{left_s} s, and 3,000 s on the slow kind");
}
