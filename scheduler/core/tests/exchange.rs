//! Exchange of GPUs between running jobs: on a full cluster of two kinds, each job moves to the
//! GPUs of the other.

use crate::scene::{Scene, gone, stops, tenant};
use muster_core::learn::Observation;
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::snapshot::{ReportedCheckpoint, Restarts, SnapshotFamily};
use muster_core::{Action, RoundPlan, apply, check, plan};
use muster_model::id::JobId;
use muster_model::job::{AfterStop, Intent, JobPhase, JobState};
use muster_model::spec::{AllowedPreemption, CheckpointOnRequest, Ends};
use muster_model::task::{Outcome, TaskState};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Policies that compare GPU kinds.
const BY_KIND: [PolicyName; 3] = [PolicyName::Muster, PolicyName::Sia, PolicyName::GavelMaxSum];

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

/// Sets the measured speeds of a job's family on the fast and the slow kind.
fn know(scene: &mut Scene, family: &str, fast: f64, slow: f64) {
    let families = &mut scene.snapshot.families;
    families.retain(|known| known.family != family);
    families.push(SnapshotFamily {
        restarts: None,
        tenant: tenant(0),
        family: family.to_owned(),
        noises: Vec::new(),
        speeds: vec![measured("fast", fast), measured("slow", slow)],
    });
    families.sort_by(|a, b| a.family.cmp(&b.family));
}

/// Returns a full cluster of one fast and one slow GPU. Job `a` runs on the slow one and `b` on the
/// fast one, and both are out of their cooldown. Then it becomes known that the fast kind makes `a`
/// four times as fast, and `b` hardly faster.
fn crossed(policy: PolicyName) -> Scene {
    let mut scene = running(policy);
    know(&mut scene, "a", 40.0, 10.0);
    know(&mut scene, "b", 11.0, 10.0);
    scene
}

/// As [`crossed`], before anything is known of the kinds.
fn running(policy: PolicyName) -> Scene {
    let mut scene = Scene::cluster(2, 1);
    scene.policy = Policy::named(policy);
    for (node, kind) in scene.snapshot.nodes.iter_mut().zip(["fast", "slow"]) {
        node.gpu_model = kind.to_owned();
    }
    // The nodes open one after the other, so that each job starts on its node.
    for (name, closed) in [("a", 0), ("b", 1)] {
        let job = scene
            .job(name)
            .workers(1, 1)
            .ps_shards(0, 0)
            .steps(1_000_000);
        job.0.family = Some(name.to_owned());
        scene.snapshot.nodes[closed].cordoned = true;
        scene.settle();
        scene.snapshot.nodes[closed].cordoned = false;
    }
    rest(&mut scene);
    assert_eq!(kinds(&mut scene), ["slow", "fast"]);
    scene
}

/// Lets the cooldowns end, until the start of a round of Gavel.
fn rest(scene: &mut Scene) {
    let rounds = (scene.snapshot.now_ms + 600_000) / 360_000;
    scene.snapshot.now_ms = (rounds + 1) * 360_000;
}

/// Returns the kinds of the GPUs of `a` and `b`, empty for a job without tasks.
fn kinds(scene: &mut Scene) -> [String; 2] {
    ["a", "b"].map(|job| kind_of(scene, job))
}

fn kind_of(scene: &mut Scene, job: &str) -> String {
    let held = scene.find(job).held_tasks().next().map(|task| task.node);
    let mut nodes = scene.snapshot.nodes.iter();
    let node = nodes.find(|node| Some(node.id) == held);
    node.map_or_else(String::new, |node| node.gpu_model.clone())
}

/// Jobs that a plan moves, with the reasons.
fn moved(plan: &RoundPlan) -> Vec<(JobId, String)> {
    let decisions = plan.decisions.iter();
    let moves = decisions.filter_map(|one| match &one.action {
        Action::Stop {
            then: AfterStop::Move { .. },
            why,
            ..
        } => Some((one.job, why.clone())),
        _ => None,
    });
    moves.collect()
}

fn end_tasks(scene: &mut Scene, job: &str) {
    for task in &mut scene.find(job).tasks {
        task.state = gone(Outcome::stopped());
    }
}

/// Runs a round of a scene in which both jobs move.
fn both_move(scene: &mut Scene) {
    let plan = scene.round();
    let share = scene.policy.share;
    assert_eq!(moved(&plan).len(), 2, "{share:?} {plan:#?}");
}

#[test]
fn running_jobs_exchange_gpu_kinds_on_full_cluster() {
    for policy in BY_KIND {
        let mut scene = crossed(policy);
        both_move(&mut scene);
        assert_eq!(kinds(&mut scene), ["slow", "fast"], "no GPU is free yet");
        scene.settle();
        assert_eq!(kinds(&mut scene), ["fast", "slow"], "{policy:?}");
        assert_eq!(scene.phase("a"), JobPhase::Running);
        assert_eq!(scene.phase("b"), JobPhase::Running);
    }
}

#[test]
fn reasons_name_the_other_job_and_its_gain() {
    let mut scene = crossed(PolicyName::Muster);
    let plan = scene.round();
    let moved = moved(&plan);
    let of = |scene: &mut Scene, name: &str| {
        let id = scene.find(name).id;
        let found = moved.iter().find(|(job, _)| *job == id);
        found.expect("it moves").1.clone()
    };
    let (a, b) = (of(&mut scene, "a"), of(&mut scene, "b"));
    assert!(a.contains("moves from node-01 to node-00"), "{a}");
    assert!(a.contains("4.0 times as fast"), "{a}");
    assert!(a.contains("once the tasks of b have ended"), "{a}");
    assert!(b.contains("a gains"), "{b}");
    // The cost that b bears for a is stated.
    let (id, gainer) = (scene.find("b").id, scene.find("a").id);
    let mut decisions = plan.decisions.iter();
    let cost = decisions.find_map(|one| match &one.action {
        Action::Displace { cost } if one.job == id => Some(*cost),
        _ => None,
    });
    let cost = cost.expect("a stated cost");
    assert_eq!(cost.gainer, gainer);
    assert!(cost.gain_gpu_ms > cost.gpu_ms());
}

#[test]
fn reservation_lasts_through_a_request_for_a_checkpoint() {
    let until = |asks: bool| {
        let mut scene = crossed(PolicyName::Muster);
        let request = CheckpointOnRequest {
            signal: None,
            timeout_s: 300,
        };
        scene.find("b").preemption.checkpoint_on_request = asks.then_some(request);
        let plan = scene.round();
        let mut moves = plan.decisions.iter().filter_map(|one| match &one.action {
            Action::Stop {
                then: AfterStop::Move { until_unix_ms, .. },
                ..
            } => *until_unix_ms,
            _ => None,
        });
        moves.next().expect("a reservation with a limit")
    };
    assert_eq!(until(true) - until(false), 2 * 300_000);
}

#[test]
fn each_job_waits_for_the_process_of_the_other() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let mut scene = crossed(PolicyName::Muster);
        both_move(&mut scene);
        // A third job comes and precedes both.
        scene.job("third").ps_shards(0, 0).priority(9);
        end_tasks(&mut scene, first);
        for _ in 0..3 {
            scene.round();
            scene.later(1_000);
        }
        assert_eq!(scene.phase(first), JobPhase::Stopping, "{first} waits");
        assert_eq!(scene.phase(second), JobPhase::Stopping);
        assert_eq!(scene.phase("third"), JobPhase::Queued);
        end_tasks(&mut scene, second);
        scene.round();
        assert_eq!(kinds(&mut scene), ["fast", "slow"]);
        assert_eq!(scene.phase("third"), JobPhase::Queued);
    }
}

#[test]
fn planning_again_during_exchange_changes_nothing() {
    let mut scene = crossed(PolicyName::Muster);
    both_move(&mut scene);
    for ends in [None, Some("a"), Some("b")] {
        if let Some(job) = ends {
            end_tasks(&mut scene, job);
            scene.round();
        }
        let (again, _) = plan(&scene.snapshot, &scene.policy);
        assert_eq!(again.decisions, Vec::new(), "after {ends:?}");
    }
}

#[test]
fn job_returns_to_queue_if_other_job_does_not_stop() {
    for (obedient, stuck) in [("a", "b"), ("b", "a")] {
        let mut scene = crossed(PolicyName::Muster);
        both_move(&mut scene);
        end_tasks(&mut scene, obedient);
        scene.round();
        assert_eq!(scene.phase(obedient), JobPhase::Stopping);
        // The process of the other job cannot be killed.
        scene.later(10 * 60_000);
        scene.round();
        scene.round();
        assert_eq!(scene.phase(obedient), JobPhase::Starting);
        assert_eq!(scene.phase(stuck), JobPhase::Stopping);
        assert_ne!(kind_of(&mut scene, obedient), kind_of(&mut scene, stuck));
    }
}

#[test]
fn job_returns_if_stop_of_other_job_was_refused() {
    for (stops, stays) in [("a", "b"), ("b", "a")] {
        let mut scene = crossed(PolicyName::Muster);
        scene.snapshot.sort();
        let (mut plan, _) = plan(&scene.snapshot, &scene.policy);
        let id = scene.find(stops).id;
        plan.decisions.retain(|one| one.job == id);
        apply(&mut scene.snapshot, &plan).expect("its own decisions");
        scene.round();
        scene.settle();
        assert_eq!(scene.phase(stops), JobPhase::Running);
        assert_eq!(scene.phase(stays), JobPhase::Running);
    }
}

#[test]
fn job_gets_other_gpus_after_loss_of_destination_node() {
    let mut scene = crossed(PolicyName::Muster);
    both_move(&mut scene);
    end_tasks(&mut scene, "a");
    scene.round();
    // The node of b, to which a was to move, is lost.
    scene.snapshot.nodes[0].up = false;
    for task in &mut scene.find("b").tasks {
        task.state = gone(Outcome::NodeLost);
    }
    scene.settle_waiting();
    let (a, b) = (kind_of(&mut scene, "a"), kind_of(&mut scene, "b"));
    assert_eq!(
        [a, b].concat(),
        "slow",
        "one of them runs on the other node"
    );
    scene.snapshot.nodes[0].up = true;
    scene.later(600_000);
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Running);
    assert_eq!(scene.phase("b"), JobPhase::Running);
}

#[test]
fn cancelled_job_leaves_its_gpus_to_the_other() {
    for (cancelled, other) in [("a", "b"), ("b", "a")] {
        for ended in [true, false] {
            let mut scene = crossed(PolicyName::Muster);
            both_move(&mut scene);
            if ended {
                end_tasks(&mut scene, cancelled);
                scene.round();
            }
            scene.find(cancelled).intent = Intent::Cancel;
            scene.settle();
            assert_eq!(scene.phase(cancelled), JobPhase::Cancelled);
            assert_eq!(scene.phase(other), JobPhase::Running);
        }
    }
}

#[test]
fn drained_destination_returns_job_to_queue() {
    let mut scene = crossed(PolicyName::Muster);
    both_move(&mut scene);
    end_tasks(&mut scene, "a");
    scene.round();
    scene.snapshot.nodes[0].drained = true;
    scene.round();
    assert_ne!(scene.phase("a"), JobPhase::Stopping);
    scene.settle_waiting();
    let (a, b) = (kind_of(&mut scene, "a"), kind_of(&mut scene, "b"));
    assert_eq!([a, b].concat(), "slow");
}

#[test]
fn exchange_that_does_not_repay_both_restarts_is_left() {
    for policy in BY_KIND {
        for (a_fast, steps) in [(10.5, 1_000_000), (40.0, 100)] {
            let mut scene = running(policy);
            scene.find("a").progress.max_steps = Some(steps);
            know(&mut scene, "a", a_fast, 10.0);
            know(&mut scene, "b", 10.4, 10.0);
            assert_eq!(stops(&scene.round()), 0, "{policy:?} {a_fast} {steps}");
        }
    }
}

#[test]
fn restart_of_the_other_job_counts() {
    // b restarts for half an hour, which is more than a gains in all.
    let mut scene = running(PolicyName::Sia);
    scene.find("a").progress.max_steps = Some(12_000);
    scene.find("b").restarts = Some(Restarts {
        stops: 4,
        stop_s: 3_600.0,
        starts: 4,
        start_s: 3_600.0,
        ..Restarts::default()
    });
    scene.later(86_400_000);
    know(&mut scene, "a", 40.0, 10.0);
    know(&mut scene, "b", 10.0, 10.0);
    assert_eq!(stops(&scene.round()), 0);
}

#[test]
fn protected_and_constrained_jobs_do_not_exchange() {
    type Protect = fn(&mut Scene);
    let all: [(&str, Protect); 6] = [
        ("never stops", |scene| {
            scene.find("b").preemption.allowed = AllowedPreemption::Never;
        }),
        ("has not run for its minimum", |scene| {
            scene.find("b").preemption.min_runtime = 3_600;
        }),
        ("needs the fast kind", |scene| {
            scene.find("b").constraints.gpu_kinds = vec!["fast".to_owned()];
        }),
        ("may not use the fast node", |scene| {
            scene.find("a").constraints.exclude_nodes = vec!["node-00".to_owned()];
        }),
        ("is exclusive", |scene| scene.find("b").exclusive = true),
        ("precedes", |scene| scene.find("b").priority = 5),
    ];
    for policy in BY_KIND {
        for (what, protect) in all {
            let mut scene = crossed(policy);
            protect(&mut scene);
            let plan = scene.round();
            assert_eq!(stops(&plan), 0, "{policy:?}: b {what} {plan:#?}");
        }
    }
}

#[test]
fn exchange_keeps_a_full_quota() {
    let mut scene = crossed(PolicyName::Muster);
    scene.snapshot.tenants[0].gpu_quota = Some(2);
    both_move(&mut scene);
    scene.settle();
    assert_eq!(kinds(&mut scene), ["fast", "slow"]);
}

#[test]
fn checker_rejects_destination_on_gpus_that_stay_held() {
    let mut scene = crossed(PolicyName::Muster);
    scene.snapshot.sort();
    let (mut plan, _) = plan(&scene.snapshot, &scene.policy);
    assert_eq!(check(&scene.snapshot, &plan), Vec::new());
    let b = scene.find("b").id;
    plan.decisions.retain(|one| one.job != b);
    let wrong = check(&scene.snapshot, &plan);
    assert!(!wrong.is_empty() && wrong.iter().all(|one| one.job() != Some(b)));
}

#[test]
fn checker_rejects_two_jobs_with_one_destination() {
    let mut scene = crossed(PolicyName::Muster);
    scene.snapshot.sort();
    let (mut plan, _) = plan(&scene.snapshot, &scene.policy);
    let (a, b) = (scene.find("a").id, scene.find("b").id);
    let fast = scene.find("b").tasks[0].node;
    for one in plan.decisions.iter_mut().filter(|one| one.job == b) {
        if let Action::Stop {
            then: AfterStop::Move { to, .. },
            ..
        } = &mut one.action
        {
            to[0].node = fast;
        }
    }
    let wrong = check(&scene.snapshot, &plan);
    let mut of_either = wrong.iter().filter_map(|one| one.job());
    assert!(of_either.any(|job| job == a || job == b), "{wrong:?}");
}

impl Scene {
    /// Runs rounds and lets nodes obey until the jobs that fit run; others may wait.
    fn settle_waiting(&mut self) {
        for _ in 0..6 {
            self.round();
            self.obey();
        }
    }
}

/// Cluster of three kinds, full of jobs whose speeds by kind become known after their start.
fn full(seed: u64, policy: PolicyName) -> Scene {
    let mut scene = Scene::cluster(3, 2);
    scene.policy = Policy::named(policy);
    for (node, kind) in scene
        .snapshot
        .nodes
        .iter_mut()
        .zip(["fast", "slow", "other"])
    {
        node.gpu_model = kind.to_owned();
    }
    for number in 0..6_u32 {
        let name = format!("j{number}");
        let job = scene
            .job(&name)
            .workers(1, 1)
            .ps_shards(0, 0)
            .steps(1_000_000);
        job.0.family = Some(name);
        job.0.in_place = seed >> number & 1 == 1;
    }
    scene.settle();
    scene
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Every plan is valid and stable while speeds change and tasks stop in any order. No job stays
    /// stopped: once all tasks obey, all jobs run.
    #[test]
    fn jobs_that_exchange_gpus_all_run_again(
        seed in any::<u64>(), policy in 0..BY_KIND.len(), order in prop::collection::vec(any::<u32>(), 12),
        speeds in prop::collection::vec(1_u32..60, 36), lost in 0_usize..24, cancelled in 0_usize..24,
    ) {
        let mut scene = full(seed, BY_KIND[policy]);
        let mut exchanged = BTreeSet::new();
        for (round, order) in order.into_iter().enumerate() {
            if round % 4 == 0 {
                for number in 0..6 {
                    let [fast, slow] = [0, 18].map(|at| f64::from(speeds[(number * 3 + round + at) % speeds.len()]));
                    know(&mut scene, &format!("j{number}"), fast, slow);
                }
                rest(&mut scene);
            }
            scene.snapshot.sort();
            let (first, _) = plan(&scene.snapshot, &scene.policy);
            prop_assert_eq!(check(&scene.snapshot, &first), Vec::new(), "{:#?}", first);
            exchanged.extend(moved(&first).into_iter().map(|(job, _)| job));
            apply(&mut scene.snapshot, &first).expect("a checked plan");
            let (second, _) = plan(&scene.snapshot, &scene.policy);
            let changes = second.decisions.iter().filter(|one| !matches!(one.action, Action::Wait { .. }));
            prop_assert_eq!(changes.count(), 0, "{:#?} then {:#?}", first, second);
            apply(&mut scene.snapshot, &second).expect("waits");
            for (number, job) in scene.snapshot.jobs.iter_mut().enumerate() {
                for task in &mut job.tasks {
                    match task.state {
                        TaskState::Assigned => task.state = TaskState::Running,
                        TaskState::Stopping if order >> number & 1 == 1 => {
                            task.state = gone(Outcome::exited(0));
                        }
                        _ => {}
                    }
                }
                if cancelled == round && number == 0 {
                    job.intent = Intent::Cancel;
                }
            }
            let node = &mut scene.snapshot.nodes[0];
            node.up = lost != round;
            let (id, up) = (node.id, node.up);
            let tasks = scene.snapshot.jobs.iter_mut().flat_map(|job| &mut job.tasks);
            for task in tasks.filter(|task| !up && task.node == id && !task.state.is_released()) {
                task.state = gone(Outcome::NodeLost);
            }
            scene.snapshot.jobs.retain(|job| !job.state.phase().is_terminal());
            scene.later(5_000);
        }
        scene.snapshot.nodes[0].up = true;
        for round in 0..16 {
            scene.later(if round < 8 { 400_000 } else { 1_000 });
            scene.round();
            scene.obey();
            scene.snapshot.jobs.retain(|job| !job.state.phase().is_terminal());
        }
        for job in &scene.snapshot.jobs {
            let runs = matches!(job.state, JobState::Running | JobState::Starting)
                || matches!(job.state, JobState::Stopping { .. }) && job.held_tasks().next().is_some();
            prop_assert!(runs, "{} after moves of {exchanged:?}: {job:#?}", job.name);
        }
    }
}

/// A stop now would lose 300 ms of work, and no waiting job starts by the exchange.
#[test]
fn programs_that_report_checkpoints_exchange_gpus() {
    let mut scene = crossed(PolicyName::Muster);
    for job in ["a", "b"] {
        let at_ms = scene.snapshot.now_ms - 300;
        let job = scene.find(job);
        (job.command, job.trained_s) = (Some(Ends::AllWorkers), 600.0);
        job.reported = Some(ReportedCheckpoint { step: 1, at_ms });
    }
    both_move(&mut scene);
}
