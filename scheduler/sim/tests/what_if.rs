//! Planning questions on a full cluster: the effect of nodes, a quota or a job.

use crate::live::{cluster, job};
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Policy, Slicing};
use muster_core::snapshot::{ClusterSnapshot, Restarts, SnapshotJob, TrainingLength};
use muster_model::forecast::Unforeseen;
use muster_model::job::{Intent, JobState};
use muster_model::spec::{Ends, JobSpec, Range};
use muster_model::task::TaskState;
use muster_sim::Cancel;
use muster_sim::forecast::{
    Calibration, ClusterDelays, EarlierRun, ForecastInterval, ForecastRun, ForecastRunError,
    ForecastSettings, JobForecast, believed, ran,
};
use muster_sim::what_if::{DocumentHistory, WhatIfChange, WhatIfComparison, WhatIfError, what_if};

const SETTINGS: ForecastSettings = ForecastSettings {
    runs: 15,
    seed: 1,
    ends: Calibration::none(),
    starts: Calibration::none(),
    pace: ClusterDelays::LIVE,
};

fn policy() -> Policy {
    Policy::named(PolicyName::Optimus)
}

/// The same policy with slices of a minute.
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

/// One node of four GPUs and four jobs that need all of it; three of them wait.
fn full() -> ClusterSnapshot {
    let mut snapshot = cluster(1);
    for number in 0..4 {
        let mut job = job(number, 0, 20_000);
        job.workers = Range { min: 4, max: 4 };
        snapshot.jobs.push(job);
    }
    let believed = believed(&snapshot, &policy());
    let mut ahead = ForecastRun::new(snapshot, believed, Vec::new(), ClusterDelays::LIVE);
    ahead
        .run_until(45_000, &policy())
        .expect("the core keeps its own rules");
    ahead.snapshot().clone()
}

#[test]
fn added_nodes_shorten_waits_and_no_change_has_no_effect() {
    let snapshot = full();
    let same =
        what_if(&snapshot, &[], &policy(), &SETTINGS, &Cancel::default()).expect("an answer");
    assert!(
        same.jobs.iter().all(|job| job.moved_ms() == Some(0)),
        "{same:?}"
    );
    let nodes = WhatIfChange::AddNodes { nodes: 3, gpus: 4 };
    let more = what_if(
        &snapshot,
        &[nodes],
        &policy(),
        &SETTINGS,
        &Cancel::default(),
    )
    .expect("an answer");
    let team = &more.tenants[0];
    let (wait, jct) = (
        team.wait_s.expect("three wait"),
        team.jct_s.expect("all end"),
    );
    assert!(wait.after * 5.0 < wait.before, "{wait:?}");
    assert!(jct.after < jct.before, "{jct:?}");
    assert!(more.jobs.iter().all(|job| job.moved_ms() <= Some(0)));
}

fn add(spec: JobSpec) -> WhatIfChange {
    WhatIfChange::AddJob {
        tenant: "team".to_owned(),
        spec: Box::new(spec),
        begins: 0,
        past: DocumentHistory::default(),
    }
}

#[test]
fn added_job_gets_start_end_cost_and_displaced_jobs() {
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
    let urgent = what_if(
        &snapshot,
        &[add(spec.clone())],
        &policy(),
        &SETTINGS,
        &Cancel::default(),
    )
    .expect("an answer");
    let added = urgent.jobs.last().expect("the added one");
    assert!(added.before.is_none() && added.name == "urgent");
    let (start, finish) = (
        added.after.start.expect("starts"),
        added.after.finish.expect("ends"),
    );
    assert!(start.p50_ms < finish.p10_ms && added.after.gpu_s > 0.0);
    let displaced = urgent.jobs.iter().filter(|job| job.is_displaced());
    assert_eq!(displaced.count(), 1, "the running one makes way");

    spec.priority = Some(-50);
    let patient = what_if(
        &snapshot,
        &[add(spec)],
        &policy(),
        &SETTINGS,
        &Cancel::default(),
    )
    .expect("an answer");
    let added = patient.jobs.last().expect("the added one");
    assert!(added.after.start.expect("starts").p50_ms > start.p50_ms);
    assert!(patient.jobs.iter().all(|job| !job.is_displaced()));
}

#[test]
fn added_job_without_gpus_starts_at_once_and_costs_no_gpus() {
    let spec: JobSpec = serde_json::from_value(serde_json::json!({
        "version": "muster/v1", "name": "prepares",
        "command": { "argv": ["true"], "steps": 5000 },
        "resources": { "worker": { "gpus": 0 } },
    }))
    .expect("a document");
    let snapshot = full();
    let told = what_if(
        &snapshot,
        &[add(spec)],
        &policy(),
        &SETTINGS,
        &Cancel::default(),
    )
    .expect("an answer");
    let added = &told.jobs.last().expect("the added one").after;
    let start = added.start.expect("starts");
    assert!(from_now_s(&told, start.p90_ms) < 10.0, "{start:?}");
    assert!(added.finish.is_some());
    assert!(added.gpu_s.abs() < f64::EPSILON, "{}", added.gpu_s);
    let others = &told.jobs[..told.jobs.len() - 1];
    let are_still = others.iter().all(|job| job.moved_ms() == Some(0));
    assert!(are_still, "{others:?}");
}

fn quota(tenant: &str) -> WhatIfChange {
    WhatIfChange::Quota {
        tenant: tenant.to_owned(),
        gpu_quota: Some(2),
    }
}

#[test]
fn quota_below_minimum_gives_no_end_unknown_tenant_is_error() {
    let snapshot = full();
    let less = what_if(
        &snapshot,
        &[quota("team")],
        &policy(),
        &SETTINGS,
        &Cancel::default(),
    )
    .expect("an answer");
    let waiting = &less.jobs[1..];
    assert!(
        waiting.iter().all(|job| job.after.finish.is_none()),
        "{less:?}"
    );
    let strange = what_if(
        &snapshot,
        &[quota("nobody")],
        &policy(),
        &SETTINGS,
        &Cancel::default(),
    );
    assert!(matches!(strange, Err(WhatIfError::NoSuchTenant { .. })));
}

/// The horizon is ninety days. A round for every five minutes of it would need seconds of CPU time
/// per question.
#[test]
fn forecast_ends_early_with_job_that_never_fits() {
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
    let mut ahead = ForecastRun::new(snapshot, believed, Vec::new(), ClusterDelays::LIVE);
    ahead.run(&policy()).expect("the core keeps its own rules");
    let [never_ms, runs_ms] = [never_id, runs_id].map(|id| {
        let result = ahead.results().find(|result| result.job == id);
        result.and_then(|result| result.finish_ms)
    });
    assert!(runs_ms.is_some());
    assert_eq!(never_ms, None);
    assert!(
        ahead.snapshot().round < 200,
        "{} rounds",
        ahead.snapshot().round
    );
}

/// Two jobs of a year that share one GPU by time slicing. Each slice is a decision, and the horizon
/// has a next one for ninety days.
#[test]
fn forecast_of_months_of_time_slices_has_few_rounds() {
    let policy = in_turns();
    let mut snapshot = cluster(1);
    for number in 0..2 {
        let mut endless = job(number, 0, u64::MAX / 1_000_000);
        endless.workers = Range { min: 4, max: 4 };
        endless.suspends = true;
        snapshot.jobs.push(endless);
    }
    let believed = believed(&snapshot, &policy);
    let mut ahead = ForecastRun::new(snapshot, believed, Vec::new(), ClusterDelays::LIVE);
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

/// Simulated rounds without an event happen every five minutes; a slice ends after one.
#[test]
fn waiting_job_is_forecast_to_start_within_a_quantum() {
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
    let mut ahead = ForecastRun::new(snapshot, believed, Vec::new(), ClusterDelays::LIVE);
    ahead.run(&policy).expect("the core keeps its own rules");
    let result = ahead.results().find(|result| result.job == newcomer);
    let start_ms = result
        .and_then(|result| result.start_ms)
        .expect("it starts");
    assert!(
        start_ms - now_ms <= 70_000,
        "after {} ms",
        start_ms - now_ms
    );
}

/// Program on all four GPUs with 300 of 1,000 steps done at ten per second and no known checkpoint.
fn program(steps: Option<u64>) -> (ClusterSnapshot, SnapshotJob) {
    let mut snapshot = cluster(1);
    let mut program = job(0, 0, 1_000);
    program.command = Some(Ends::AllWorkers);
    program.workers = Range { min: 4, max: 4 };
    program.ps_shards = Range::NONE;
    program.suspends = false;
    program.progress.max_steps = steps;
    program.progress.steps_per_epoch = 1;
    snapshot.jobs.push(program);
    let mut believed = believed(&snapshot, &policy());
    for truth in believed.values_mut() {
        truth.steps_left = 1_000.0;
        truth.is_open = false;
        truth.curve =
            muster_sim::forecast::SpeedCurve::through(vec![muster_core::snapshot::SpeedPoint {
                workers: 4,
                ps_shards: 0,
                steps_per_s: 10.0,
                samples: 1,
            }]);
    }
    let mut ahead = ForecastRun::new(snapshot, believed, Vec::new(), ClusterDelays::LIVE);
    ahead
        .run_until(33_000, &policy())
        .expect("the core keeps its own rules");
    let mut snapshot = ahead.snapshot().clone();
    let program = &mut snapshot.jobs[0];
    assert_eq!(program.progress.step, 300);
    program.speeds[0].samples = 300;
    let program = program.clone();
    (snapshot, program)
}

/// Same cluster with an urgent program of six seconds.
fn urgent() -> WhatIfChange {
    let spec = serde_json::from_value(serde_json::json!({
        "version": "muster/v1", "name": "urgent", "priority": 50,
        "command": { "argv": ["true"], "steps": 60 },
    }));
    add(spec.expect("a document"))
}

/// Median of the end, in seconds from now.
fn ends_s(snapshot: &ClusterSnapshot, changes: &[WhatIfChange], name: &str) -> f64 {
    let told =
        what_if(snapshot, changes, &policy(), &SETTINGS, &Cancel::default()).expect("an answer");
    let job = told.jobs.iter().find(|job| job.name == name);
    let finish = job.and_then(|job| job.after.finish).expect("it ends");
    from_now_s(&told, finish.p50_ms)
}

#[test]
fn preempted_program_without_checkpoint_restarts_from_zero() {
    let (snapshot, program) = program(Some(1_000));
    let told = what_if(
        &snapshot,
        &[urgent()],
        &policy(),
        &SETTINGS,
        &Cancel::default(),
    )
    .expect("an answer");
    let shifted = told.jobs.iter().find(|job| job.name == program.name);
    let shifted = shifted.expect("it is there");
    assert!(shifted.is_displaced(), "{shifted:?}");
    // Thirty seconds are lost; the wait is six seconds plus the stop and the start.
    let later_ms = shifted.moved_ms().expect("an end");
    assert!(later_ms >= 36_000, "{later_ms} ms later");
    let alone = ends_s(&snapshot, &[], &program.name);
    assert!((65.0..80.0).contains(&alone), "{alone} s");
}

/// Seconds by which an urgent program moves the end of a job.
fn later_s(snapshot: &ClusterSnapshot, name: &str) -> f64 {
    ends_s(snapshot, &[urgent()], name) - ends_s(snapshot, &[], name)
}

#[test]
fn program_with_earlier_restore_loses_same_steps_again() {
    let (mut snapshot, program) = program(Some(1_000));
    let all_s = later_s(&snapshot, &program.name);
    snapshot.jobs[0].restarts = Some(Restarts {
        starts: 2,
        resumed: 1,
        lost_steps: 100.0,
        ..Restarts::default()
    });
    let part_s = later_s(&snapshot, &program.name);
    assert!(
        (15.0..25.0).contains(&(all_s - part_s)),
        "{all_s} and {part_s}"
    );
}

/// A stop order a moment ago is not an end.
#[test]
fn stopping_program_is_not_forecast_as_ended() {
    let (mut snapshot, program) = program(Some(1_000));
    let stopped = &mut snapshot.jobs[0];
    stopped.state = JobState::Stopping {
        then: muster_model::job::AfterStop::Requeue {
            cause: muster_model::job::RequeueCause::Preempted,
        },
    };
    for task in &mut stopped.tasks {
        task.state = TaskState::Stopping;
    }
    stopped.progress.step = 0;
    let ends_s = ends_s(&snapshot, &[], &program.name);
    assert!(ends_s >= 100.0, "after {ends_s} s");
}

/// Forecast of a job after the changes.
fn after<'c>(told: &'c WhatIfComparison, name: &str) -> &'c JobForecast {
    let job = told.jobs.iter().find(|job| job.name == name);
    &job.expect("it is there").after
}

/// The program on all GPUs has an unknown length, and another job waits for it. Neither gets an
/// end.
#[test]
fn unknown_length_gives_no_end_to_program_and_waiting_job() {
    let (mut snapshot, program) = program(None);
    let mut patient = job(1, snapshot.now_ms, 2_000);
    patient.priority = -1;
    patient.suspends = false;
    snapshot.jobs.push(patient);
    let told =
        what_if(&snapshot, &[], &policy(), &SETTINGS, &Cancel::default()).expect("an answer");
    let open = after(&told, &program.name);
    assert_eq!((open.finish, open.gpu_s), (None, 0.0));
    assert_eq!(open.unforeseen, Some(Unforeseen::NoLength));
    let waits = after(&told, "job-1");
    assert_eq!((waits.start, waits.finish), (None, None));
    assert_eq!(waits.unforeseen, Some(Unforeseen::BehindOthers));
}

fn from_now_s(told: &WhatIfComparison, at_ms: i64) -> f64 {
    (at_ms - told.now_ms) as f64 / 1000.0
}

/// With time slicing the waiting job starts, and its end depends on the length of the other one.
#[test]
fn slicing_beside_unknown_length_gives_start_and_wide_end() {
    let (mut snapshot, _) = program(None);
    snapshot.jobs[0].suspends = true;
    snapshot.nodes[0].driver_suspend = true;
    let mut patient = job(1, snapshot.now_ms, 6_000);
    patient.workers = Range { min: 4, max: 4 };
    patient.speeds = vec![muster_core::snapshot::SpeedPoint {
        workers: 4,
        ps_shards: 1,
        steps_per_s: 10.0,
        samples: 1_000,
    }];
    snapshot.jobs.push(patient);
    let told =
        what_if(&snapshot, &[], &in_turns(), &SETTINGS, &Cancel::default()).expect("an answer");
    let waits = &told.jobs[1].after;
    let start = waits.start.expect("its turn comes");
    assert!(from_now_s(&told, start.p90_ms) < 90.0, "{start:?}");
    let finish = waits.finish.expect("an end");
    let (early, late) = (
        from_now_s(&told, finish.p10_ms),
        from_now_s(&told, finish.p90_ms),
    );
    assert!(early < 800.0 && late > 1_000.0, "{early} to {late} s");
    assert_eq!(waits.unforeseen, None);
}

#[test]
fn earlier_durations_give_end_of_program_without_length() {
    let (mut snapshot, program) = program(None);
    let length = TrainingLength {
        middle_s: 100.0,
        spread: 0.1,
        done_s: 30.0,
    };
    snapshot.jobs[0].lasts = Some(length);
    let told =
        what_if(&snapshot, &[], &policy(), &SETTINGS, &Cancel::default()).expect("an answer");
    let finish = told.jobs[0].after.finish.expect("an end");
    let (early, middle, late) = (
        from_now_s(&told, finish.p10_ms),
        from_now_s(&told, finish.p50_ms),
        from_now_s(&told, finish.p90_ms),
    );
    assert!((60.0..85.0).contains(&middle), "{middle} s");
    assert!(
        early < middle - 5.0 && late > middle + 5.0,
        "{early} to {late} s"
    );
    // If it is preempted, it repeats all of that.
    let later_s = ends_s(&snapshot, &[urgent()], &program.name) - middle;
    assert!((36.0..60.0).contains(&later_s), "{later_s} s later");

    snapshot.jobs[0].lasts = Some(TrainingLength {
        done_s: 400.0,
        ..length
    });
    let told =
        what_if(&snapshot, &[], &policy(), &SETTINGS, &Cancel::default()).expect("an answer");
    let outlived = &told.jobs[0].after;
    assert_eq!(outlived.finish, None);
    assert_eq!(outlived.unforeseen, Some(Unforeseen::Outlived));
}

/// Program with a limit of ten minutes on an otherwise empty cluster.
fn limited() -> WhatIfChange {
    let spec = serde_json::from_value(serde_json::json!({
        "version": "muster/v1", "name": "limited", "command": { "argv": ["train"] }, "stop": { "wall_minutes": 10 },
    }));
    add(spec.expect("a document"))
}

#[test]
fn time_limit_is_not_used_as_length() {
    let told = what_if(
        &cluster(1),
        &[limited()],
        &policy(),
        &SETTINGS,
        &Cancel::default(),
    )
    .expect("an answer");
    let added = &told.jobs[0].after;
    assert!(added.start.is_some());
    assert_eq!(
        (added.finish, added.unforeseen),
        (None, Some(Unforeseen::NoLength))
    );
}

/// Similar programs took an hour; this one has a limit of ten minutes.
#[test]
fn forecast_end_is_at_most_time_limit() {
    let mut change = limited();
    if let WhatIfChange::AddJob { past, .. } = &mut change {
        past.lasts = Some(TrainingLength {
            middle_s: 3_600.0,
            spread: 0.1,
            done_s: 0.0,
        });
    }
    let ends_s = ends_s(&cluster(1), &[change], "limited");
    assert!((600.0..660.0).contains(&ends_s), "after {ends_s} s");
}

/// The program on all GPUs has an unknown length and a limit of ten hours.
#[test]
fn job_waiting_for_unknown_length_starts_by_time_limit() {
    let (mut snapshot, _) = program(None);
    snapshot.jobs[0].limit_s = Some(36_000.0);
    let mut patient = job(1, snapshot.now_ms, 2_000);
    patient.priority = -1;
    patient.suspends = false;
    snapshot.jobs.push(patient);
    let told =
        what_if(&snapshot, &[], &policy(), &SETTINGS, &Cancel::default()).expect("an answer");
    let waits = &told.jobs[1].after;
    let start = waits.start.expect("it starts in every run");
    let last_s = (start.p90_ms - told.now_ms) as f64 / 1000.0;
    assert!((30_000.0..60_000.0).contains(&last_s), "{last_s} s");
    assert!(waits.finish.is_some() && waits.unforeseen.is_none());
}

/// Both lengths are unknown. The second job starts when the first one ends, so "never" would be
/// wrong.
#[test]
fn job_behind_unknown_length_is_not_forecast_as_never() {
    let (mut snapshot, first) = program(None);
    let mut second = job(1, snapshot.now_ms, 1_000);
    second.name = "second".to_owned();
    second.priority = -1;
    second.command = Some(Ends::AllWorkers);
    second.ps_shards = Range::NONE;
    second.suspends = false;
    second.progress.max_steps = None;
    second.progress.steps_per_epoch = 1;
    snapshot.jobs.push(second);
    let mut never = job(2, snapshot.now_ms, 1_000);
    never.workers = Range { min: 5, max: 5 };
    snapshot.jobs.push(never);
    let told =
        what_if(&snapshot, &[], &policy(), &SETTINGS, &Cancel::default()).expect("an answer");
    for (name, unforeseen) in [
        (&*first.name, Some(Unforeseen::NoLength)),
        ("second", Some(Unforeseen::BehindOthers)),
        ("job-2", None),
    ] {
        let after = after(&told, name);
        assert_eq!(
            (after.start, after.unforeseen),
            (None, unforeseen),
            "{name}"
        );
    }
}

/// Job of the built-in engine on all four GPUs, of about an hour.
fn whole(name: &str) -> WhatIfChange {
    let spec = serde_json::from_value(serde_json::json!({
        "version": "muster/v1", "name": name,
        "engine": {
            "model": { "kind": "mlp", "hidden": [8] },
            "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "sgd", "learning_rate": 0.1 },
            "batch": 64,
        },
        "scale": { "workers": { "min": 4, "max": 4 } },
        "stop": { "steps": 100_000 },
    }));
    add(spec.expect("a document"))
}

/// End of the first and start of the second of two jobs, with tasks as pods or as processes.
fn one_after_the_other(pods: bool) -> (i64, i64) {
    let mut snapshot = cluster(1);
    snapshot.nodes[0].pods = Some(pods);
    let told = what_if(
        &snapshot,
        &[whole("a"), whole("b")],
        &in_turns(),
        &SETTINGS,
        &Cancel::default(),
    );
    let told = told.expect("an answer");
    let starts_ms = [0, 1].map(|at| told.jobs[at].after.start.expect("it starts").p50_ms);
    let first = usize::from(starts_ms[0] > starts_ms[1]);
    let ends_ms = told.jobs[first].after.finish.expect("it ends").p50_ms;
    (ends_ms, starts_ms[1 - first])
}

/// A pod holds its GPUs as long as it exists.
#[test]
fn forecast_does_not_slice_jobs_in_pods() {
    let (ends_ms, starts_ms) = one_after_the_other(false);
    assert!(starts_ms < ends_ms, "they take turns");
    let (ends_ms, starts_ms) = one_after_the_other(true);
    assert!(starts_ms >= ends_ms, "{starts_ms} before {ends_ms}");
}

#[test]
fn cancelled_run_gives_no_forecast() {
    let cancel = Cancel::default();
    cancel.cancel();
    let snapshot = full();
    let told = what_if(&snapshot, &[], &policy(), &SETTINGS, &cancel);
    assert!(matches!(
        told,
        Err(WhatIfError::Run(ForecastRunError::Cancelled))
    ));
    let (now_ms, believed) = (snapshot.now_ms, believed(&snapshot, &policy()));
    let ahead = ForecastRun::new(snapshot, believed, Vec::new(), ClusterDelays::LIVE);
    let mut ahead = ahead.cancelled_by(&cancel);
    ahead.run(&policy()).expect("the core keeps its own rules");
    assert_eq!(ahead.snapshot().now_ms, now_ms);
}

/// End of a job with this history on an empty cluster.
fn finish(spec: &JobSpec, past: DocumentHistory) -> ForecastInterval {
    let change = WhatIfChange::AddJob {
        tenant: "team".to_owned(),
        spec: Box::new(spec.clone()),
        begins: 0,
        past,
    };
    let snapshot = cluster(1);
    let cancel = Cancel::default();
    let told = what_if(&snapshot, &[change], &policy(), &SETTINGS, &cancel);
    let after = &told.expect("an answer").jobs[0].after;
    after.finish.expect("an end")
}

fn factor(found: ForecastInterval) -> f64 {
    found.p90_ms as f64 / found.p10_ms as f64
}

/// An engine job has almost no evidence before its first run, and after it a known end.
#[test]
fn one_earlier_job_gives_end_of_next() {
    let spec = serde_json::from_value(serde_json::json!({
        "version": "muster/v1", "name": "train",
        "engine": {
            "model": { "kind": "mlp", "hidden": [64] },
            "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "sgd", "learning_rate": 0.1 },
            "batch": 128,
        },
        "stop": { "epochs": 10, "target": { "metric": "test_accuracy", "value": 0.88 } },
    }));
    let spec: JobSpec = spec.expect("a document");
    let blind = finish(&spec, DocumentHistory::default());
    assert!(factor(blind) > 10.0, "{blind:?}");
    let earlier = EarlierRun {
        took_s: 20.0,
        steps: 2_000.0,
        size: Some((1, 1)),
    };
    let past = DocumentHistory {
        lasts: None,
        ran: ran(&[earlier], (1, 1)),
    };
    let known = finish(&spec, past);
    assert!((18_000..33_000).contains(&known.p50_ms), "{known:?}");
    assert!(factor(known) < 10.0, "{known:?}");
}
