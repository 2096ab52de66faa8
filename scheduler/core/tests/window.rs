//! Queue window: the wait reasons of jobs outside it, and how often the reasons of jobs inside are
//! written.

use crate::scene::Scene;
use muster_core::plan::{Action, RemainderWait, RoundPlan};
use muster_core::snapshot::{QueueRemainder, StaleWait};
use muster_core::{Violation, apply, check, plan};
use muster_model::id::JobId;
use muster_model::wait::Wait;
use uuid::Uuid;

fn untold(number: u128) -> StaleWait {
    StaleWait {
        job: JobId(Uuid::from_u128(number)),
        revision: 0,
    }
}

/// Returns one GPU with `jobs` jobs, one of which runs.
fn queue(jobs: u32) -> Scene {
    let mut scene = Scene::cluster(1, 1);
    for number in 0..jobs {
        scene.job(&format!("j{number}")).workers(1, 1);
    }
    scene.settle();
    scene
}

fn waits(plan: &RoundPlan) -> usize {
    let waits = plan.decisions.iter();
    let waits = waits.filter(|one| matches!(one.action, Action::Wait { .. }));
    waits.count()
}

#[test]
fn left_out_jobs_get_reason_and_are_counted() {
    let mut scene = queue(2);
    scene.snapshot.left_out = vec![QueueRemainder {
        tenant: scene.snapshot.tenants[0].id,
        considered: 1,
        jobs: 40,
        untold: vec![untold(1_000), untold(1_001)],
    }];
    let (plan, report) = plan(&scene.snapshot, &scene.policy);
    assert_eq!(check(&scene.snapshot, &plan), []);
    let [RemainderWait { waiting, jobs }] = &plan.behind[..] else {
        panic!("one tenant is told: {:?}", plan.behind);
    };
    assert_eq!(waiting.why, Wait::BehindEarlierJobs { considered: 1 });
    assert_eq!(jobs[..], [untold(1_000), untold(1_001)]);
    assert_eq!(report.totals.waiting_jobs, 41);
    apply(&mut scene.snapshot, &plan).expect("the plan follows the snapshot");
    let (again, _) = muster_core::plan(&scene.snapshot, &scene.policy);
    assert!(again.is_empty(), "{again:?}");
}

#[test]
fn considered_job_in_left_out_list_is_a_violation() {
    let mut scene = queue(2);
    let considered = StaleWait {
        job: scene.snapshot.jobs[1].id,
        revision: 0,
    };
    scene.snapshot.left_out = vec![QueueRemainder {
        tenant: scene.snapshot.tenants[0].id,
        considered: 1,
        jobs: 1,
        untold: vec![considered],
    }];
    let (plan, _) = plan(&scene.snapshot, &scene.policy);
    let wrong = Violation::UnknownJob {
        job: considered.job,
    };
    assert_eq!(check(&scene.snapshot, &plan), std::slice::from_ref(&wrong));
    let (sound, broken) = muster_core::sound(&scene.snapshot, plan);
    assert_eq!((sound.behind, broken), (vec![], vec![wrong]));
}

#[test]
fn start_rewrites_few_reasons_of_long_queue() {
    let mut scene = queue(400);
    let explained = scene.policy.explained_jobs as usize;
    let mut told = 0;
    for _ in 0..50 {
        // The running job ends and the first of the queue starts.
        let ended = scene
            .snapshot
            .jobs
            .iter()
            .position(|job| job.held_gpus() > 0);
        scene.snapshot.jobs.remove(ended.expect("one runs"));
        let (plan, _) = plan(&scene.snapshot, &scene.policy);
        told += waits(&plan) - explained.min(waits(&plan));
        assert_eq!(check(&scene.snapshot, &plan), []);
        apply(&mut scene.snapshot, &plan).expect("the plan follows the snapshot");
    }
    // 350 jobs still wait. A reason is written again after a job has moved by a quarter of its
    // position.
    assert!(told < 10 * 50, "{told} reasons in 50 rounds");
    assert!(told > 0, "places are told in time");
}
