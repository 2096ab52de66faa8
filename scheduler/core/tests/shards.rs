//! PS shards of running jobs: they leave drained nodes, and their number follows the owner's range
//! and the throughput model. No job restarts for that while a shard has the parameters.

use crate::scene::{Scene, gone, stops};
use muster_core::plan::JobDecision;
use muster_core::snapshot::{SnapshotJob, SpeedPoint};
use muster_core::{Action, RoundPlan, Violation, check};
use muster_model::id::{NodeId, TaskId};
use muster_model::job::{Charge, JobPhase};
use muster_model::spec::Range;
use muster_model::task::{Outcome, Role, TaskState};

/// Returns the numbers of leaving and joining tasks of the only resize of a plan without stops.
fn resize(plan: &RoundPlan) -> (usize, usize) {
    let mut resizes = plan.decisions.iter().filter_map(|one| match &one.action {
        Action::Resize { leave, join, .. } => Some((leave.len(), join.len())),
        _ => None,
    });
    let only = resizes
        .next()
        .unwrap_or_else(|| panic!("a resize in {plan:#?}"));
    assert_eq!((resizes.next(), stops(plan)), (None, 0), "{plan:#?}");
    only
}

/// Whether the plan decides nothing but wait reasons.
fn is_quiet(plan: &RoundPlan) -> bool {
    plan.decisions
        .iter()
        .all(|one| matches!(one.action, Action::Wait { .. }))
}

/// Returns index and node of every shard of the present revision.
fn shards(scene: &mut Scene, name: &str) -> Vec<(u32, NodeId)> {
    let tasks = scene.find(name).tasks.iter();
    let shards = tasks.filter_map(|task| match task.role {
        Role::PsShard { index } => Some((index, task.node)),
        Role::Worker { .. } => None,
    });
    shards.collect()
}

/// Returns nodes of two GPUs and a running job of two workers on the first node. Its shard 0 is
/// moved to the second node.
fn running(nodes: u32, ps_shards: u32) -> Scene {
    let mut scene = Scene::cluster(nodes, 2);
    let job = scene.job("a").workers(1, 2).in_place();
    job.ps_shards(ps_shards, ps_shards).steps(2_000_000);
    scene.settle();
    let second = scene.snapshot.nodes[1].id;
    scene.task("a", Role::PsShard { index: 0 }).node = second;
    for workers in 1..=2 {
        measured(&mut scene, (workers, ps_shards), 10.0 * f64::from(workers));
    }
    scene.later(120_000);
    assert!(is_quiet(&scene.round()));
    scene
}

fn measured(scene: &mut Scene, (workers, ps_shards): (u32, u32), steps_per_s: f64) {
    scene.find("a").speeds.push(SpeedPoint {
        workers,
        ps_shards,
        steps_per_s,
        samples: 50,
    });
}

fn drain(scene: &mut Scene, node: usize) -> NodeId {
    scene.snapshot.nodes[node].drained = true;
    scene.snapshot.nodes[node].id
}

fn want(scene: &mut Scene, min: u32, max: u32) {
    scene.find("a").ps_shards = Range { min, max };
}

#[test]
fn shard_leaves_drained_node_in_place() {
    for (nodes, ps_shards) in [(2, 1), (3, 1), (3, 3)] {
        let mut scene = running(nodes, ps_shards);
        let before = scene.find("a").tasks.clone();
        let drained = drain(&mut scene, 1);
        assert_eq!(resize(&scene.round()), (1, 1));
        let job = scene.find("a");
        assert_eq!(job.leaving.len(), 1, "it serves until it is gone");
        let serving = job.leaving[0].role;
        assert!(job.tasks.iter().all(|task| task.role != serving));
        let stayed = job.tasks.iter().filter(|task| before.contains(task));
        assert_eq!(stayed.count(), before.len() - 1, "nobody else is touched");
        assert!(is_quiet(&scene.round()), "one thing after the other");
        scene.settle();
        let there = shards(&mut scene, "a");
        assert_eq!(there.len(), ps_shards as usize);
        assert!(there.iter().all(|(_, node)| *node != drained), "{there:?}");
        let job = scene.find("a");
        assert_eq!((job.state.phase(), job.failures), (JobPhase::Running, 0));
        assert_eq!(job.size().0, 2);
    }
}

#[test]
fn worker_and_shard_leave_drained_node_together() {
    let mut scene = running(3, 1);
    let second = scene.snapshot.nodes[1].id;
    scene.task("a", Role::Worker { rank: 1 }).node = second;
    drain(&mut scene, 1);
    assert_eq!(resize(&scene.round()), (2, 1));
    // With a minimum of two workers it cannot continue without this worker.
    scene = running(3, 1);
    scene.find("a").workers.min = 2;
    scene.task("a", Role::Worker { rank: 1 }).node = second;
    drain(&mut scene, 1);
    assert_eq!(stops(&scene.round()), 1);
}

/// A restart is better than a node that is never vacated.
#[test]
fn job_restarts_when_drained_shard_fits_nowhere() {
    for (ps_shards, range, stopped) in [(1, (1, 1), 1), (2, (2, 2), 1), (2, (1, 2), 0)] {
        let mut scene = running(2, ps_shards);
        want(&mut scene, range.0, range.1);
        scene.snapshot.nodes[0].cpu_milli = 100 * (1 + u64::from(ps_shards));
        drain(&mut scene, 1);
        let plan = scene.round();
        assert_eq!(stops(&plan), stopped, "{ps_shards} of {range:?}: {plan:#?}");
        if stopped == 0 {
            assert_eq!(resize(&plan), (1, 0), "it may have one less");
        }
    }
}

#[test]
fn drain_during_resize_takes_effect_afterwards() {
    let mut scene = running(4, 1);
    drain(&mut scene, 1);
    scene.round();
    let next = scene.find("a").tasks.iter().find(|task| !task.is_worker());
    let next = next.expect("a newcomer").node;

    // Not the node of the coordinator, which cannot leave.
    let home = scene.snapshot.nodes[0].id;
    if next == home {
        let third = scene.snapshot.nodes[2].id;
        let shard = scene
            .find("a")
            .tasks
            .iter_mut()
            .find(|task| !task.is_worker());
        shard.expect("a newcomer").node = third;
        drain(&mut scene, 2);
    } else {
        let mut nodes = scene.snapshot.nodes.iter();
        let place = nodes.position(|node| node.id == next);
        drain(&mut scene, place.expect("a node"));
    }
    assert!(is_quiet(&scene.round()), "it is on the way");
    scene.obey();
    assert_eq!(resize(&scene.round()), (1, 1));
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Running);
}

#[test]
fn shard_on_drained_node_restarts_job_after_a_minute() {
    let mut scene = running(3, 1);
    drain(&mut scene, 1);
    scene.round();
    let mut newcomers = scene.find("a").tasks.iter_mut();
    newcomers.find(|task| !task.is_worker()).expect("one").state = TaskState::Running;
    scene.later(59_000);
    assert!(is_quiet(&scene.round()));
    scene.later(1_000);
    assert_eq!(stops(&scene.round()), 1);
}

#[test]
fn shards_follow_the_owners_range() {
    let mut scene = running(3, 1);
    scene.later(-119_000);
    want(&mut scene, 3, 3);
    assert_eq!(
        resize(&scene.round()),
        (0, 2),
        "however lately it was placed"
    );
    assert!(is_quiet(&scene.round()), "one thing after the other");
    scene.settle();
    assert_eq!(scene.find("a").size(), (2, 3));
    want(&mut scene, 2, 2);
    assert_eq!(resize(&scene.round()), (1, 0));
    scene.settle();
    let indices: Vec<u32> = shards(&mut scene, "a").iter().map(|one| one.0).collect();
    assert_eq!(indices, [0, 1]);
    let job = scene.find("a");
    assert_eq!((job.revision, job.failures), (3, 0));
}

/// A shard in the middle may have left. The shards behind it keep their indices.
#[test]
fn gap_between_shard_indices_moves_no_shard() {
    let mut scene = running(3, 3);
    want(&mut scene, 2, 3);
    let middle = Role::PsShard { index: 1 };
    scene.find("a").tasks.retain(|task| task.role != middle);
    want(&mut scene, 2, 2);
    assert!(is_quiet(&scene.round()));
}

#[test]
fn wanted_shards_join_as_capacity_allows() {
    let mut scene = running(2, 1);
    // Beside two workers the node has CPU for one more task. The other node has its shard already.
    scene.snapshot.nodes[0].cpu_milli = 300;
    scene.snapshot.nodes[1].cpu_milli = 100;
    want(&mut scene, 4, 4);
    assert_eq!(resize(&scene.round()), (0, 1));
    scene.settle();
    assert_eq!(scene.find("a").size().1, 2);
    scene.snapshot.nodes[1].cpu_milli = 1_000;
    assert_eq!(resize(&scene.round()), (0, 2));
}

/// Shards take no GPUs, but a waiting worker needs the CPU beside a free GPU.
#[test]
fn added_shards_spare_cpu_beside_free_gpus() {
    let mut scene = running(2, 1);
    scene.snapshot.nodes[0].cpu_milli = 200;
    scene.snapshot.nodes[1].cpu_milli = 350;
    // The second node has two free GPUs, and the job waits for three.
    scene.job("b").workers(3, 3);
    want(&mut scene, 3, 3);
    assert!(is_quiet(&scene.round()));
    scene.snapshot.jobs.retain(|job| job.name == "a");
    assert_eq!(resize(&scene.round()), (0, 2));
}

#[test]
fn better_number_of_shards_is_adopted() {
    for (speeds, had, wanted) in [
        // Twice as fast with one more.
        ([10.0, 20.0], 1, Some(2)),
        // A change must save a tenth of the remaining time.
        ([10.0, 10.9], 1, None),
        ([20.0, 10.0], 2, Some(1)),
        ([10.9, 10.0], 2, None),
    ] {
        let mut scene = running(2, had);
        scene.find("a").workers.min = 2;
        scene.find("a").speeds.clear();
        for (ps_shards, steps_per_s) in (1..).zip(speeds) {
            measured(&mut scene, (2, ps_shards), steps_per_s);
        }
        want(&mut scene, 1, 2);
        let now_ms = scene.snapshot.now_ms;
        scene.find("a").placed_ms = Some(now_ms - 29_000);
        assert!(is_quiet(&scene.round()), "it was placed a moment ago");
        scene.later(1_000);
        let plan = scene.round();
        match wanted {
            Some(1) => assert_eq!(resize(&plan), (1, 0)),
            Some(_) => assert_eq!(resize(&plan), (0, 1)),
            None => assert!(is_quiet(&plan), "{plan:#?}"),
        }
        scene.settle();
        assert_eq!(scene.find("a").size(), (2, wanted.unwrap_or(had)));
        assert_eq!(scene.phase("a"), JobPhase::Running);
    }
}

/// The refused shard never held parameters, so the others continue. The job backs off before it
/// tries again.
#[test]
fn refused_new_shard_causes_no_restart() {
    for wanted in [(1, 3), (3, 3)] {
        let mut scene = running(3, 1);
        want(&mut scene, 3, 3);
        scene.round();
        want(&mut scene, wanted.0, wanted.1);
        scene.obey();
        let refused = Outcome::refused("OutOfcpu".to_owned());
        scene.task("a", Role::PsShard { index: 2 }).state = gone(refused);
        assert_eq!(resize(&scene.round()), (1, 0));
        let job = scene.find("a");
        assert_eq!((job.failures, job.put_off), (0, 1));
        scene.obey();
        assert!(is_quiet(&scene.round()), "the node would refuse it again");
        assert_eq!(scene.find("a").size(), (2, 2));
    }
    // A job's only shard is no addition to others.
    let mut scene = running(3, 1);
    let shard = scene
        .find("a")
        .tasks
        .iter_mut()
        .find(|task| !task.is_worker());
    shard.expect("a shard").state = gone(Outcome::refused("OutOfcpu".to_owned()));
    assert_eq!(stops(&scene.round()), 1);
}

/// Checks a plan that removes a task of a job.
fn check_removal(scene: &Scene, job: &SnapshotJob, leave: TaskId) -> Vec<Violation> {
    let action = Action::Resize {
        leave: vec![leave],
        join: Vec::new(),
        why: String::new(),
        charge: Charge::None,
    };
    let decision = JobDecision {
        job: job.id,
        expected_revision: job.revision,
        action,
    };
    let plan = RoundPlan {
        decisions: vec![decision],
        ..RoundPlan::default()
    };
    check(&scene.snapshot, &plan)
}

/// The check decides this by its own accounting, independent of the planner.
#[test]
fn check_rejects_resize_without_parameters_of_lost_shard() {
    let mut scene = running(3, 2);
    want(&mut scene, 1, 3);
    let job = scene.find("a").clone();
    let [first, second] = [0, 1].map(|index| Role::PsShard { index });
    let leave = scene.task("a", second).id;
    assert_eq!(check_removal(&scene, &job, leave), [], "it hands over");
    scene.task("a", second).state = gone(Outcome::signalled(9));
    let what = "and continues without the content of a lost shard";
    let wrong = Violation::ImpossibleResize { job: job.id, what };
    assert_eq!(check_removal(&scene, &job, leave), [wrong]);
    scene.find("a").replicated = true;
    let wrong = check_removal(&scene, &job, leave);
    assert_eq!(wrong, [], "the other has a copy");
    scene.find("a").replicated = false;
    let refused = Outcome::refused("OutOfcpu".to_owned());
    scene.task("a", second).state = gone(refused);
    let wrong = check_removal(&scene, &job, leave);
    assert_eq!(wrong, [], "it never held anything");
    assert_eq!(scene.task("a", first).state, TaskState::Running);
}
