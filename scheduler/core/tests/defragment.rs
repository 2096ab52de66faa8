//! Moves: running jobs migrate so that a waiting gang finds its GPUs together, or to gather their
//! own tasks. They move only where that pays, with reserved destinations, under every policy.

use crate::scene::{Scene, gone};
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::snapshot::{Restarts, SnapshotTask};
use muster_core::{Action, apply, check, plan};
use muster_model::job::{AfterStop, Intent, JobPhase, JobState, RequeueCause};
use muster_model::spec::Range;
use muster_model::task::{Outcome, Role, TaskState};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Adds a job of one worker that has run there for a minute.
fn runs(scene: &mut Scene, name: &str, node: usize, gpu: u32) {
    let placed_ms = scene.snapshot.now_ms - 60_000;
    let node = scene.snapshot.nodes[node].id;
    let job = scene.job(name).ps_shards(0, 0).steps(100_000).0;
    job.state = JobState::Running;
    job.revision = 1;
    job.placed_ms = Some(placed_ms);
    job.tasks = vec![SnapshotTask {
        id: muster_model::id::TaskId(uuid::Uuid::from_u128(
            job.id.0.as_u128() + u128::from(gpu) + 1,
        )),
        role: Role::Worker { rank: 0 },
        node,
        gpus: vec![gpu],
        state: TaskState::Running,
        pace: None,
        idle: None,
        lane: 0,
    }];
    scene.measured(name, 1, 10.0);
}

/// Returns four nodes of two GPUs, with one GPU of each taken.
fn scattered(share: PolicyName) -> Scene {
    let mut scene = Scene::cluster(4, 2);
    scene.policy = Policy::named(share);
    for node in 0..4 {
        runs(&mut scene, &format!("small-{node}"), node, 0);
    }
    scene
}

/// Submits a job of two workers with two GPUs each.
fn gang(scene: &mut Scene) {
    scene.job("gang").workers(2, 2).gpus(2).ps_shards(0, 0);
}

fn movers(scene: &Scene) -> Vec<String> {
    let movers = scene.snapshot.jobs.iter().filter(|job| {
        matches!(
            job.state,
            JobState::Stopping {
                then: AfterStop::Move { .. }
            }
        )
    });
    movers.map(|job| job.name.clone()).collect()
}

#[test]
fn gang_starts_after_moves_when_gpus_are_scattered() {
    for &share in PolicyName::ALL {
        let mut scene = scattered(share);
        gang(&mut scene);
        let (_, report) = plan(&scene.snapshot, &scene.policy);
        scene.round();
        let stopping = scene.snapshot.jobs.iter();
        let stopping = stopping.filter(|job| job.state.phase() == JobPhase::Stopping);
        // A policy that rotates jobs may stop others for the gang. Then no job has to move.
        let moved = movers(&scene);
        if moved.is_empty() {
            assert!(stopping.count() > 0, "{share:?} leaves the gang waiting");
            continue;
        }
        assert!(moved.len() <= 2, "{share:?}: {moved:?}");
        for job in &moved {
            let said = report.jobs.iter().find(|one| one.name == *job);
            let why = &said.expect("reported").why;
            assert!(why.contains("node-"), "{share:?}: {why}");
        }
        scene.obey();
        scene.round();
        for job in &moved {
            assert_eq!(scene.phase(job), JobPhase::Starting, "{share:?}: {job}");
        }
        // A policy that changes many jobs gets there in steps, each to a free place.
        for _ in 0..4 {
            if scene.phase("gang") == JobPhase::Queued {
                scene.obey();
                scene.later(60_000);
                scene.round();
            }
        }
        assert_eq!(scene.phase("gang"), JobPhase::Starting, "{share:?}");
    }
}

#[test]
fn report_names_moves_with_reason_and_cost() {
    let mut scene = scattered(PolicyName::Fifo);
    gang(&mut scene);
    let known = Restarts {
        stops: 2,
        stop_s: 8.0,
        starts: 1,
        start_s: 3.0,
        resumed: 1,
        lost_steps: 50.0,
    };
    for node in 0..4 {
        scene.find(&format!("small-{node}")).restarts = Some(known);
    }
    let (_, report) = plan(&scene.snapshot, &scene.policy);
    assert_eq!(report.moves.len(), 2);
    for one in &report.moves {
        assert_eq!(one.makes_room_for, Some(scene.find("gang").id));
        // Per job 4 s to stop, 3 s to start and fifty steps at ten per second: two jobs of one GPU.
        assert!((one.costs_gpu_s - 24.0).abs() < 1.0, "{one:?}");
        assert!(one.measured && one.saves_gpu_s > 2.0 * one.costs_gpu_s);
        assert_ne!(one.from, one.to);
    }
    let job = report.moves[0].job;
    let said = report.jobs.iter().find(|one| one.job == job);
    let why = &said.expect("reported").why;
    for part in ["gang", "12.0 s", "measured", "node-0"] {
        assert!(why.contains(part), "{part} in {why}");
    }
}

#[test]
fn jobs_do_not_move_when_cost_exceeds_gain() {
    // The blocking jobs end in a moment anyway.
    let mut scene = scattered(PolicyName::Fifo);
    gang(&mut scene);
    for node in 0..2 {
        scene.find(&format!("small-{node}")).progress.step = 99_990;
    }
    scene.round();
    assert_eq!(movers(&scene), Vec::<String>::new());

    // Stopping the jobs was measured to take very long.
    let mut scene = scattered(PolicyName::Fifo);
    gang(&mut scene);
    for node in 0..4 {
        scene.find(&format!("small-{node}")).restarts = Some(Restarts {
            stops: 1,
            stop_s: 50_000.0,
            starts: 1,
            start_s: 5.0,
            resumed: 0,
            lost_steps: 0.0,
        });
    }
    scene.round();
    assert_eq!(movers(&scene), Vec::<String>::new());

    // A command that ran for a week has never continued from a checkpoint.
    let mut scene = scattered(PolicyName::Fifo);
    gang(&mut scene);
    for node in 0..4 {
        let placed_ms = scene.snapshot.now_ms - 7 * 86_400_000;
        let job = scene.find(&format!("small-{node}"));
        job.command = Some(muster_model::spec::Ends::AllWorkers);
        job.placed_ms = Some(placed_ms);
    }
    scene.round();
    assert_eq!(movers(&scene), Vec::<String>::new());
}

#[test]
fn fresh_exclusive_and_higher_priority_jobs_do_not_move() {
    let spoil: [fn(&mut muster_core::snapshot::SnapshotJob, i64); 3] = [
        |job, now_ms| job.placed_ms = Some(now_ms - 1_000),
        |job, _| job.exclusive = true,
        |job, _| job.priority = 5,
    ];
    for spoil in spoil {
        let mut scene = scattered(PolicyName::Fifo);
        gang(&mut scene);
        let now_ms = scene.snapshot.now_ms;
        for node in 0..4 {
            spoil(scene.find(&format!("small-{node}")), now_ms);
        }
        scene.round();
        assert_eq!(movers(&scene), Vec::<String>::new());
    }
}

#[test]
fn move_destination_is_reserved_until_its_node_closes() {
    for lose in [false, true] {
        let mut scene = scattered(PolicyName::Fifo);
        gang(&mut scene);
        scene.round();
        let moved = movers(&scene);
        assert_eq!(moved.len(), 2);
        let JobState::Stopping {
            then: AfterStop::Move { to, .. },
        } = scene.find(&moved[0]).state.clone()
        else {
            panic!("it moves");
        };
        // A job of higher priority than all others does not get the reserved places.
        scene.job("urgent").priority(90).ps_shards(0, 0);
        if lose {
            let nodes = &mut scene.snapshot.nodes;
            let node = nodes.iter_mut().find(|node| node.id == to[0].node);
            node.expect("there").drained = true;
        }
        scene.round();
        let seats: BTreeSet<_> = to
            .iter()
            .map(|seat| (seat.node, seat.gpus.clone()))
            .collect();
        let urgent = scene.find("urgent").tasks.clone();
        assert!(
            urgent
                .iter()
                .all(|task| !seats.contains(&(task.node, task.gpus.clone())))
        );
        scene.obey();
        scene.round();
        let after = scene.find(&moved[0]);
        let mut tasks = after.tasks.iter();
        let arrived = !after.tasks.is_empty()
            && tasks.all(|task| seats.contains(&(task.node, task.gpus.clone())));
        assert_eq!(
            arrived && after.state == JobState::Starting,
            !lose,
            "{after:#?}"
        );
    }
}

/// Returns whether a job of one worker on each of the first two nodes moves. The third node has
/// `free` free GPUs.
fn is_gathered(racks: [&str; 3], free: u32) -> bool {
    let mut scene = Scene::cluster(3, 2);
    scene.policy = Policy::optimus();
    for (node, rack) in scene.snapshot.nodes.iter_mut().zip(racks) {
        node.rack = (!rack.is_empty()).then(|| rack.to_owned());
    }
    scene.snapshot.nodes[2].gpus = free;
    runs(&mut scene, "spread", 0, 0);
    let node = scene.snapshot.nodes[1].id;
    let job = scene.find("spread");
    job.workers = Range { min: 2, max: 2 };
    let mut second = job.tasks[0].clone();
    second.id = muster_model::id::TaskId(uuid::Uuid::from_u128(77));
    (second.role, second.node) = (Role::Worker { rank: 1 }, node);
    job.tasks.push(second);
    scene.measured("spread", 2, 10.0);
    scene.round();
    !movers(&scene).is_empty()
}

#[test]
fn spread_job_is_gathered_on_one_node_or_rack() {
    assert!(is_gathered(["", "", ""], 2), "the third node holds all");
    assert!(!is_gathered(["", "", ""], 1), "it does not");
    assert!(is_gathered(["a", "b", "a"], 1), "one rack holds all");
    assert!(!is_gathered(["a", "a", "a"], 1), "it does already");
}

#[test]
fn moving_job_paused_by_owner_stays_paused() {
    let mut scene = scattered(PolicyName::Fifo);
    gang(&mut scene);
    scene.round();
    let moved = movers(&scene);
    scene.find(&moved[0]).intent = Intent::Pause;
    scene.round();
    scene.obey();
    scene.round();
    assert_eq!(scene.phase(&moved[0]), JobPhase::Paused);
    assert_eq!(scene.phase("gang"), JobPhase::Starting);
    assert!(!matches!(
        scene.find(&moved[1]).state,
        JobState::Stopping {
            then: AfterStop::Requeue {
                cause: RequeueCause::Resize
            }
        }
    ));
}

/// Returns a random scattered cluster in which a gang waits.
fn cluster(holes: &[u8], share: PolicyName, workers: u32, gpus: u32) -> Scene {
    let nodes = u32::try_from(holes.len()).expect("few");
    let mut scene = Scene::cluster(nodes, 3);
    scene.policy = Policy::named(share);
    for (node, &taken) in holes.iter().enumerate() {
        for gpu in 0..3 {
            if taken >> gpu & 1 == 1 {
                runs(&mut scene, &format!("r{node}-{gpu}"), node, gpu);
            }
        }
    }
    scene
        .job("gang")
        .workers(workers, workers)
        .gpus(gpus)
        .ps_shards(0, 0);
    scene
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Each moving job starts at its destination, which no other job gets, with any delay of the
    /// stopping tasks. Planning again changes nothing.
    #[test]
    fn moving_jobs_start_at_their_destination(
        holes in prop::collection::vec(0_u8..8, 2..6), workers in 1_u32..4, gpus in 1_u32..4, share in 0_usize..4,
        stops in any::<u64>(),
    ) {
        let share = [PolicyName::Fifo, PolicyName::Optimus, PolicyName::Muster, PolicyName::Drf][share];
        let mut scene = cluster(&holes, share, workers, gpus);
        let mut places: Vec<(String, BTreeSet<_>)> = Vec::new();
        for round in 0..8 {
            scene.snapshot.sort();
            let (first, _) = plan(&scene.snapshot, &scene.policy);
            prop_assert_eq!(check(&scene.snapshot, &first), Vec::new(), "{:#?}", first);
            for decision in &first.decisions {
                if let Action::Stop { then: AfterStop::Move { to, .. }, .. } = &decision.action {
                    let job = scene.snapshot.jobs.iter().find(|job| job.id == decision.job).expect("there");
                    let seats = to.iter().map(|seat| (seat.node, seat.gpus.clone())).collect();
                    places.push((job.name.clone(), seats));
                }
            }
            apply(&mut scene.snapshot, &first).expect("a checked plan");
            let (second, _) = plan(&scene.snapshot, &scene.policy);
            let changes = second.decisions.iter().filter(|one| !matches!(one.action, Action::Wait { .. }));
            prop_assert_eq!(changes.count(), 0, "{:#?} then {:#?}", first, second);
            apply(&mut scene.snapshot, &second).expect("waits");
            // Some tasks stop now, others later.
            let late = round < 4 && stops >> round & 1 == 1;
            for (number, job) in scene.snapshot.jobs.iter_mut().enumerate() {
                for task in &mut job.tasks {
                    match task.state {
                        TaskState::Assigned => task.state = TaskState::Running,
                        TaskState::Stopping if !(late && number % 2 == 0) => {
                            task.state = gone(Outcome::exited(0));
                        }
                        _ => {}
                    }
                }
            }
            scene.later(1_000);
        }
        for (name, seats) in places {
            let job = scene.find(&name);
            let now: BTreeSet<_> = job.tasks.iter().map(|task| (task.node, task.gpus.clone())).collect();
            prop_assert_eq!(job.state.phase(), JobPhase::Running, "{}", name);
            prop_assert_eq!(now, seats, "{}", name);
        }
    }
}
