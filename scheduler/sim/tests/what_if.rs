//! Questions about a cluster that is full: what nodes, a quota or a job would change.

mod live;

use live::{cluster, job};
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Policy, Slicing};
use muster_core::snapshot::Snapshot;
use muster_model::job::{Intent, JobState};
use muster_model::spec::{JobSpec, Range};
use muster_sim::forecast::{Ahead, Pace, Settings, believed};
use muster_sim::what_if::{Change, WhatIfError, what_if};

const SETTINGS: Settings = Settings {
    runs: 15,
    seed: 1,
    widen: 1.0,
    pace: Pace::LIVE,
};

fn policy() -> Policy {
    Policy::named(PolicyName::Optimus)
}

/// The same, with turns of a minute.
fn in_turns() -> Policy {
    let slicing = Some(Slicing {
        quantum_ms: 60_000,
        suspended_per_gpu: 3,
    });
    Policy {
        slicing,
        ..policy()
    }
}

/// One node of four GPUs; four jobs that want it whole, three of which wait.
fn full() -> Snapshot {
    let mut snapshot = cluster(1);
    for number in 0..4 {
        let mut job = job(number, 0, 20_000);
        job.workers = Range { min: 4, max: 4 };
        snapshot.jobs.push(job);
    }
    let believed = believed(&snapshot, &policy());
    let mut ahead = Ahead::new(snapshot, believed, Vec::new(), Pace::LIVE);
    ahead
        .run_until(45_000, &policy())
        .expect("the core keeps its own rules");
    ahead.snapshot().clone()
}

#[test]
fn more_nodes_shorten_every_wait_and_no_change_changes_nothing() {
    let snapshot = full();
    let same = what_if(&snapshot, &[], &policy(), &SETTINGS).expect("an answer");
    assert!(
        same.jobs.iter().all(|job| job.moved_ms() == Some(0)),
        "{same:?}"
    );
    let nodes = Change::AddNodes { nodes: 3, gpus: 4 };
    let more = what_if(&snapshot, &[nodes], &policy(), &SETTINGS).expect("an answer");
    let team = &more.tenants[0];
    let (wait, jct) = (
        team.wait_s.expect("three wait"),
        team.jct_s.expect("all end"),
    );
    assert!(wait.after * 5.0 < wait.before, "{wait:?}");
    assert!(jct.after < jct.before, "{jct:?}");
    assert!(more.jobs.iter().all(|job| job.moved_ms() <= Some(0)));
}

#[test]
fn a_job_is_told_its_start_end_and_price_and_whom_it_displaces() {
    let mut spec: JobSpec = serde_json::from_value(serde_json::json!({
        "version": "muster/v1", "name": "urgent", "priority": 50,
        "engine": {
            "model": { "kind": "mlp", "hidden": [8] }, "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "sgd", "learning_rate": 0.1 }, "batch": 64,
        },
        "scale": { "workers": { "min": 4, "max": 4 } },
        "stop": { "steps": 5000 },
    }))
    .expect("a document");
    let snapshot = full();
    let add = |spec: &JobSpec| Change::AddJob {
        tenant: "team".to_owned(),
        spec: Box::new(spec.clone()),
        begins: 0,
    };
    let urgent = what_if(&snapshot, &[add(&spec)], &policy(), &SETTINGS).expect("an answer");
    let added = urgent.jobs.last().expect("the added one");
    assert!(added.before.is_none() && added.name == "urgent");
    let (start, finish) = (
        added.after.start.expect("starts"),
        added.after.finish.expect("ends"),
    );
    assert!(start.p50_ms < finish.p10_ms && added.after.gpu_s > 0.0);
    let displaced = urgent.jobs.iter().filter(|job| job.is_displaced());
    assert_eq!(displaced.count(), 1, "the running one makes way");

    spec.priority = -50;
    let patient = what_if(&snapshot, &[add(&spec)], &policy(), &SETTINGS).expect("an answer");
    let added = patient.jobs.last().expect("the added one");
    assert!(added.after.start.expect("starts").p50_ms > start.p50_ms);
    assert!(patient.jobs.iter().all(|job| !job.is_displaced()));
}

#[test]
fn a_quota_below_a_minimum_leaves_no_end_and_a_strange_tenant_is_told() {
    let snapshot = full();
    let quota = |tenant: &str| Change::Quota {
        tenant: tenant.to_owned(),
        gpu_quota: Some(2),
    };
    let less = what_if(&snapshot, &[quota("team")], &policy(), &SETTINGS).expect("an answer");
    let waiting = &less.jobs[1..];
    assert!(
        waiting.iter().all(|job| job.after.finish.is_none()),
        "{less:?}"
    );
    let strange = what_if(&snapshot, &[quota("nobody")], &policy(), &SETTINGS);
    assert!(matches!(strange, Err(WhatIfError::NoSuchTenant { .. })));
}

/// A forecast looks ninety days ahead; a round for each five minutes of them would keep a core busy for seconds, for every question.
#[test]
fn who_can_never_start_does_not_keep_a_forecast_going() {
    let mut snapshot = cluster(1);
    let mut never = job(0, 0, 20_000);
    never.workers = Range { min: 5, max: 8 };
    let mut paused = job(1, 0, 20_000);
    paused.state = JobState::Paused;
    paused.intent = Intent::Pause;
    let runs = job(2, 0, 20_000);
    let (never_id, runs_id) = (never.id, runs.id);
    snapshot.jobs.extend([never, paused, runs]);
    let believed = believed(&snapshot, &policy());
    let mut ahead = Ahead::new(snapshot, believed, Vec::new(), Pace::LIVE);
    ahead.run(&policy()).expect("the core keeps its own rules");
    let ends = |id| {
        ahead
            .fates()
            .find(|fate| fate.job == id)
            .and_then(|fate| fate.finish_ms)
    };
    assert!(ends(runs_id).is_some());
    assert_eq!(ends(never_id), None);
    assert!(
        ahead.snapshot().round < 200,
        "{} rounds",
        ahead.snapshot().round
    );
}

/// Two jobs of a year that take turns on one GPU: each turn is decided, and for ninety days there is always a next one.
#[test]
fn who_takes_turns_for_months_does_not_keep_a_forecast_going() {
    let policy = in_turns();
    let mut snapshot = cluster(1);
    for number in 0..2 {
        let mut endless = job(number, 0, u64::MAX / 1_000_000);
        endless.workers = Range { min: 4, max: 4 };
        endless.suspends = true;
        snapshot.jobs.push(endless);
    }
    let believed = believed(&snapshot, &policy);
    let mut ahead = Ahead::new(snapshot, believed, Vec::new(), Pace::LIVE);
    ahead.run(&policy).expect("the core keeps its own rules");
    let rounds = ahead.snapshot().round;
    assert!(rounds < 4_000, "{rounds} rounds");
    let mut trained = ahead.snapshot().jobs.iter().map(|job| job.trained_s);
    let (one, other) = (
        trained.next().expect("endless"),
        trained.next().expect("endless"),
    );
    assert!((one / other).ln().abs() < 0.1, "{one} and {other} s");
}

/// Rounds that nothing causes come every five minutes in what is foreseen; a slice is over after one.
#[test]
fn who_waits_for_a_slice_is_told_that_it_comes_within_a_quantum() {
    let policy = in_turns();
    let mut snapshot = cluster(1);
    for number in 0..2 {
        let mut long = job(number, 0, 200_000);
        long.workers = Range { min: 4, max: 4 };
        long.suspends = true;
        snapshot.jobs.push(long);
    }
    let (now_ms, newcomer) = (snapshot.now_ms, snapshot.jobs[1].id);
    let believed = believed(&snapshot, &policy);
    let mut ahead = Ahead::new(snapshot, believed, Vec::new(), Pace::LIVE);
    ahead.run(&policy).expect("the core keeps its own rules");
    let fate = ahead.fates().find(|fate| fate.job == newcomer);
    let start_ms = fate.and_then(|fate| fate.start_ms).expect("it starts");
    assert!(
        start_ms - now_ms <= 70_000,
        "after {} ms",
        start_ms - now_ms
    );
}
