//! Questions about a cluster that is full: what nodes, a quota or a job would change.

mod live;

use live::{cluster, job};
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Policy, Slicing};
use muster_core::snapshot::{Job, Lasts, Restarts, Snapshot};
use muster_model::forecast::Unforeseen;
use muster_model::job::{Intent, JobState};
use muster_model::spec::{Ends, JobSpec, Range};
use muster_model::task::TaskState;
use muster_sim::Cancel;
use muster_sim::forecast::{
    Ahead, Calibration, Earlier, ForecastError, Interval, Pace, Settings, believed, ran,
};
use muster_sim::what_if::{Change, Past, WhatIfError, what_if};

const SETTINGS: Settings = Settings {
    runs: 15,
    seed: 1,
    ends: Calibration::none(),
    starts: Calibration::none(),
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
    let same =
        what_if(&snapshot, &[], &policy(), &SETTINGS, &Cancel::default()).expect("an answer");
    assert!(
        same.jobs.iter().all(|job| job.moved_ms() == Some(0)),
        "{same:?}"
    );
    let nodes = Change::AddNodes { nodes: 3, gpus: 4 };
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
        past: Past::default(),
    };
    let urgent = what_if(
        &snapshot,
        &[add(&spec)],
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

    spec.priority = -50;
    let patient = what_if(
        &snapshot,
        &[add(&spec)],
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
fn a_quota_below_a_minimum_leaves_no_end_and_a_strange_tenant_is_told() {
    let snapshot = full();
    let quota = |tenant: &str| Change::Quota {
        tenant: tenant.to_owned(),
        gpu_quota: Some(2),
    };
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

/// A program on all four GPUs that has done 300 of 1,000 steps at ten a second, and of which nobody has seen a checkpoint.
fn program(steps: Option<u64>) -> (Snapshot, Job) {
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
            muster_sim::forecast::Curve::through(vec![muster_core::snapshot::SpeedPoint {
                workers: 4,
                ps_shards: 0,
                steps_per_s: 10.0,
                samples: 1,
            }]);
    }
    let mut ahead = Ahead::new(snapshot, believed, Vec::new(), Pace::LIVE);
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

/// The same beside one that is urgent and takes six seconds.
fn urgent() -> Change {
    let spec = serde_json::from_value(serde_json::json!({
        "version": "muster/v1", "name": "urgent", "priority": 50,
        "command": { "argv": ["true"], "steps": 60 },
    }));
    Change::AddJob {
        tenant: "team".to_owned(),
        spec: Box::new(spec.expect("a document")),
        begins: 0,
        past: Past::default(),
    }
}

/// In seconds from now, the middle.
fn ends_s(snapshot: &Snapshot, changes: &[Change], name: &str) -> f64 {
    let told =
        what_if(snapshot, changes, &policy(), &SETTINGS, &Cancel::default()).expect("an answer");
    let job = told.jobs.iter().find(|job| job.name == name);
    let finish = job.and_then(|job| job.after.finish).expect("it ends");
    (finish.p50_ms - told.now_ms) as f64 / 1000.0
}

#[test]
fn a_program_without_checkpoints_that_makes_way_begins_anew_and_ends_later() {
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
    // Thirty seconds are lost, and six and the way there and back are waited.
    let later_ms = shifted.moved_ms().expect("an end");
    assert!(later_ms >= 36_000, "{later_ms} ms later");
    let alone = ends_s(&snapshot, &[], &program.name);
    assert!((65.0..80.0).contains(&alone), "{alone} s");
}

#[test]
fn a_program_that_went_on_from_a_checkpoint_before_loses_what_it_lost_then() {
    let (mut snapshot, program) = program(Some(1_000));
    let later_s = |snapshot: &Snapshot| {
        ends_s(snapshot, &[urgent()], &program.name) - ends_s(snapshot, &[], &program.name)
    };
    let all_s = later_s(&snapshot);
    snapshot.jobs[0].restarts = Some(Restarts {
        starts: 2,
        resumed: 1,
        lost_steps: 100.0,
        ..Restarts::default()
    });
    let part_s = later_s(&snapshot);
    assert!(
        (15.0..25.0).contains(&(all_s - part_s)),
        "{all_s} and {part_s}"
    );
}

/// It was told to stop a moment ago: that is no end.
#[test]
fn a_program_that_is_being_stopped_is_not_done() {
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

/// The program on all GPUs, of which nobody knows how long it is, and who waits for it: no number is made up for either.
#[test]
fn a_program_of_unknown_length_has_no_end_and_neither_has_who_waits_for_it() {
    let (mut snapshot, program) = program(None);
    let mut patient = job(1, snapshot.now_ms, 2_000);
    patient.priority = -1;
    patient.suspends = false;
    snapshot.jobs.push(patient);
    let told =
        what_if(&snapshot, &[], &policy(), &SETTINGS, &Cancel::default()).expect("an answer");
    let of = |name: &str| {
        let job = told.jobs.iter().find(|job| job.name == name);
        job.map(|job| job.after.clone()).expect("it is there")
    };
    let open = of(&program.name);
    assert_eq!((open.finish, open.gpu_s), (None, 0.0));
    assert_eq!(open.unforeseen, Some(Unforeseen::NoLength));
    let waits = of("job-1");
    assert_eq!((waits.start, waits.finish), (None, None));
    assert_eq!(waits.unforeseen, Some(Unforeseen::BehindOthers));
}

/// With turns it starts all the same, and ends the later the longer the other one lasts.
#[test]
fn who_takes_turns_with_a_program_of_unknown_length_is_told_its_start_and_a_wide_end() {
    let (mut snapshot, _) = program(None);
    snapshot.jobs[0].suspends = true;
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
    let from_now_s = |at_ms: i64| (at_ms - told.now_ms) as f64 / 1000.0;
    let start = waits.start.expect("its turn comes");
    assert!(from_now_s(start.p90_ms) < 90.0, "{start:?}");
    let finish = waits.finish.expect("an end");
    let (early, late) = (from_now_s(finish.p10_ms), from_now_s(finish.p90_ms));
    assert!(early < 800.0 && late > 1_000.0, "{early} to {late} s");
    assert_eq!(waits.unforeseen, None);
}

#[test]
fn what_programs_like_it_took_tells_when_one_ends_that_names_no_length() {
    let (mut snapshot, program) = program(None);
    let lasts = |done_s: f64| {
        Some(Lasts {
            middle_s: 100.0,
            spread: 0.1,
            done_s,
        })
    };
    snapshot.jobs[0].lasts = lasts(30.0);
    let told =
        what_if(&snapshot, &[], &policy(), &SETTINGS, &Cancel::default()).expect("an answer");
    let finish = told.jobs[0].after.finish.expect("an end");
    let from_now_s = |at_ms: i64| (at_ms - told.now_ms) as f64 / 1000.0;
    let (early, middle, late) = (
        from_now_s(finish.p10_ms),
        from_now_s(finish.p50_ms),
        from_now_s(finish.p90_ms),
    );
    assert!((60.0..85.0).contains(&middle), "{middle} s");
    assert!(
        early < middle - 5.0 && late > middle + 5.0,
        "{early} to {late} s"
    );
    // Told to make way, it takes all of that again.
    let later_s = ends_s(&snapshot, &[urgent()], &program.name) - middle;
    assert!((36.0..60.0).contains(&later_s), "{later_s} s later");

    snapshot.jobs[0].lasts = lasts(400.0);
    let told =
        what_if(&snapshot, &[], &policy(), &SETTINGS, &Cancel::default()).expect("an answer");
    let outlived = &told.jobs[0].after;
    assert_eq!(outlived.finish, None);
    assert_eq!(outlived.unforeseen, Some(Unforeseen::Outlived));
}

/// A program with a limit of ten minutes, as somebody would submit it beside nobody.
fn limited() -> Change {
    let spec = serde_json::from_value(serde_json::json!({
        "version": "muster/v1", "name": "limited", "command": { "argv": ["train"] }, "stop": { "wall_minutes": 10 },
    }));
    Change::AddJob {
        tenant: "team".to_owned(),
        spec: Box::new(spec.expect("a document")),
        begins: 0,
        past: Past::default(),
    }
}

#[test]
fn the_limit_of_a_program_is_not_how_long_it_is() {
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

/// Programs like it took an hour, and this one has ten minutes.
#[test]
fn a_program_ends_at_its_limit_at_the_latest() {
    let mut change = limited();
    if let Change::AddJob { past, .. } = &mut change {
        past.lasts = Some(Lasts {
            middle_s: 3_600.0,
            spread: 0.1,
            done_s: 0.0,
        });
    }
    let ends_s = ends_s(&cluster(1), &[change], "limited");
    assert!((600.0..660.0).contains(&ends_s), "after {ends_s} s");
}

/// Of the program on all GPUs nobody knows how long it is, but it is told to stop ten hours after its start.
#[test]
fn who_waits_for_a_program_of_unknown_length_starts_at_its_limit_at_the_latest() {
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

/// Neither tells how long it is. The second starts once the first ends, so it is not true that it never does.
#[test]
fn of_who_waits_for_a_program_of_unknown_length_it_is_not_told_that_it_never_starts() {
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
    let of = |name: &str| {
        let job = told.jobs.iter().find(|job| job.name == name);
        job.map(|job| (job.after.start, job.after.unforeseen))
            .expect("it is there")
    };
    assert_eq!(of(&first.name), (None, Some(Unforeseen::NoLength)));
    assert_eq!(of("second"), (None, Some(Unforeseen::BehindOthers)));
    assert_eq!(of("job-2"), (None, None));
}

/// A job of the built-in engine on all four GPUs, for an hour or so.
fn whole(name: &str) -> Change {
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
    Change::AddJob {
        tenant: "team".to_owned(),
        spec: Box::new(spec.expect("a document")),
        begins: 0,
        past: Past::default(),
    }
}

/// When the first of two jobs ends and the second one starts, in a cluster whose tasks are pods or are none.
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
    let starts = |at: usize| told.jobs[at].after.start.expect("it starts").p50_ms;
    let first = usize::from(starts(0) > starts(1));
    let ends_ms = told.jobs[first].after.finish.expect("it ends").p50_ms;
    (ends_ms, starts(1 - first))
}

/// A pod holds its GPUs for as long as it is there.
#[test]
fn whom_a_forecast_places_in_pods_it_has_take_no_turns() {
    let (ends_ms, starts_ms) = one_after_the_other(false);
    assert!(starts_ms < ends_ms, "they take turns");
    let (ends_ms, starts_ms) = one_after_the_other(true);
    assert!(starts_ms >= ends_ms, "{starts_ms} before {ends_ms}");
}

#[test]
fn a_cancelled_run_ends_where_it_stands_and_gives_no_forecast() {
    let cancel = Cancel::default();
    cancel.cancel();
    let snapshot = full();
    let told = what_if(&snapshot, &[], &policy(), &SETTINGS, &cancel);
    assert!(matches!(
        told,
        Err(WhatIfError::Run(ForecastError::Cancelled))
    ));
    let (now_ms, believed) = (snapshot.now_ms, believed(&snapshot, &policy()));
    let ahead = Ahead::new(snapshot, believed, Vec::new(), Pace::LIVE);
    let mut ahead = ahead.cancelled_by(&cancel);
    ahead.run(&policy()).expect("the core keeps its own rules");
    assert_eq!(ahead.snapshot().now_ms, now_ms);
}

/// Of an engine job hardly anything is known before its first run, and after it when it ends.
#[test]
fn one_earlier_job_of_the_document_tells_when_the_next_ends() {
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
    let spec: Box<JobSpec> = Box::new(spec.expect("a document"));
    let finish = |past: Past| {
        let change = Change::AddJob {
            tenant: "team".to_owned(),
            spec: spec.clone(),
            begins: 0,
            past,
        };
        let snapshot = cluster(1);
        let cancel = Cancel::default();
        let told = what_if(&snapshot, &[change], &policy(), &SETTINGS, &cancel);
        told.expect("an answer").jobs[0]
            .after
            .finish
            .expect("an end")
    };
    let factor = |found: Interval| found.p90_ms as f64 / found.p10_ms as f64;
    let blind = finish(Past::default());
    assert!(factor(blind) > 10.0, "{blind:?}");
    let earlier = Earlier {
        took_s: 20.0,
        steps: 2_000.0,
        size: Some((1, 1)),
    };
    let known = finish(Past {
        lasts: None,
        ran: ran(&[earlier], (1, 1)),
    });
    assert!((18_000..33_000).contains(&known.p50_ms), "{known:?}");
    assert!(factor(known) < 10.0, "{known:?}");
}
