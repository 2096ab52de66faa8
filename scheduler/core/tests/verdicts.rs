//! Verdicts: when a rank is judged, what the remedy is, and when no rank may be judged.

use crate::scene::{Scene, gone};
use muster_core::snapshot::SnapshotTask;
use muster_core::{Action, RoundPlan};
use muster_model::job::{AfterStop, Charge, Intent, JobPhase};
use muster_model::pace::{Doing, Pace, Watch};
use muster_model::spec::Ends;
use muster_model::task::{Outcome, Role, TaskState};
use muster_model::verdict::{Finding, Remedy, Verdict};

const STRAGGLER_MS: u64 = 20_000;
const HANG_MS: u64 = 30_000;
const TICK_MS: i64 = 2_000;

fn watched(mut scene: Scene) -> Scene {
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Running);
    scene.find("a").watch = Some(Watch {
        straggler_ms: STRAGGLER_MS,
        hang_ms: HANG_MS,
        verdicts: 0,
        suspects: Vec::new(),
        restarts_idle: false,
        idle_limit_ms: None,
        idle: None,
    });
    scene.later(120_000);
    scene
}

/// Returns a job of three workers that is resized in place, on the first of three nodes, which has
/// room for all.
fn engine() -> Scene {
    let mut scene = Scene::cluster(3, 3);
    scene.job("a").workers(3, 3).in_place();
    watched(scene)
}

fn command() -> Scene {
    let mut scene = Scene::cluster(3, 3);
    let job = scene.job("a").workers(2, 2);
    job.0.command = Some(Ends::AllWorkers);
    job.0.ps_shards.min = 0;
    job.0.ps_shards.max = 0;
    watched(scene)
}

fn rank(task: &SnapshotTask) -> Option<u32> {
    match task.role {
        Role::Worker { rank } => Some(rank),
        Role::PsShard { .. } => None,
    }
}

/// Adds the pace reports of all ranks for which `told` gives one.
fn tell(scene: &mut Scene, told: impl Fn(u32) -> Option<(f64, Doing, bool)>) {
    let now_ms = scene.snapshot.now_ms;
    for task in &mut scene.find("a").tasks {
        let Some((own_ms, doing, moves)) = rank(task).and_then(&told) else {
            continue;
        };
        let before = task.pace;
        let (step, moved_ms) = match before {
            Some(before) if !moves => (before.step, before.moved_ms),
            before => (before.map_or(1, |before| before.step + 1), now_ms),
        };
        task.pace = Some(Pace {
            step,
            own_ms: Some(own_ms),
            doing,
            heard_ms: now_ms,
            moved_ms,
            reports: before.map_or(1, |before| before.reports + 1),
            longest_gap_ms: 2_000,
        });
    }
}

/// Advances by `for_ms`, or until a verdict, with pace reports in each tick.
fn ticks(
    scene: &mut Scene,
    for_ms: u64,
    told: impl Fn(u32) -> Option<(f64, Doing, bool)>,
) -> Option<(Verdict, RoundPlan)> {
    let mut passed_ms = 0;
    while passed_ms < for_ms {
        scene.later(TICK_MS);
        passed_ms += TICK_MS as u64;
        tell(scene, &told);
        let plan = scene.round();
        let verdicts = plan.decisions.iter().filter_map(|one| match &one.action {
            Action::Judge { verdict } => Some(verdict.clone()),
            _ => None,
        });
        let verdicts: Vec<Verdict> = verdicts.collect();
        assert!(verdicts.len() <= 1, "{plan:#?}");
        if let Some(verdict) = verdicts.into_iter().next() {
            return Some((verdict, plan));
        }
        let again = scene.round();
        assert!(again.decisions.is_empty(), "the same facts: {again:#?}");
    }
    None
}

/// Returns reports in which rank 1 takes `times` as long as the others.
fn slow(times: f64) -> impl Fn(u32) -> Option<(f64, Doing, bool)> {
    slow_rank(1, times)
}

/// Returns reports in which one rank takes `times` as long as the others.
fn slow_rank(slow: u32, times: f64) -> impl Fn(u32) -> Option<(f64, Doing, bool)> {
    move |rank| {
        let own_ms = if rank == slow { 10.0 * times } else { 10.0 };
        Some((own_ms, Doing::Waiting, true))
    }
}

/// Returns reports in which all ranks but a silent one wait.
fn silent_rank(silent: u32) -> impl Fn(u32) -> Option<(f64, Doing, bool)> {
    move |rank| (rank != silent).then_some((10.0, Doing::Waiting, false))
}

/// Returns the report of a rank that makes progress.
fn working(_rank: u32) -> Option<(f64, Doing, bool)> {
    Some((0.0, Doing::Working, true))
}

#[test]
fn slow_rank_is_replaced_alone_on_another_node() {
    let mut scene = engine();
    let before = scene.find("a").tasks.clone();
    let slow_one = scene.task("a", Role::Worker { rank: 1 }).clone();
    assert!(ticks(&mut scene, STRAGGLER_MS, slow(2.5)).is_none());
    let (verdict, plan) = ticks(&mut scene, 3 * TICK_MS as u64, slow(2.5)).expect("a verdict");
    assert_eq!(verdict.task_id, slow_one.id);
    assert_eq!(verdict.node_id, slow_one.node);
    assert_eq!(verdict.remedy, Remedy::Replaced);
    let finding = Finding::Straggler {
        own_us: 25_000,
        median_us: 10_000,
    };
    assert_eq!(verdict.finding, finding);
    let resize = plan.decisions.iter().find_map(|one| match &one.action {
        Action::Resize { leave, join, .. } => Some((leave.clone(), join.clone())),
        _ => None,
    });
    let (leave, join) = resize.expect("it goes on in place");
    assert_eq!(leave, [slow_one.id]);
    assert_eq!(join.len(), 1);
    assert_ne!(join[0].node, slow_one.node);
    let job = scene.find("a");
    assert_eq!((job.size().0, job.failures), (3, 0));
    let stay = before.iter().filter(|task| task.id != slow_one.id);
    for task in stay {
        assert!(job.tasks.iter().any(|kept| kept.id == task.id), "{task:?}");
    }
}

#[test]
fn slightly_or_briefly_slow_rank_stays() {
    let mut scene = engine();
    assert!(ticks(&mut scene, 10 * STRAGGLER_MS, slow(1.9)).is_none());
    for _ in 0..4 {
        assert!(ticks(&mut scene, STRAGGLER_MS - 4_000, slow(5.0)).is_none());
        assert!(ticks(&mut scene, TICK_MS as u64, slow(1.0)).is_none());
    }
}

#[test]
fn next_verdict_takes_twice_as_long() {
    let mut scene = engine();
    ticks(&mut scene, 2 * STRAGGLER_MS, slow(4.0)).expect("a verdict");
    scene.obey();
    scene.settle();
    assert!(ticks(&mut scene, 2 * STRAGGLER_MS, slow_rank(2, 4.0)).is_none());
    assert!(ticks(&mut scene, 3 * TICK_MS as u64, slow_rank(2, 4.0)).is_some());
}

#[test]
fn no_verdict_while_a_rank_is_busy_or_when_disabled() {
    let mut scene = engine();
    let verdict = ticks(&mut scene, 4 * STRAGGLER_MS, |rank| match rank {
        0 => Some((10.0, Doing::Busy, false)),
        _ => slow(4.0)(rank),
    });
    assert!(verdict.is_none());
    let mut scene = engine();
    let watch = scene.find("a").watch.as_mut().expect("it is watched");
    (watch.straggler_ms, watch.hang_ms) = (0, 0);
    let verdict = ticks(&mut scene, 10 * HANG_MS, |rank| {
        slow(4.0)(rank).filter(|_| rank != 2)
    });
    assert!(verdict.is_none());
}

#[test]
fn single_worker_is_never_judged() {
    let mut scene = Scene::cluster(2, 2);
    scene.job("a").workers(1, 1).in_place();
    let mut scene = watched(scene);
    let verdict = ticks(&mut scene, 4 * HANG_MS, |_| {
        Some((10.0, Doing::Working, false))
    });
    assert!(verdict.is_none());
    assert!(ticks(&mut scene, 4 * HANG_MS, |_| None).is_none());
}

#[test]
fn silent_rank_is_replaced_while_others_wait() {
    let mut scene = engine();
    ticks(&mut scene, 4_000, slow(1.0));
    let (verdict, _) = ticks(&mut scene, 2 * HANG_MS, silent_rank(2)).expect("a verdict");
    assert_eq!(verdict.role, Role::Worker { rank: 2 });
    assert_eq!(verdict.remedy, Remedy::Replaced);
    assert!(matches!(verdict.finding, Finding::Hang { silent_ms, .. } if silent_ms >= HANG_MS));
}

#[test]
fn no_verdict_when_all_ranks_are_silent() {
    let mut scene = engine();
    ticks(&mut scene, 4_000, slow(1.0));
    assert!(ticks(&mut scene, 10 * HANG_MS, |_| None).is_none());
}

#[test]
fn rank_on_silent_node_is_not_judged() {
    let mut scene = engine();
    scene.find("a").tasks[2].node = scene.snapshot.nodes[2].id;
    ticks(&mut scene, 4_000, slow(1.0));
    let seen_ms = scene.snapshot.now_ms;
    scene.snapshot.nodes[2].seen_ms = Some(seen_ms);
    let silent = scene.find("a").tasks[2].clone();
    let verdict = ticks(&mut scene, 4 * HANG_MS, |one| {
        let waits = rank(&silent) != Some(one);
        waits.then_some((10.0, Doing::Waiting, false))
    });
    assert!(verdict.is_none());
}

#[test]
fn stuck_rank_is_judged_and_long_step_is_not() {
    let mut scene = engine();
    ticks(&mut scene, 4_000, slow(1.0));
    let verdict = ticks(&mut scene, 2 * HANG_MS, |rank| match rank {
        1 => Some((10.0, Doing::Working, false)),
        _ => Some((10.0, Doing::Waiting, false)),
    });
    let (verdict, _) = verdict.expect("a verdict");
    assert_eq!(verdict.role, Role::Worker { rank: 1 });

    let mut scene = engine();
    ticks(&mut scene, 4_000, slow(1.0));
    let verdict = ticks(&mut scene, 4 * HANG_MS, |_| {
        Some((10.0, Doing::Working, false))
    });
    assert!(verdict.is_none());
}

#[test]
fn hanging_coordinator_restarts_the_job() {
    let mut scene = engine();
    ticks(&mut scene, 4_000, |rank| match rank {
        0 => Some((10.0, Doing::Busy, true)),
        _ => slow(1.0)(rank),
    });
    let (verdict, _) = ticks(&mut scene, 2 * HANG_MS, silent_rank(0)).expect("a verdict");
    assert_eq!(verdict.remedy, Remedy::Restarted);
    assert_eq!(scene.phase("a"), JobPhase::Stopping);
    assert_eq!(scene.find("a").failures, 1);
}

#[test]
fn slow_worker_without_other_place_is_dropped_to_minimum() {
    let mut scene = Scene::cluster(1, 3);
    scene.job("a").workers(2, 3).in_place();
    let mut scene = watched(scene);
    let (verdict, _) = ticks(&mut scene, 2 * STRAGGLER_MS, slow(4.0)).expect("a verdict");
    assert_eq!(verdict.remedy, Remedy::LeftOut);

    let mut scene = Scene::cluster(1, 3);
    scene.job("a").workers(3, 3).in_place();
    let mut scene = watched(scene);
    assert!(
        ticks(&mut scene, 10 * STRAGGLER_MS, slow(4.0)).is_none(),
        "a slow worker is better than none"
    );
}

#[test]
fn silent_command_restarts_and_finally_fails() {
    let mut scene = command();
    ticks(&mut scene, 10_000, working);
    let (verdict, plan) = ticks(&mut scene, 2 * HANG_MS, |_| None).expect("a verdict");
    assert_eq!(verdict.remedy, Remedy::Restarted);
    let stop = plan.decisions.iter().find_map(|one| match &one.action {
        Action::Stop { then, charge, .. } => Some((then.clone(), *charge == Charge::Failure)),
        _ => None,
    });
    assert!(matches!(stop, Some((AfterStop::Requeue { .. }, true))));
    let mut scene = command();
    scene.find("a").retries = 0;
    ticks(&mut scene, 10_000, working);
    ticks(&mut scene, 2 * HANG_MS, |_| None).expect("a verdict");
    for task in &mut scene.find("a").tasks {
        let outcome = Outcome::killed_late();
        task.state = TaskState::Released { outcome };
    }
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Failed);
}

#[test]
fn rarely_reporting_command_is_not_silent() {
    let mut scene = command();
    ticks(&mut scene, 10_000, working);
    for task in &mut scene.find("a").tasks {
        let pace = task.pace.as_mut().expect("it told");
        pace.longest_gap_ms = 10 * HANG_MS;
    }
    assert!(ticks(&mut scene, 20 * HANG_MS, |_| None).is_none());
    let mut scene = command();
    tell(&mut scene, working);
    assert!(
        ticks(&mut scene, 20 * HANG_MS, |_| None).is_none(),
        "one report says nothing of its pauses"
    );
}

#[test]
fn job_that_ignores_suspension_restarts_from_checkpoint() {
    let mut scene = Scene::cluster(1, 1);
    scene.job("a").workers(1, 1);
    scene.settle();
    scene.find("a").intent = Intent::Suspend;
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Suspended);
    scene.later(59_000);
    assert!(scene.round().decisions.is_empty(), "there is time");
    scene.later(1_000);
    let plan = scene.round();
    let stop = plan.decisions.iter().find_map(|one| match &one.action {
        Action::Stop { then, why, .. } => Some((then.clone(), why.clone())),
        _ => None,
    });
    let (then, why) = stop.unwrap_or_else(|| panic!("a stop in {plan:#?}"));
    assert!(matches!(then, AfterStop::Requeue { .. }));
    assert!(
        why.contains("worker-0 was asked to suspend 60 s ago"),
        "{why}"
    );
    assert_eq!(scene.find("a").failures, 0);
    scene.obey();
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Paused, "as its owner wants it");
}

#[test]
fn suspicion_ends_while_a_rank_is_busy() {
    let mut scene = engine();
    assert!(ticks(&mut scene, 2 * TICK_MS as u64, slow(2.5)).is_none());
    let verdict = ticks(&mut scene, 4 * STRAGGLER_MS, |rank| {
        let (own_ms, _, moves) = slow(2.5)(rank)?;
        let doing = if rank == 0 {
            Doing::Busy
        } else {
            Doing::Waiting
        };
        Some((own_ms, doing, moves))
    });
    assert!(verdict.is_none());
    let again = ticks(&mut scene, STRAGGLER_MS - TICK_MS as u64, slow(2.5));
    assert!(
        again.is_none(),
        "what was seen before proves nothing: {again:?}"
    );
}

/// The program reports that it is slow on its first node. No checkpoint of it is known.
#[test]
fn slow_command_restarts_once_if_another_node_is_free() {
    let mut scene = command();
    let (verdict, _) = ticks(&mut scene, 2 * STRAGGLER_MS, slow(5.0)).expect("a verdict");
    assert_eq!(verdict.remedy, Remedy::Restarted);
    assert_eq!(scene.find("a").failures, 0, "it is not its fault");
    for task in &mut scene.find("a").tasks {
        task.state = gone(Outcome::stopped());
    }
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Running);
    let again = ticks(&mut scene, 64 * STRAGGLER_MS, slow(5.0));
    assert!(
        again.is_none(),
        "all that it has done would be lost: {again:?}"
    );

    let mut scene = Scene::cluster(1, 2);
    let job = scene.job("a").workers(2, 2).ps_shards(0, 0);
    job.0.command = Some(Ends::AllWorkers);
    let mut scene = watched(scene);
    let nowhere = ticks(&mut scene, 4 * STRAGGLER_MS, slow(5.0));
    assert!(nowhere.is_none(), "there is no other node: {nowhere:?}");
}
