//! Jobs with a number of workers that must be a power of two never get another number, under every
//! policy.

use crate::dense::random::Dice;
use crate::scene::{Scene, gone};
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::problem::gpus_of;
use muster_core::{Violation, apply, check, plan};
use muster_model::job::JobPhase;
use muster_model::spec::Ends;
use muster_model::task::Outcome;
use proptest::prelude::*;

/// Whether the GPUs are a number of units that is a power of two.
fn is_allowed(gpus: u32, unit: u32) -> bool {
    gpus.is_multiple_of(unit) && (gpus / unit).is_power_of_two()
}

/// Slow policies decide on fewer problems.
fn is_slow(share: PolicyName) -> bool {
    matches!(
        share,
        PolicyName::Pollux | PolicyName::Sia | PolicyName::GavelMaxMin | PolicyName::GavelMaxSum
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// A job has no speed at a size that it may not have, so a policy that reads the curves never
    /// uses it.
    #[test]
    fn policies_keep_powers_of_two(seed: u64) {
        let mut dice = Dice(seed);
        let mut problem = crate::dense::random::problem(&mut dice, 2);
        for job in &mut problem.jobs {
            let unit = job.unit.gpus;

            let mut curves = job.outlook.curves.to_vec();
            for curve in &mut curves {
                for speeds in [&mut curve.local, &mut curve.spread] {
                    for (gpus, speed) in (1..).zip(speeds.iter_mut()) {
                        if !is_allowed(gpus, unit) {
                            *speed = 0.0;
                        }
                    }
                }
            }
            job.outlook.curves = curves.into();
            if !is_allowed(gpus_of(&job.present), unit) {
                job.present.clear();
                job.fixed = false;
            }
        }
        let shares = PolicyName::ALL.iter().filter(|&&share| !is_slow(share) || dice.one_in(20));
        for share in shares {
            let decision = share.policy().allocate(&problem);
            prop_assert_eq!(
                crate::dense::violations(&problem, &decision), Vec::<String>::new(),
                "{:?} in {}", share, crate::dense::told(&problem),
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Rounds in which speeds change, workers fail, nodes drain and quotas change.
    #[test]
    fn rounds_keep_powers_of_two(seed: u64, share in 0_usize..5) {
        let share = [
            PolicyName::Muster, PolicyName::Optimus, PolicyName::Tiresias, PolicyName::Gandiva, PolicyName::Drf,
        ][share];
        let mut dice = Dice(seed);
        let mut scene = Scene::cluster(3, 4);
        scene.policy = Policy::named(share);
        for number in 0..4 {
            let (min, max) = [(1, 8), (2, 8), (4, 4), (1, 2)][dice.roll(4) as usize];
            let job = scene.job(&format!("j{number}")).workers(min, max).ps_shards(0, 0).0;
            job.power_of_two = true;
            job.in_place = dice.one_in(2);
            job.progress.max_steps = Some(500_000);
        }
        for _ in 0..25 {
            scene.snapshot.sort();
            let (plan, _) = plan(&scene.snapshot, &scene.policy);
            prop_assert_eq!(check(&scene.snapshot, &plan), Vec::new());
            apply(&mut scene.snapshot, &plan).expect("a checked plan");
            for job in &scene.snapshot.jobs {
                let trains = job.state.phase() == JobPhase::Running;
                let (workers, _) = job.size();
                prop_assert!(!trains || workers.is_power_of_two(), "{workers} of {}", job.name);
            }
            scene.obey();
            for job in &mut scene.snapshot.jobs {
                if job.state.phase() != JobPhase::Running {
                    continue;
                }
                let workers = job.size().0;
                job.speeds.retain(|point| point.workers != workers);
                job.speeds.push(muster_core::snapshot::SpeedPoint {
                    workers, ps_shards: 0, steps_per_s: f64::from(dice.between(1, 9) * workers), samples: 50,
                });
                if dice.one_in(6) {
                    let last = job.tasks.len() - 1;
                    job.tasks[last].state = gone(Outcome::exited(1));
                    job.retries = 100;
                }
            }
            let node = dice.roll(3) as usize;
            scene.snapshot.nodes[node].drained = dice.one_in(4);
            scene.snapshot.tenants[0].gpu_quota = (!dice.one_in(3)).then(|| dice.between(1, 12));
            scene.later(i64::from(dice.between(1, 40)) * 1_000);
        }
    }
}

#[test]
fn job_grows_past_forbidden_sizes() {
    let shares = [PolicyName::Muster, PolicyName::Optimus];
    let commands = [None, Some(Ends::AllWorkers)];
    let cases = shares.map(|share| commands.map(|command| (share, command)));
    for (share, command) in cases.into_iter().flatten() {
        let mut scene = Scene::cluster(1, 8);
        scene.policy = Policy::named(share);
        scene.job("a").workers(1, 8).ps_shards(0, 0).0.power_of_two = true;
        for workers in [1, 2, 4, 8] {
            scene.measured("a", workers, 10.0 * f64::from(workers));
        }
        scene.find("a").command = command;
        scene.job("b").workers(2, 2).ps_shards(0, 0);
        scene.settle();
        let what = format!("{share:?}, {command:?}: six are free");
        assert_eq!(scene.workers("a"), 4, "{what}");
    }
}

#[test]
fn check_rejects_other_number_than_power_of_two() {
    let mut scene = Scene::cluster(1, 4);
    scene.job("a").workers(3, 3).ps_shards(0, 0);
    let (plan, _) = plan(&scene.snapshot, &scene.policy);
    assert_eq!(check(&scene.snapshot, &plan), Vec::new());
    scene.find("a").power_of_two = true;
    let job = scene.find("a").id;
    let wrong = Violation::OutsideRange {
        job,
        role: "worker",
        count: 3,
    };
    assert_eq!(check(&scene.snapshot, &plan), [wrong]);
}
