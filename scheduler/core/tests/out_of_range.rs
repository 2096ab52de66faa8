//! A range of workers that is changed under a running job: when it takes effect, and what it does not do.

mod scene;

use muster_core::policies::name::PolicyName;
use muster_core::{Action, Plan, policy::Policy};
use muster_model::job::JobPhase;
use muster_model::spec::Range;
use scene::Scene;

const POLICIES: [PolicyName; 5] = [
    PolicyName::Muster,
    PolicyName::Optimus,
    PolicyName::Fifo,
    PolicyName::Tiresias,
    PolicyName::Themis,
];

/// A job of four workers on one node of eight GPUs.
fn running(share: PolicyName, in_place: bool) -> Scene {
    let mut scene = Scene::cluster(1, 8);
    scene.policy = Policy::named(share);
    let job = scene.job("a").workers(4, 4);
    if in_place {
        job.in_place();
    }
    scene.settle();
    assert_eq!(scene.workers("a"), 4, "{share}");
    scene.measured("a", 4, 20.0);
    scene
}

fn want(scene: &mut Scene, min: u32, max: u32) {
    scene.find("a").workers = Range { min, max };
}

fn stops(plan: &Plan) -> usize {
    let stops = |action: &Action| matches!(action, Action::Stop { .. });
    plan.decisions
        .iter()
        .filter(|one| stops(&one.action))
        .count()
}

#[test]
fn above_its_new_maximum_a_job_shrinks_in_the_next_round_however_lately_it_was_placed() {
    for share in POLICIES {
        let mut scene = running(share, true);
        want(&mut scene, 1, 2);
        let plan = scene.round();
        assert_eq!(stops(&plan), 0, "{share}: {plan:#?}");
        scene.obey();
        scene.settle();
        assert!((1..=2).contains(&scene.workers("a")), "{share}");
    }
}

#[test]
fn a_job_that_cannot_shrink_in_place_comes_back_smaller() {
    for share in POLICIES {
        let mut scene = running(share, false);
        want(&mut scene, 2, 2);
        let plan = scene.round();
        assert_eq!(stops(&plan), 1, "{share}: {plan:#?}");
        scene.obey();
        scene.settle();
        assert_eq!(scene.workers("a"), 2, "{share}");
    }
}

#[test]
fn below_its_new_minimum_a_job_grows_into_free_gpus_though_it_is_no_faster_there() {
    for share in POLICIES {
        let mut scene = running(share, true);
        scene.measured("a", 6, 20.0);
        scene.later(120_000);
        want(&mut scene, 6, 6);
        let plan = scene.round();
        assert_eq!(stops(&plan), 0, "{share}: {plan:#?}");
        scene.settle();
        assert_eq!(scene.workers("a"), 6, "{share}");
    }
}

#[test]
fn where_there_is_no_room_for_its_new_minimum_a_job_goes_on_as_it_is_until_there_is() {
    for share in POLICIES {
        let mut scene = running(share, true);
        scene.job("b").workers(4, 4).in_place();
        scene.settle();
        scene.measured("b", 4, 20.0);
        want(&mut scene, 6, 6);
        scene.later(120_000);
        let plan = scene.round();
        assert_eq!(stops(&plan), 0, "{share}: {plan:#?}");
        scene.settle();
        assert_eq!((scene.workers("a"), scene.workers("b")), (4, 4), "{share}");
    }
    let mut scene = running(PolicyName::Muster, true);
    scene.job("b").workers(4, 4).in_place();
    scene.settle();
    want(&mut scene, 6, 6);
    scene.settle();
    scene.snapshot.jobs.retain(|job| job.name != "b");
    scene.later(120_000);
    scene.settle();
    assert_eq!(scene.workers("a"), 6);
    assert_eq!(scene.phase("a"), JobPhase::Running);
}

#[test]
fn a_job_that_cannot_grow_in_place_restarts_only_where_all_of_it_fits() {
    for share in POLICIES {
        let mut scene = running(share, false);
        scene.job("b").workers(2, 2);
        scene.settle();
        for workers in [5, 6, 7] {
            scene.measured("a", workers, 20.0);
        }
        want(&mut scene, 7, 7);
        scene.later(120_000);
        assert_eq!(stops(&scene.round()), 0, "{share}");
        want(&mut scene, 6, 6);
        assert_eq!(stops(&scene.round()), 1, "{share}");
        scene.obey();
        scene.settle();
        assert_eq!((scene.workers("a"), scene.workers("b")), (6, 2), "{share}");
    }
}

#[test]
fn who_asked_for_little_first_does_not_overtake_who_waits() {
    let mut scene = running(PolicyName::Fifo, true);
    scene.job("b").workers(4, 4).in_place();
    scene.settle();
    scene.job("c").workers(4, 4).in_place();
    scene.settle();
    want(&mut scene, 8, 8);
    scene.snapshot.jobs.retain(|job| job.name != "b");
    scene.later(120_000);
    scene.settle();
    assert_eq!((scene.workers("a"), scene.workers("c")), (4, 4));
}
