//! A quota that is lowered below its use: which jobs shrink or stop, and their wait reasons.

use crate::scene::Scene;
use muster_core::policies::name::PolicyName;
use muster_core::{Action, RoundPlan, policy::Policy};
use muster_model::job::{AfterStop, JobPhase, JobState, RequeueCause};
use muster_model::wait::Wait;

const POLICIES: [PolicyName; 6] = [
    PolicyName::Muster,
    PolicyName::Optimus,
    PolicyName::Fifo,
    PolicyName::Tiresias,
    PolicyName::Drf,
    PolicyName::Themis,
];

/// Returns one node of eight GPUs under a policy.
fn cluster(share: PolicyName) -> Scene {
    let mut scene = Scene::cluster(1, 8);
    scene.policy = Policy::named(share);
    scene
}

fn lower(scene: &mut Scene, gpus: u32) {
    scene.snapshot.tenants[0].gpu_quota = Some(gpus);
}

fn held(scene: &Scene) -> u32 {
    scene.snapshot.jobs.iter().map(|job| job.held_gpus()).sum()
}

fn stopped(plan: &RoundPlan, scene: &Scene) -> Vec<String> {
    plan.decisions
        .iter()
        .filter(|one| matches!(one.action, Action::Stop { .. }))
        .map(|one| {
            let job = scene.snapshot.jobs.iter().find(|job| job.id == one.job);
            job.expect("is there").name.clone()
        })
        .collect()
}

#[test]
fn elastic_job_shrinks_into_lowered_quota() {
    for share in POLICIES {
        let mut scene = cluster(share);
        scene.job("a").workers(4, 8);
        scene.settle();
        scene.measured("a", scene.snapshot.jobs[0].size().0, 20.0);
        assert!(scene.workers("a") >= 4);
        lower(&mut scene, 6);
        scene.settle();
        let now = scene.workers("a");
        assert!((4..=6).contains(&now), "{share}: {now} workers");
    }
}

#[test]
fn rigid_jobs_above_lowered_quota_stop_newest_first() {
    for share in POLICIES {
        let mut scene = cluster(share);
        for name in ["first", "second", "third"] {
            scene.job(name).workers(2, 2);
        }
        scene.settle();
        assert_eq!(held(&scene), 6, "{share}");
        lower(&mut scene, 5);
        let plan = scene.round();
        assert_eq!(stopped(&plan, &scene), ["third"], "{share}");
        assert_eq!(
            scene.find("third").state,
            JobState::Stopping {
                then: AfterStop::Requeue {
                    cause: RequeueCause::OverQuota
                }
            }
        );
        scene.obey();
        scene.settle();
        assert_eq!(held(&scene), 4, "{share}");
        let waiting = scene.find("third").waiting.clone().expect("it waits");
        let short = Wait::WaitingForQuota {
            needed_gpus: 2,
            used_gpus: 4,
            quota_gpus: 5,
        };
        assert_eq!(waiting.why, short, "{share}");
    }
}

#[test]
fn lowered_quota_shrinks_first_then_stops_lowest_priority() {
    for share in POLICIES {
        let mut scene = cluster(share);
        scene.job("low").workers(2, 2).priority(-1);
        scene.job("elastic").workers(1, 2);
        scene.job("new").workers(2, 2);
        scene.settle();
        let full = held(&scene);
        // A policy without elasticity allocated one GPU to it.
        assert!(full == 6 || full == 5, "{share}: {full}");
        if full == 6 {
            lower(&mut scene, 5);
            let plan = scene.round();
            assert_eq!(stopped(&plan, &scene), ["elastic"], "{share}");
            scene.obey();
            scene.settle();
            assert_eq!(scene.workers("elastic"), 1, "{share}");
        }
        lower(&mut scene, 4);
        let plan = scene.round();
        assert_eq!(stopped(&plan, &scene), ["low"], "{share}");
        scene.obey();
        scene.settle();
        assert_eq!(scene.phase("low"), JobPhase::Queued, "{share}");
        assert!(held(&scene) <= 4, "{share}");
    }
}

#[test]
fn lowered_quota_does_not_shrink_job_without_use() {
    let mut scene = cluster(PolicyName::Optimus);
    scene.job("elastic").workers(1, 2);
    scene.job("rigid").workers(4, 4);
    scene.settle();
    assert_eq!(held(&scene), 6);
    lower(&mut scene, 2);
    let plan = scene.round();
    assert_eq!(stopped(&plan, &scene), ["rigid"]);
}

#[test]
fn quota_of_zero_stops_all_jobs_with_reason() {
    for share in POLICIES {
        let mut scene = cluster(share);
        scene.job("a").workers(1, 4);
        scene.settle();
        lower(&mut scene, 0);
        scene.settle();
        assert_eq!(held(&scene), 0, "{share}");
        let waiting = scene.find("a").waiting.clone().expect("it waits");
        assert!(
            matches!(waiting.why, Wait::ExceedsMaxQuota { quota_gpus: 0, .. }),
            "{waiting:?}"
        );
    }
}
