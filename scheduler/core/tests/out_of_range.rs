//! Change of the worker range of a running job: when it takes effect, and what it does not cause.

use crate::scene::{Scene, stops};
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_model::job::{Intent, JobPhase};
use muster_model::spec::Range;

const POLICIES: [PolicyName; 5] = [
    PolicyName::Muster,
    PolicyName::Optimus,
    PolicyName::Fifo,
    PolicyName::Tiresias,
    PolicyName::Themis,
];

/// Returns a job of four workers on one node of eight GPUs.
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

fn want(scene: &mut Scene, name: &str, min: u32, max: u32) {
    scene.find(name).workers = Range { min, max };
}

#[test]
fn job_above_new_maximum_shrinks_in_the_next_round() {
    for share in POLICIES {
        let mut scene = running(share, true);
        want(&mut scene, "a", 1, 2);
        let plan = scene.round();
        assert_eq!(stops(&plan), 0, "{share}: {plan:#?}");
        scene.obey();
        scene.settle();
        assert!((1..=2).contains(&scene.workers("a")), "{share}");
    }
}

/// A tenant may change thousands of ranges at once, and the round must not become longer for other
/// jobs.
#[test]
fn few_jobs_restart_per_round_for_new_ranges() {
    let mut scene = Scene::cluster(12, 8);
    scene.policy = Policy::named(PolicyName::Muster);
    let names: Vec<String> = (0..48).map(|number| format!("j{number:02}")).collect();
    for name in &names {
        scene.job(name).workers(2, 2);
    }
    scene.settle();
    for name in &names {
        want(&mut scene, name, 1, 1);
    }
    let first = stops(&scene.round());
    assert!((1..=16).contains(&first), "{first}");
    scene.obey();
    for _ in 0..8 {
        scene.settle();
    }
    for name in &names {
        assert_eq!(scene.workers(name), 1, "{name}");
    }
}

#[test]
fn job_that_cannot_shrink_in_place_restarts_smaller() {
    for share in POLICIES {
        let mut scene = running(share, false);
        want(&mut scene, "a", 2, 2);
        let plan = scene.round();
        assert_eq!(stops(&plan), 1, "{share}: {plan:#?}");
        scene.obey();
        scene.settle();
        assert_eq!(scene.workers("a"), 2, "{share}");
    }
}

#[test]
fn job_below_new_minimum_grows_without_gain() {
    for share in POLICIES {
        let mut scene = running(share, true);
        scene.measured("a", 6, 20.0);
        scene.later(120_000);
        want(&mut scene, "a", 6, 6);
        let plan = scene.round();
        assert_eq!(stops(&plan), 0, "{share}: {plan:#?}");
        scene.settle();
        assert_eq!(scene.workers("a"), 6, "{share}");
    }
}

#[test]
fn job_keeps_size_until_new_minimum_fits() {
    for share in POLICIES {
        let mut scene = running(share, true);
        scene.job("b").workers(4, 4).in_place();
        scene.settle();
        scene.measured("b", 4, 20.0);
        want(&mut scene, "a", 6, 6);
        scene.later(120_000);
        let plan = scene.round();
        assert_eq!(stops(&plan), 0, "{share}: {plan:#?}");
        scene.settle();
        assert_eq!((scene.workers("a"), scene.workers("b")), (4, 4), "{share}");
    }
    let mut scene = running(PolicyName::Muster, true);
    scene.job("b").workers(4, 4).in_place();
    scene.settle();
    want(&mut scene, "a", 6, 6);
    scene.settle();
    scene.snapshot.jobs.retain(|job| job.name != "b");
    scene.later(120_000);
    scene.settle();
    assert_eq!(scene.workers("a"), 6);
    assert_eq!(scene.phase("a"), JobPhase::Running);
}

#[test]
fn job_restarts_to_grow_only_when_it_fits() {
    for share in POLICIES {
        let mut scene = running(share, false);
        scene.job("b").workers(2, 2);
        scene.settle();
        for workers in [5, 6, 7] {
            scene.measured("a", workers, 20.0);
        }
        want(&mut scene, "a", 7, 7);
        scene.later(120_000);
        assert_eq!(stops(&scene.round()), 0, "{share}");
        want(&mut scene, "a", 6, 6);
        assert_eq!(stops(&scene.round()), 1, "{share}");
        scene.obey();
        scene.settle();
        assert_eq!((scene.workers("a"), scene.workers("b")), (6, 2), "{share}");
    }
}

#[test]
fn growth_to_new_minimum_does_not_overtake_waiting_job() {
    let mut scene = running(PolicyName::Fifo, true);
    scene.job("b").workers(4, 4).in_place();
    scene.settle();
    scene.job("c").workers(4, 4).in_place();
    scene.settle();
    want(&mut scene, "a", 8, 8);
    scene.snapshot.jobs.retain(|job| job.name != "b");
    scene.later(120_000);
    scene.settle();
    assert_eq!((scene.workers("a"), scene.workers("c")), (4, 4));
}

#[test]
fn job_does_not_grow_into_gpus_reserved_for_gang() {
    let mut scene = Scene::cluster(1, 8);
    // A policy that grows no job. Elastic policies decide on growth themselves.
    scene.policy = Policy::named(PolicyName::Fifo);
    scene.job("b").workers(2, 2).in_place();
    scene.job("c").workers(6, 6).in_place();
    scene.settle();
    scene.job("a").workers(7, 7).in_place();
    scene.settle();
    assert_eq!((scene.workers("b"), scene.workers("c")), (2, 6));
    scene.snapshot.jobs.retain(|job| job.name != "c");
    want(&mut scene, "b", 8, 8);
    scene.later(120_000);
    let plan = scene.round();
    assert_eq!(stops(&plan), 0, "{plan:#?}");
    assert_eq!(scene.find("b").size().0, 2, "{plan:#?}");
    // GPUs are not reserved for a job of lower priority.
    scene.find("b").priority = 1;
    scene.settle();
    assert_eq!(scene.workers("b"), 8);
}

#[test]
fn second_growing_job_does_not_take_promised_gpus() {
    let mut scene = Scene::cluster(1, 18);
    scene.policy = Policy::named(PolicyName::Fifo);
    for name in ["a", "b", "d"] {
        scene.job(name).workers(4, 4).in_place();
    }
    scene.settle();
    scene.job("c").workers(8, 8).in_place();
    scene.find("d").intent = Intent::Pause;
    scene.round();
    want(&mut scene, "a", 6, 6);
    want(&mut scene, "b", 6, 6);
    scene.later(120_000);
    scene.round();
    let sizes = (scene.find("a").size().0, scene.find("b").size().0);
    assert_eq!(sizes, (6, 4), "of six free ones four are c's");
    scene.settle();
    assert_eq!(scene.workers("c"), 8);
}

#[test]
fn job_is_not_stopped_for_size_another_would_take() {
    for share in POLICIES {
        let mut scene = Scene::cluster(1, 6);
        scene.policy = Policy::named(share);
        scene.job("a").workers(4, 4);
        scene.settle();
        scene.job("c").workers(5, 5);
        scene.settle();
        want(&mut scene, "a", 6, 6);
        scene.later(120_000);
        assert_eq!(stops(&scene.round()), 0, "{share}: larger");
        scene.obey();
        assert_eq!(scene.workers("a"), 4, "{share}");
    }
    let mut scene = Scene::cluster(1, 8);
    scene.policy = Policy::named(PolicyName::Fifo);
    for name in ["a", "b"] {
        scene.job(name).workers(4, 4);
    }
    scene.settle();
    scene.job("c").workers(4, 4);
    scene.find("c").submitted_ms = 0;
    want(&mut scene, "a", 2, 2);
    scene.later(120_000);
    assert_eq!(stops(&scene.round()), 1, "its place is kept for it");
    scene.settle();
    assert_eq!((scene.workers("a"), scene.workers("c")), (2, 0));
    scene.snapshot.jobs.retain(|job| job.name != "b");
    scene.settle();
    assert_eq!((scene.workers("a"), scene.workers("c")), (2, 4));
}

/// A command that was never measured at any size and has just begun.
#[test]
fn unmeasured_command_restarts_with_new_minimum() {
    for share in POLICIES {
        for slicing in [false, true] {
            let mut scene = Scene::cluster(2, 8);
            scene.policy = Policy::named(share);
            scene.policy.slicing = slicing.then_some(muster_core::policy::Slicing {
                quantum_ms: 60_000,
                suspended_per_gpu: 3,
            });
            scene.job("a").workers(1, 1);
            scene.find("a").command = Some(muster_model::spec::Ends::AllWorkers);
            scene.find("a").ps_shards = Range::NONE;
            scene.find("a").progress.max_steps = None;
            scene.settle();
            want(&mut scene, "a", 3, 3);
            scene.settle();
            scene.later(120_000);
            scene.settle();
            assert_eq!(scene.workers("a"), 3, "{share} {slicing}");
        }
    }
}
