//! Stops of running jobs for other jobs: what they cost, which of them are allowed, and what the
//! record states.

use crate::scene::{Scene, stops, tenant};
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Policy, Slicing};
use muster_core::snapshot::{ReportedCheckpoint, Restarts};
use muster_core::{Action, RoundPlan, Violation, apply, check, check_with, plan};
use muster_model::job::JobPhase;
use muster_model::plan::PreemptionCost;
use muster_model::spec::{AllowedPreemption, CheckpointOnRequest, Ends, Preemption, Range};
use proptest::prelude::*;

const HOUR_MS: i64 = 3_600_000;

/// Policies that serve a job of higher priority at once. Gavel serves it over several rounds, in
/// the order of fractions.
fn prompt() -> impl Iterator<Item = PolicyName> {
    let all = PolicyName::ALL.iter().copied();
    all.filter(|share| !matches!(share, PolicyName::GavelMaxMin | PolicyName::GavelMaxSum))
}

/// Returns a cluster of `gpus` GPUs on one node, under a policy that stops jobs for shorter ones.
fn scene(gpus: u32) -> Scene {
    let mut scene = Scene::cluster(1, gpus);
    scene.policy = Policy::named(PolicyName::Srtf);
    scene
}

/// Adds a user's program of one worker and `steps` steps, at 10 steps per second.
fn program(scene: &mut Scene, name: &str, steps: u64) {
    scene.job(name).ps_shards(0, 0).steps(steps);
    scene.find(name).command = Some(Ends::AllWorkers);
}

/// Lets `ms` pass, in which all running jobs train.
fn train(scene: &mut Scene, ms: i64) {
    scene.later(ms);
    for job in &mut scene.snapshot.jobs {
        if job.state.phase() == JobPhase::Running {
            job.trained_s += ms as f64 / 1_000.0;
        }
    }
}

/// Runs a long program for a day.
fn long_program(gpus: u32) -> Scene {
    let mut scene = scene(gpus);
    program(&mut scene, "long", 10_000_000);
    scene.settle();
    train(&mut scene, 24 * HOUR_MS);
    scene
}

fn report(scene: &mut Scene, name: &str, ago_ms: i64) {
    let at_ms = scene.snapshot.now_ms - ago_ms;
    scene.find(name).reported = Some(ReportedCheckpoint { step: 1, at_ms });
}

fn cost(plan: &RoundPlan) -> Option<PreemptionCost> {
    let mut costs = plan.decisions.iter().filter_map(|one| match one.action {
        Action::Displace { cost } => Some(cost),
        _ => None,
    });
    costs.next()
}

fn decide(scene: &mut Scene) -> RoundPlan {
    let plan = scene.round();
    scene.obey();
    plan
}

#[test]
fn program_without_checkpoint_outlasts_its_equals() {
    for &share in PolicyName::ALL {
        let mut scene = long_program(1);
        scene.policy = Policy::named(share);
        program(&mut scene, "minute", 600);
        scene.job("engine").steps(600);
        for _ in 0..5 {
            assert_eq!(stops(&decide(&mut scene)), 0, "{share:?}");
            train(&mut scene, HOUR_MS);
        }
        assert_eq!(scene.phase("long"), JobPhase::Running, "{share:?}");
    }
}

#[test]
fn program_with_fresh_checkpoint_stops_for_a_short_job() {
    let mut scene = long_program(1);
    scene
        .snapshot
        .tenants
        .push(scene.snapshot.tenants[0].clone());
    scene.snapshot.tenants[1].id = tenant(1);
    program(&mut scene, "minute", 600);
    scene.find("minute").tenant = tenant(1);
    report(&mut scene, "long", 16_000);
    assert_eq!(
        stops(&decide(&mut scene)),
        0,
        "16 s are over a quarter of 60 s"
    );
    report(&mut scene, "long", 14_000);
    let (_, said) = plan(&scene.snapshot, &scene.policy);
    let decided = decide(&mut scene);
    let expected = PreemptionCost {
        borne_by: tenant(0),
        gainer: scene.find("minute").id,
        gained_by: tenant(1),
        gpus: 1,
        work_ms: 14_000,
        restart_ms: 5_000,
        gain_gpu_ms: 60_000,
    };
    assert_eq!(cost(&decided), Some(expected));
    assert_eq!(said.preemptions.len(), 1);
    assert_eq!(
        (said.preemptions[0].job, said.preemptions[0].cost),
        (scene.find("long").id, expected)
    );
    let why = decided.decisions.iter().find_map(|one| match &one.action {
        Action::Stop { why, .. } => Some(why.clone()),
        _ => None,
    });
    let expected = "from 1 workers to the queue: another tenant's job needs room to start; it loses 14.0 s of work and 5.0 s to restart on 1 GPU, 19.0 GPU-seconds that t0 bears; another tenant's job gains 60 GPU-seconds";
    assert_eq!(why.as_deref(), Some(expected));
    assert_eq!(scene.find("long").lost_s, 14.0);
}

/// As the story of real processes: the default policy, a minute after a start.
#[test]
fn muster_stops_a_program_only_after_its_report() {
    let mut scene = scene(1);
    scene.policy = Policy::named(PolicyName::Muster);
    program(&mut scene, "long", 1_000_000);
    scene.settle();
    program(&mut scene, "minute", 600);
    for _ in 0..20 {
        train(&mut scene, 3_000);
        assert_eq!(stops(&decide(&mut scene)), 0);
    }
    report(&mut scene, "long", 1_000);
    let cost = cost(&decide(&mut scene)).expect("it makes room");
    assert_eq!((cost.work_ms, cost.gain_gpu_ms), (1_000, 60_000));
}

#[test]
fn higher_priority_stops_a_program_at_any_cost() {
    let mut scene = long_program(1);
    program(&mut scene, "urgent", 600);
    scene.find("urgent").priority = 1;
    let plan = decide(&mut scene);
    assert_eq!(cost(&plan).map(|cost| cost.work_ms), Some(86_400_000));
    assert_eq!(stops(&plan), 1);
}

#[test]
fn program_that_continued_before_risks_its_mean_loss() {
    let mut scene = long_program(1);
    let restarts = Restarts {
        resumed: 2,
        lost_steps: 100.0,
        ..Restarts::default()
    };
    scene.find("long").restarts = Some(restarts);
    program(&mut scene, "minute", 600);
    assert_eq!(
        cost(&decide(&mut scene)).map(|cost| cost.work_ms),
        Some(5_000)
    );
}

#[test]
fn program_that_answered_risks_its_time_to_a_checkpoint() {
    let request = Some(CheckpointOnRequest::default());
    for (checkpoint_on_request, answer_ms, work_ms) in [
        (request, Some(3_000), Some(3_000)),
        // The newest request had no answer.
        (request, None, None),
        // The document no longer allows requests.
        (None, Some(3_000), None),
    ] {
        let mut scene = long_program(1);
        scene.find("long").preemption.checkpoint_on_request = checkpoint_on_request;
        scene.find("long").answer_ms = answer_ms;
        report(&mut scene, "long", HOUR_MS);
        program(&mut scene, "minute", 600);
        let cost = cost(&decide(&mut scene));
        assert_eq!(cost.map(|cost| cost.work_ms), work_ms, "{answer_ms:?}");
    }
    let mut scene = long_program(1);
    scene.find("long").preemption.checkpoint_on_request = request;
    scene.find("long").answer_ms = Some(3_000);
    report(&mut scene, "long", 1_000);
    program(&mut scene, "minute", 600);
    let cost = cost(&decide(&mut scene));
    assert_eq!(cost.map(|cost| cost.work_ms), Some(1_000), "a newer report");
}

#[test]
fn program_continues_from_its_reported_step() {
    let mut scene = long_program(1);
    scene.find("long").progress.step = 500;
    assert_eq!(scene.find("long").resumable_step(), 0);
    let at_ms = scene.snapshot.now_ms;
    scene.find("long").reported = Some(ReportedCheckpoint { step: 400, at_ms });
    assert_eq!(scene.find("long").resumable_step(), 400);
    let restarts = Restarts {
        resumed: 1,
        lost_steps: 20.0,
        ..Restarts::default()
    };
    scene.find("long").restarts = Some(restarts);
    assert_eq!(
        scene.find("long").resumable_step(),
        480,
        "the better of both"
    );
    scene.find("long").progress.step = 300;
    assert_eq!(
        scene.find("long").resumable_step(),
        300,
        "not beyond its step"
    );
}

#[test]
fn engine_job_risks_no_work_for_its_equals() {
    let mut scene = scene(1);
    scene.job("long").steps(10_000_000);
    scene.find("long").suspends = false;
    scene.settle();
    train(&mut scene, 24 * HOUR_MS);
    program(&mut scene, "minute", 600);
    let plan = decide(&mut scene);
    let cost = cost(&plan).expect("it makes room");
    assert_eq!((cost.work_ms, cost.restart_ms), (0, 5_000));
    assert_eq!(scene.find("long").lost_s, 0.0);
}

#[test]
fn program_loses_at_most_its_budget_to_equals() {
    let mut scene = long_program(1);
    report(&mut scene, "long", 10_000);
    program(&mut scene, "minute", 600);
    scene.find("long").lost_s = 0.05 * 86_400.0 - 9.0;
    assert_eq!(stops(&decide(&mut scene)), 0);
    scene.find("long").lost_s = 0.05 * 86_400.0 - 10.0;
    assert_eq!(stops(&decide(&mut scene)), 1);
}

#[test]
fn newcomer_of_unknown_length_stops_no_program() {
    let mut scene = long_program(1);
    report(&mut scene, "long", 1_000);
    program(&mut scene, "unknown", 1);
    scene.find("unknown").progress.max_steps = None;
    assert_eq!(stops(&decide(&mut scene)), 0);
}

#[test]
fn exclusive_job_stops_only_for_higher_priority() {
    for share in prompt() {
        let mut scene = scene(1);
        scene.policy = Policy::named(share);
        scene.job("own").steps(10_000_000);
        scene.find("own").exclusive = true;
        scene.settle();
        train(&mut scene, 24 * HOUR_MS);
        program(&mut scene, "minute", 600);
        assert_eq!(stops(&decide(&mut scene)), 0, "{share:?}");
        scene.find("minute").priority = 1;
        assert_eq!(stops(&decide(&mut scene)), 1, "{share:?}");
    }
}

/// Two programs, of which the younger one in the policy's eyes risks more work.
#[test]
fn program_that_loses_least_makes_room() {
    for (ago, victim) in [((9_000, 2_000), "b"), ((2_000, 9_000), "a")] {
        let mut scene = scene(2);
        program(&mut scene, "a", 10_000_000);
        program(&mut scene, "b", 10_000_000);
        scene.settle();
        train(&mut scene, 24 * HOUR_MS);
        report(&mut scene, "a", ago.0);
        report(&mut scene, "b", ago.1);
        program(&mut scene, "minute", 600);
        decide(&mut scene);
        assert_ne!(scene.phase(victim), JobPhase::Running, "{ago:?}");
        let other = if victim == "a" { "b" } else { "a" };
        assert_eq!(scene.phase(other), JobPhase::Running, "{ago:?}");
    }
}

fn with_document(preemption: Preemption) -> Scene {
    let mut scene = scene(1);
    scene.job("old").steps(10_000_000);
    scene.find("old").preemption = preemption;
    scene.settle();
    scene
}

#[test]
fn document_that_forbids_stops_holds_for_any_priority() {
    for allowed in [AllowedPreemption::Never, AllowedPreemption::Suspend] {
        for in_place in [false, true] {
            for &share in PolicyName::ALL {
                let mut scene = with_document(Preemption {
                    allowed,
                    ..Preemption::default()
                });
                scene.find("old").in_place = in_place;
                scene.policy = Policy::named(share);
                train(&mut scene, HOUR_MS);
                program(&mut scene, "urgent", 600);
                scene.find("urgent").priority = 100;
                assert_eq!(stops(&decide(&mut scene)), 0, "{allowed:?} {share:?}");
            }
        }
    }
}

#[test]
fn urgent_job_takes_the_gpu_of_an_unprotected_job() {
    for share in prompt() {
        let mut scene = Scene::cluster(1, 2);
        scene.policy = Policy::named(share);
        for name in ["a", "b"] {
            scene.job(name).steps(10_000_000);
        }
        scene.settle();
        train(&mut scene, HOUR_MS);
        program(&mut scene, "urgent", 600);
        scene.find("urgent").priority = 100;
        let mut other = Scene {
            snapshot: scene.snapshot.clone(),
            policy: scene.policy.clone(),
        };
        for (scene, protected, victim) in [(&mut scene, "a", "b"), (&mut other, "b", "a")] {
            scene.find(protected).preemption.allowed = AllowedPreemption::Never;
            assert_eq!(stops(&decide(scene)), 1, "{share:?}");
            assert_ne!(scene.phase(victim), JobPhase::Running, "{share:?}");
        }
    }
}

#[test]
fn job_runs_its_min_runtime_before_it_makes_room() {
    let mut scene = with_document(Preemption {
        min_runtime: 600,
        ..Preemption::default()
    });
    program(&mut scene, "urgent", 600);
    scene.find("urgent").priority = 100;
    train(&mut scene, 599_000);
    assert_eq!(stops(&decide(&mut scene)), 0);
    train(&mut scene, 1_000);
    assert_eq!(stops(&decide(&mut scene)), 1);
}

/// Seconds after which the running job is first suspended for a waiting one, at most an hour.
fn first_suspension_s(preemption: Preemption) -> Option<i64> {
    let mut scene = with_document(preemption);
    scene.policy.slicing = Some(Slicing {
        quantum_ms: 60_000,
        suspended_per_gpu: 3,
    });
    let nodes = scene.snapshot.nodes.iter_mut();
    nodes.for_each(|node| node.driver_suspend = true);
    let began_ms = scene.find("old").running_ms.expect("it runs");
    program(&mut scene, "other", 10_000_000);
    for _ in 0..720 {
        let plan = decide(&mut scene);
        let suspends =
            |one: &muster_core::JobDecision| matches!(one.action, Action::Suspend { .. });
        if plan.decisions.iter().any(suspends) {
            return Some((scene.snapshot.now_ms - began_ms) / 1_000);
        }
        train(&mut scene, 5_000);
    }
    None
}

#[test]
fn time_slices_follow_the_document() {
    let document = |allowed, min_runtime| Preemption {
        allowed,
        min_runtime,
        ..Preemption::default()
    };
    for (allowed, min_runtime, expected) in [
        (AllowedPreemption::Never, 0, None),
        (AllowedPreemption::Suspend, 0, Some(60)),
        (AllowedPreemption::Restart, 0, Some(60)),
        (AllowedPreemption::Restart, 300, Some(300)),
    ] {
        let found = first_suspension_s(document(allowed, min_runtime));
        assert_eq!(found, expected, "{allowed:?} {min_runtime}");
    }
}

#[test]
fn checker_refuses_stops_against_the_rule() {
    let mut scene = long_program(1);
    report(&mut scene, "long", 14_000);
    program(&mut scene, "minute", 600);
    scene.snapshot.sort();
    let (right, _) = plan(&scene.snapshot, &scene.policy);
    assert_eq!(check(&scene.snapshot, &right), []);
    let job = scene.find("long").id;
    let expect = |scene: &Scene, plan: &RoundPlan, what| {
        let broken = check(&scene.snapshot, plan);
        assert_eq!(broken, [Violation::CostlyStop { job, what }]);
    };
    let silent = RoundPlan {
        decisions: right
            .decisions
            .iter()
            .filter(|one| !matches!(one.action, Action::Displace { .. }))
            .cloned()
            .collect(),
        ..right.clone()
    };
    expect(&scene, &silent, "without a stated cost");
    let mut understated = right.clone();
    for one in &mut understated.decisions {
        if let Action::Displace { cost } = &mut one.action {
            cost.work_ms = 1_000;
        }
    }
    expect(&scene, &understated, "with wrong work at risk in its cost");
    scene.find("long").lost_s = 86_400.0;
    expect(
        &scene,
        &right,
        "although it has lost too much to others already",
    );
    scene.find("long").lost_s = 0.0;
    scene.find("long").exclusive = true;
    expect(
        &scene,
        &right,
        "although it is exclusive and the other one does not precede it",
    );
    scene.find("long").exclusive = false;
    scene.find("long").preemption.allowed = AllowedPreemption::Suspend;
    expect(&scene, &right, "against its document");
    scene.find("long").preemption.allowed = AllowedPreemption::Restart;
    let mut strict = scene.policy.clone();
    strict.preemption.risk_share = 0.2;
    let what = "which gains too little for the work at risk";
    assert_eq!(
        check_with(&scene.snapshot, &right, &strict),
        [Violation::CostlyStop { job, what }]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Programs with random documents, checkpoints, lengths and priorities, under every policy. The
    /// scene checks each plan. No plan loses more than the rule allows.
    #[test]
    fn no_equal_or_lower_priority_costs_more_than_the_rule(
        share in 0..PolicyName::ALL.len(),
        slicing in any::<bool>(),
        jobs in prop::collection::vec((1_u64..200_000, -1_i32..2, 0_u32..4, 0_u32..5, any::<bool>()), 2..9),
        waits_s in prop::collection::vec(1_i64..3_000, 4..12),
    ) {
        let mut scene = Scene::cluster(2, 2);
        scene.policy = Policy::named(PolicyName::ALL[share]);
        scene.policy.slicing = slicing.then_some(Slicing { quantum_ms: 60_000, suspended_per_gpu: 3 });
        let mut left = jobs.iter().enumerate();
        for wait_s in waits_s {
            for (number, &(steps, priority, kind, document, reports)) in left.by_ref().take(2) {
                let name = format!("job-{number}");
                scene.job(&name).ps_shards(0, 0).steps(steps).priority(priority);
                let job = scene.find(&name);
                job.command = (kind > 0).then_some(Ends::AllWorkers);
                job.workers.max = 1 + kind;
                job.exclusive = document == 4;
                job.preemption.min_runtime = if document == 3 { 900 } else { 0 };
                job.preemption.allowed = match document {
                    1 => AllowedPreemption::Never,
                    2 => AllowedPreemption::Suspend,
                    _ => AllowedPreemption::Restart,
                };
                if reports {
                    job.reported = Some(ReportedCheckpoint { step: 0, at_ms: 0 });
                }
            }
            for _ in 0..3 {
                scene.snapshot.sort();
                let (decided, _) = plan(&scene.snapshot, &scene.policy);
                prop_assert_eq!(check(&scene.snapshot, &decided), Vec::new());
                for one in &decided.decisions {
                    let Action::Displace { cost } = one.action else { continue };
                    let find = |id| scene.snapshot.jobs.iter().find(|job| job.id == id).expect("a job");
                    let (job, gainer) = (find(one.job), find(cost.gainer));
                    prop_assert!(job.preemption.allowed == AllowedPreemption::Restart);
                    if gainer.priority <= job.priority {
                        prop_assert!(!job.exclusive);
                        prop_assert!(4 * cost.work_gpu_ms() <= cost.gain_gpu_ms);
                        prop_assert!(cost.work_ms == 0
                            || job.lost_s * 1_000.0 + cost.work_ms as f64 <= 50.0 * job.trained_s + 1.0);
                    }
                }
                apply(&mut scene.snapshot, &decided).expect("a checked plan can be carried out");
                scene.obey();
            }
            train(&mut scene, wait_s * 1_000);
            let now_ms = scene.snapshot.now_ms;
            for job in &mut scene.snapshot.jobs {
                if let Some(reported) = &mut job.reported {
                    reported.at_ms = now_ms - now_ms % 7_000;
                }
            }
        }
    }
}

/// A restart for the program's own growth is no stop for another job.
#[test]
fn program_grows_by_a_restart_of_its_own() {
    let mut scene = Scene::cluster(1, 4);
    scene.policy = Policy::named(PolicyName::Muster);
    program(&mut scene, "other", 100_000_000);
    program(&mut scene, "own", 100_000_000);
    scene.find("other").workers.min = 3;
    scene.find("other").workers.max = 3;
    scene.find("own").workers.max = 4;
    scene.settle();
    assert_eq!(scene.workers("own"), 1);
    train(&mut scene, 24 * HOUR_MS);
    scene.find("own").restarts = Some(Restarts {
        resumed: 1,
        ..Restarts::default()
    });
    scene.measured("own", 1, 10.0);
    let step = scene.find("other").progress.step;
    scene.find("other").finished = Some(muster_core::snapshot::Finished {
        step,
        reason: "done".to_owned(),
    });
    for _ in 0..12 {
        let (decided, _) = plan(&scene.snapshot, &scene.policy);
        assert_eq!(check(&scene.snapshot, &decided), [], "{decided:?}");
        decide(&mut scene);
        train(&mut scene, HOUR_MS);
    }
    assert!(scene.workers("own") > 1, "it grows");
}

/// A restart that makes the program faster on fewer GPUs is no stop for another job either.
#[test]
fn program_shrinks_where_fewer_gpus_are_faster() {
    let mut scene = Scene::cluster(2, 4);
    scene.policy = Policy::named(PolicyName::Muster);
    program(&mut scene, "own", 100_000_000);
    scene.find("own").workers = Range { min: 8, max: 8 };
    scene.settle();
    scene.find("own").workers = Range { min: 1, max: 8 };
    for (workers, steps_per_s) in [(1, 2.8), (2, 5.6), (4, 11.0), (8, 6.0)] {
        scene.measured("own", workers, steps_per_s);
    }
    train(&mut scene, 24 * HOUR_MS);
    report(&mut scene, "own", 20_000);
    let (decided, _) = plan(&scene.snapshot, &scene.policy);
    assert_eq!(check(&scene.snapshot, &decided), [], "{decided:?}");
    let plan = decide(&mut scene);
    scene.settle();
    assert_eq!(scene.workers("own"), 4, "{plan:?}");
    assert!(cost(&plan).is_none(), "no other job gains by it");
    let whys = format!("{plan:?}");
    assert!(
        whys.contains("from 8 to 4 workers: it is faster there"),
        "{whys}"
    );
}
