//! Idle programs: when a job is flagged, when it restarts, and when an interactive job ends.

use crate::scene::Scene;
use muster_core::Action;
use muster_model::idle::{GpuEvidence, IdleFinding, IdleReport, Idleness};
use muster_model::job::{AfterStop, Charge, JobPhase};
use muster_model::pace::Watch;
use muster_model::spec::Ends;
use muster_model::task::{Role, TaskState};
use muster_model::verdict::{Finding, Remedy};

const MINUTE_MS: i64 = 60_000;
const HANG_MS: u64 = 30 * 60_000;

/// Returns a program of `workers` workers that runs since two minutes.
fn program(workers: u32, change: impl FnOnce(&mut Watch)) -> Scene {
    let mut scene = Scene::cluster(3, 3);
    let job = scene.job("a").workers(workers, workers);
    job.0.command = Some(Ends::AllWorkers);
    job.0.ps_shards.min = 0;
    job.0.ps_shards.max = 0;
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Running);
    let mut watch = Watch {
        straggler_ms: 0,
        hang_ms: HANG_MS,
        verdicts: 0,
        suspects: Vec::new(),
        restarts_idle: false,
        idle_limit_ms: None,
        idle: None,
    };
    change(&mut watch);
    scene.find("a").watch = Some(watch);
    scene.later(2 * MINUTE_MS);
    scene
}

/// Reports that the rank is idle for a time.
fn rest(scene: &mut Scene, rank: u32, idle_ms: u64) {
    let report = IdleReport {
        idle_ms,
        output_ms: Some(idle_ms + 30_000),
        ..IdleReport::default()
    };
    let now_ms = scene.snapshot.now_ms;
    scene.task("a", Role::Worker { rank }).idle = Some(Idleness::of(&report, now_ms));
}

fn actions(scene: &mut Scene) -> Vec<Action> {
    let plan = scene.round();
    let again = scene.round();
    assert!(again.decisions.is_empty(), "the same facts: {again:#?}");
    plan.decisions.into_iter().map(|one| one.action).collect()
}

fn told(actions: &[Action]) -> Option<Option<IdleFinding>> {
    match actions {
        [] => None,
        [Action::Idle { idle }] => Some(*idle),
        other => panic!("{other:#?}"),
    }
}

#[test]
fn idle_program_of_one_worker_is_told_once_and_stays() {
    let mut scene = program(1, |_| {});
    scene.later(29 * MINUTE_MS - 1);
    rest(&mut scene, 0, HANG_MS - 1);
    assert_eq!(told(&actions(&mut scene)), None, "not yet");
    scene.later(1);
    assert_eq!(told(&actions(&mut scene)), None, "not reported");
    rest(&mut scene, 0, HANG_MS);
    let found = told(&actions(&mut scene)).expect("news").expect("idle");
    assert_eq!(found.for_ms, HANG_MS);
    assert_eq!(
        found.to_string(),
        "worker-0 is idle: no output for 30 min, no CPU use for 30 min"
    );
    scene.later(9 * HANG_MS as i64);
    rest(&mut scene, 0, 10 * HANG_MS);
    assert_eq!(told(&actions(&mut scene)), None, "it is known");
    assert_eq!(scene.phase("a"), JobPhase::Running);
    scene.task("a", Role::Worker { rank: 0 }).idle = None;
    assert_eq!(told(&actions(&mut scene)), Some(None), "active again");
    assert_eq!(told(&actions(&mut scene)), None);
}

#[test]
fn idleness_lasts_only_up_to_its_newest_report() {
    for limit_ms in [None, Some(HANG_MS)] {
        let mut scene = program(1, |watch| {
            watch.restarts_idle = true;
            watch.idle_limit_ms = limit_ms;
        });
        scene.later(28 * MINUTE_MS);
        rest(&mut scene, 0, HANG_MS - 60_000);
        scene.round();
        // The report of activity is lost.
        scene.later(2 * MINUTE_MS);
        assert_eq!(told(&actions(&mut scene)), None);
        scene.later(4 * MINUTE_MS);
        let flag = limit_ms.map(|_| None);
        assert_eq!(told(&actions(&mut scene)), flag, "the mark ends");
        assert_eq!(scene.phase("a"), JobPhase::Running);
    }
}

#[test]
fn program_with_one_active_rank_is_not_idle() {
    let mut scene = program(2, |watch| watch.restarts_idle = true);
    scene.later(100 * MINUTE_MS);
    rest(&mut scene, 0, 6_000_000);
    assert_eq!(told(&actions(&mut scene)), None);
    rest(&mut scene, 1, 60_000);
    scene.later(20 * MINUTE_MS);
    rest(&mut scene, 0, 7_200_000);
    rest(&mut scene, 1, 1_260_000);
    assert_eq!(told(&actions(&mut scene)), None, "since the last of them");
}

#[test]
fn time_that_not_all_ranks_report_does_not_count() {
    let mut scene = program(2, |watch| watch.restarts_idle = true);
    scene.later(40 * MINUTE_MS);
    rest(&mut scene, 0, HANG_MS);
    scene.later(4 * MINUTE_MS);
    // The idle times overlap for less than the limit.
    rest(&mut scene, 1, HANG_MS);
    assert_eq!(told(&actions(&mut scene)), None);
}

#[test]
fn unknown_use_of_gpus_ends_and_restarts_no_job() {
    for limit_ms in [None, Some(HANG_MS)] {
        let mut scene = program(1, |watch| {
            watch.restarts_idle = true;
            watch.idle_limit_ms = limit_ms;
        });
        scene.later(100 * MINUTE_MS);
        let idle_ms = 3 * HANG_MS;
        rest(&mut scene, 0, idle_ms);
        let rank_0 = scene.task("a", Role::Worker { rank: 0 });
        let idle = rank_0.idle.as_mut().expect("idle");
        idle.gpu = GpuEvidence::Unknown;
        let found = told(&actions(&mut scene)).expect("news").expect("idle");
        assert_eq!((found.for_ms, found.ends_after_ms), (idle_ms, None));
        assert!(found.consequence().contains("runs on"), "{found:?}");
        assert_eq!(scene.phase("a"), JobPhase::Running);
    }
}

#[test]
fn end_is_told_once_the_use_of_gpus_is_known() {
    let mut scene = program(1, |watch| watch.idle_limit_ms = Some(3_600_000));
    scene.later(47 * MINUTE_MS);
    for (gpu, ends_after_ms) in [
        (GpuEvidence::Unknown, Some(None)),
        (GpuEvidence::Unused, Some(Some(3_600_000))),
        (GpuEvidence::Unknown, None),
    ] {
        rest(&mut scene, 0, 48 * 60_000);
        let rank_0 = scene.task("a", Role::Worker { rank: 0 });
        rank_0.idle.as_mut().expect("idle").gpu = gpu;
        let found = told(&actions(&mut scene)).map(|found| found.expect("idle"));
        assert_eq!(found.map(|found| found.ends_after_ms), ends_after_ms);
    }
}

#[test]
fn idle_program_restarts_only_if_its_document_says_so() {
    let mut scene = program(1, |watch| watch.restarts_idle = true);
    scene.later(29 * MINUTE_MS);
    rest(&mut scene, 0, HANG_MS);
    let plan = scene.round();
    let actions: Vec<&Action> = plan.decisions.iter().map(|one| &one.action).collect();
    let [
        Action::Judge { verdict },
        Action::Stop {
            then, why, charge, ..
        },
        ..,
    ] = actions[..]
    else {
        panic!("{actions:#?}");
    };
    assert_eq!(verdict.remedy, Remedy::Restarted);
    assert!(matches!(
        verdict.finding,
        Finding::Idle {
            idle_ms: HANG_MS,
            ..
        }
    ));
    assert!(matches!(then, AfterStop::Requeue { .. }), "{then:?}");
    assert!(why.contains("no CPU use for 30 min"), "{why}");
    assert_eq!((*charge, scene.find("a").failures), (Charge::Failure, 1));
    let mut scene = program(1, |watch| {
        watch.restarts_idle = true;
        watch.hang_ms = 0;
    });
    scene.later(100 * HANG_MS as i64);
    rest(&mut scene, 0, 100 * HANG_MS);
    assert_eq!(scene.round().decisions, [], "0 means never");
}

#[test]
fn silence_of_the_node_is_no_idleness() {
    let mut scene = program(1, |watch| watch.restarts_idle = true);
    scene.later(28 * MINUTE_MS);
    rest(&mut scene, 0, HANG_MS - 60_000);
    let seen_ms = scene.snapshot.now_ms;
    for node in &mut scene.snapshot.nodes {
        node.seen_ms = Some(seen_ms);
    }
    scene.later(100 * MINUTE_MS);
    assert_eq!(scene.round().decisions, []);
}

#[test]
fn suspended_or_starting_task_is_not_idle() {
    for state in [TaskState::Assigned, TaskState::Suspended] {
        let mut scene = program(1, |watch| watch.restarts_idle = true);
        scene.later(10 * HANG_MS as i64);
        rest(&mut scene, 0, 2 * HANG_MS);
        let rank_0 = scene.task("a", Role::Worker { rank: 0 });
        rank_0.state = state;
        let plan = scene.round();
        let judges = plan
            .decisions
            .iter()
            .any(|one| matches!(one.action, Action::Judge { .. }));
        assert!(!judges, "{plan:#?}");
    }
}

#[test]
fn interactive_job_is_warned_and_ends_as_succeeded() {
    let mut scene = program(1, |watch| watch.idle_limit_ms = Some(3_600_000));
    scene.find("a").exclusive = true;
    scene.later(46 * MINUTE_MS);
    rest(&mut scene, 0, 47 * 60_000);
    assert_eq!(told(&actions(&mut scene)), None);
    scene.later(MINUTE_MS);
    rest(&mut scene, 0, 48 * 60_000);
    let found = told(&actions(&mut scene)).expect("news").expect("idle");
    assert_eq!(
        found.consequence(),
        "the interactive job ends in 12 min without use"
    );
    scene.later(12 * MINUTE_MS - 1);
    rest(&mut scene, 0, 3_600_000 - 1);
    assert_eq!(told(&actions(&mut scene)), None);
    scene.later(1);
    rest(&mut scene, 0, 3_600_000);
    let plan = scene.round();
    let Action::Stop {
        then, why, charge, ..
    } = &plan.decisions[0].action
    else {
        panic!("{plan:#?}");
    };
    assert_eq!((then, *charge), (&AfterStop::Succeed, Charge::None));
    assert!(why.contains("no CPU use for 60 min"), "{why}");
    scene.obey();
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Succeeded);
}

#[test]
fn interactive_job_in_use_does_not_end() {
    let mut scene = program(1, |watch| watch.idle_limit_ms = Some(3_600_000));
    for _ in 0..5 {
        scene.later(40 * MINUTE_MS);
        rest(&mut scene, 0, 40 * 60_000);
        assert_eq!(told(&actions(&mut scene)), None);
        scene.task("a", Role::Worker { rank: 0 }).idle = None;
        assert_eq!(told(&actions(&mut scene)), None);
    }
}
