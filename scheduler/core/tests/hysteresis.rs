//! Hysteresis: elastic jobs grow into idle GPUs and release them at the first demand. No job is
//! resized twice within its minimum interval unless another job needs its GPUs.

use crate::scene::Scene;
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Policy, Slicing};
use muster_core::snapshot::{FreedGpu, Restarts, SnapshotJob};
use muster_core::{Action, RoundPlan, apply, check, plan};
use muster_model::id::JobId;
use muster_model::job::{AfterStop, Intent, JobPhase, JobState, RequeueCause};
use muster_model::spec::Range;
use muster_model::task::TaskState;
use proptest::prelude::*;
use std::collections::BTreeMap;

const POLICIES: [PolicyName; 4] = [
    PolicyName::Muster,
    PolicyName::Optimus,
    PolicyName::Tiresias,
    PolicyName::Gandiva,
];

fn resizes(action: &Action) -> bool {
    match action {
        Action::Resize { .. } => true,
        Action::Stop { then, .. } => matches!(
            then,
            AfterStop::Move { .. }
                | AfterStop::Requeue {
                    cause: RequeueCause::Resize
                }
        ),
        _ => false,
    }
}

/// Whether a job needs GPUs or is about to.
fn is_demand(scene: &Scene) -> bool {
    let mut jobs = scene.snapshot.jobs.iter();
    jobs.any(|job| matches!(job.state, JobState::Queued | JobState::Stopping { .. }))
}

/// Whether another job restarts to change its size. It needs GPUs like a waiting job.
fn restarts_another(plan: &RoundPlan, job: JobId) -> bool {
    plan.decisions.iter().any(|one| {
        let restarts = matches!(one.action, Action::Stop { .. }) && resizes(&one.action);
        one.job != job && restarts
    })
}

/// Returns the minimum interval between two resizes, computed independently: the policy's, and the
/// one in which a restart is three tenths.
fn least_ms(job: &SnapshotJob, policy: &Policy) -> i64 {
    let cost_s = match (job.in_place, job.restarts) {
        (true, _) => policy.in_place_cost_ms as f64 / 1_000.0,
        (false, Some(known)) => {
            known.stop_s / f64::from(known.stops) + known.start_s / f64::from(known.starts)
        }
        (false, None) => policy.resize_cost_ms as f64 / 1_000.0,
    };
    let least_ms = cost_s / policy.resize_share * 1_000.0;
    (policy.min_run_ms as f64).max(least_ms.floor()) as i64
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// The measured speeds change every second, so every policy computes new sizes.
    #[test]
    fn resizes_keep_minimum_interval_without_demand(
        share in 0..POLICIES.len(), in_place in prop::collection::vec(any::<bool>(), 2..4),
        speeds in prop::collection::vec(1_u32..40, 60), slow in any::<bool>(),
    ) {
        let mut scene = Scene::cluster(2, 4);
        scene.policy = Policy::named(POLICIES[share]);
        scene.policy.min_gain = 0.0;
        for (number, &in_place) in in_place.iter().enumerate() {
            let job = scene.job(&format!("j{number}")).workers(1, 8).ps_shards(0, 0).0;
            job.in_place = in_place;
            job.progress.max_steps = Some(2_000_000);
            if slow {
                job.restarts = Some(Restarts { stops: 2, stop_s: 20.0, starts: 1, start_s: 10.0, ..Restarts::default() });
            }
        }
        let mut last: BTreeMap<JobId, i64> = BTreeMap::new();
        for second in 0..120 {
            scene.snapshot.sort();
            let demand = is_demand(&scene);
            let (plan, _) = plan(&scene.snapshot, &scene.policy);
            prop_assert_eq!(check(&scene.snapshot, &plan), Vec::new());

            for one in plan.decisions.iter().filter(|one| resizes(&one.action)) {
                let now_ms = scene.snapshot.now_ms;
                let job = scene.snapshot.jobs.iter().find(|job| job.id == one.job).expect("there");
                let least_ms = least_ms(job, &scene.policy);
                if let Some(before_ms) = last.insert(one.job, now_ms) {
                    prop_assert!(
                        demand || restarts_another(&plan, one.job) || now_ms - before_ms >= least_ms,
                        "{} after {} of {least_ms} ms: {one:?}", job.name, now_ms - before_ms,
                    );
                }
            }
            apply(&mut scene.snapshot, &plan).expect("a checked plan");
            scene.obey();
            for number in 0..in_place.len() {
                let name = format!("j{number}");
                let speed = speeds[(second + 7 * number) % speeds.len()];
                let workers = scene.workers(&name);
                if workers > 0 {
                    let job = scene.find(&name);
                    job.speeds.retain(|point| point.workers != workers);
                    job.speeds.push(muster_core::snapshot::SpeedPoint {
                        workers, ps_shards: 0, steps_per_s: f64::from(speed), samples: 50,
                    });
                }
            }
            scene.later(1_000);
        }
    }
}

#[test]
fn job_releases_fresh_growth_at_first_demand() {
    for share in [PolicyName::Muster, PolicyName::Optimus] {
        let mut scene = Scene::cluster(1, 4);
        scene.policy = Policy::named(share);
        scene.job("grown").workers(1, 4).ps_shards(0, 0).in_place();
        scene.settle();
        for workers in 1..=4 {
            scene.measured("grown", workers, 10.0 * f64::from(workers));
        }
        scene.later(60_000);
        scene.settle();
        assert_eq!(scene.workers("grown"), 4, "{share:?}");
        // The job has grown just now.
        let now_ms = scene.snapshot.now_ms;
        scene.find("grown").placed_ms = Some(now_ms - 1_000);
        scene.job("new").ps_shards(0, 0);
        scene.round();
        assert!(scene.workers("grown") < 4, "{share:?}");
        assert_eq!(scene.phase("grown"), JobPhase::Running, "{share:?}");
        scene.obey();
        scene.round();
        assert_eq!(scene.phase("new"), JobPhase::Starting, "{share:?}");
    }
}

/// A trial has ended and its study will submit the next one. A job that grew in between would be
/// shrunk at once.
#[test]
fn job_does_not_grow_into_gpu_released_a_moment_ago() {
    for share in [PolicyName::Muster, PolicyName::Optimus] {
        let mut scene = Scene::cluster(1, 4);
        scene.policy = Policy::named(share);
        scene.job("trial").ps_shards(0, 0);
        let elastic = scene
            .job("elastic")
            .workers(1, 4)
            .ps_shards(0, 0)
            .in_place();
        elastic.0.workers = Range { min: 1, max: 3 };
        scene.settle();
        for workers in 1..=4 {
            scene.measured("elastic", workers, 10.0 * f64::from(workers));
        }
        scene.later(120_000);
        scene.settle();
        assert_eq!(scene.workers("elastic"), 3, "{share:?}");
        scene.find("elastic").workers.max = 4;
        // The only GPU of the trial.
        let gpu = scene.find("trial").tasks[0].gpus[0];
        scene.snapshot.jobs.retain(|job| job.name != "trial");
        let freed_ms = scene.snapshot.now_ms;
        let freed = FreedGpu {
            gpu,
            at_ms: freed_ms,
        };
        scene.snapshot.nodes[0].freed.push(freed);
        scene.later(1_000);
        scene.settle();
        assert_eq!(scene.workers("elastic"), 3, "{share:?} grows in haste");
        scene.later(i64::try_from(scene.policy.grow_after_ms).expect("short"));
        scene.settle();
        assert_eq!(scene.workers("elastic"), 4, "{share:?} never grows");
    }
}

#[test]
fn job_grows_while_another_one_starts() {
    let mut scene = Scene::cluster(1, 4);
    scene.job("slow").workers(1, 1).ps_shards(0, 0);
    scene
        .job("elastic")
        .workers(1, 2)
        .ps_shards(0, 0)
        .in_place();
    scene.settle();
    for workers in 1..=3 {
        scene.measured("elastic", workers, 10.0 * f64::from(workers));
    }
    scene.later(120_000);
    scene.settle();
    assert_eq!(scene.workers("elastic"), 2);
    // Its tasks come up only later.
    let now_ms = scene.snapshot.now_ms;
    let slow = scene.find("slow");
    slow.state = JobState::Starting;
    slow.tasks[0].state = TaskState::Assigned;
    slow.placed_ms = Some(now_ms);
    scene.find("elastic").workers.max = 3;
    scene.later(1_000);
    scene.round();
    assert_eq!(scene.phase("slow"), JobPhase::Starting);
    assert_eq!(scene.workers("elastic"), 3);
}

#[test]
fn waiting_job_starts_at_once_on_released_gpus() {
    let mut scene = Scene::cluster(1, 2);
    let at_ms = scene.snapshot.now_ms;
    scene.snapshot.nodes[0].freed = [0, 1].map(|gpu| FreedGpu { gpu, at_ms }).to_vec();
    scene.job("new").workers(2, 2).ps_shards(0, 0);
    scene.round();
    assert_eq!(scene.phase("new"), JobPhase::Starting);
}

#[test]
fn continued_job_is_protected_for_one_quantum() {
    let mut scene = Scene::cluster(1, 1);
    let quantum_ms = 60_000;
    scene.policy = Policy {
        slicing: Some(Slicing {
            quantum_ms,
            suspended_per_gpu: 3,
        }),
        ..Policy::named(PolicyName::Muster)
    };
    let job = scene.job("old").ps_shards(0, 0).0;
    job.workers = Range { min: 1, max: 1 };
    job.progress.max_steps = Some(5_000_000);
    scene.settle();
    scene.measured("old", 1, 10.0);
    scene.later(600_000);
    scene.find("old").intent = Intent::Suspend;
    scene.settle();
    scene.later(60_000);
    scene.find("old").intent = Intent::Run;
    scene.round();
    assert_eq!(scene.phase("old"), JobPhase::Running, "it goes on");
    // The policy would rather run these trials of seconds.
    for number in 0..3 {
        let name = format!("trial-{number}");
        scene.job(&name).ps_shards(0, 0).steps(20);
    }
    for _ in 0..59 {
        scene.later(1_000);
        scene.round();
        assert_eq!(scene.phase("old"), JobPhase::Running);
    }
    scene.later(2_000);
    scene.round();
    let phase = scene.phase("old");
    assert!(
        [JobPhase::Suspended, JobPhase::Stopping].contains(&phase),
        "then it is their turn: {phase:?}"
    );
}
