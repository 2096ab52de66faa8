//! What must hold of the decisions of every policy on random problems, and what each of them promises beyond that.

mod dense;

use dense::random::{self, Dice};
use dense::{carried_out, cluster, job, tenant, told, violations};
use muster_core::policies::name::PolicyName;
use muster_core::problem::{Job, Problem, Tally, gpus_of, nodes_of};
use proptest::prelude::*;

/// What a policy promises beside a right decision.
struct Promises {
    /// Deciding again on what was just carried out changes nothing.
    stability: Stability,
    /// Nobody waits who would fit into what was left over.
    work_conserving: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stability {
    Always,
    /// Unless a job was started that cannot be stopped any more, which counts as given before all others from then on.
    Stoppable,
    /// The same, where there is one kind of GPU.
    OneKind,
    /// Stoppable, unless somebody who ran was changed: in his first quantum he keeps his place, so that another way is sought
    /// to bring a gang together, and may be found.
    Undisturbed,
    No,
}

fn promises(name: PolicyName) -> Promises {
    use PolicyName as Name;
    let (stability, work_conserving) = match name {
        Name::Srtf | Name::Tiresias | Name::TiresiasGittins | Name::Themis => {
            (Stability::Always, true)
        }
        Name::Drf | Name::Tetris => (Stability::Stoppable, true),
        // Room for a large gang may be kept free.
        Name::Gandiva => (Stability::Undisturbed, false),
        // A reservation may leave GPUs idle.
        Name::Fifo => (Stability::Stoppable, false),
        Name::Optimus | Name::Slaq => (Stability::OneKind, true),
        // It is asked once at an instant.
        Name::Pollux => (Stability::Always, false),
        _ => (Stability::No, false),
    };
    Promises {
        stability,
        work_conserving,
    }
}

/// The policies that a case is tried on: a slow one is tried on a part of the cases only.
fn policies(seed: u64) -> impl Iterator<Item = PolicyName> {
    let all = PolicyName::ALL.iter().copied();
    all.filter(move |&name| match name {
        // A genetic search of 10,000 allocations.
        PolicyName::Pollux => seed.is_multiple_of(100),
        _ => true,
    })
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_policy_gives_what_is_not_there_splits_a_gang_or_moves_what_is_fixed(seed: u64) {
        let problem = random::problem(&mut Dice(seed), 3);
        for name in policies(seed) {
            let decision = name.share().share(&problem);
            let wrong = violations(&problem, &decision);
            prop_assert!(wrong.is_empty(), "{name}: {wrong:?}\n{decision:?}\n{}", told(&problem));
        }
    }

    #[test]
    fn the_same_problem_gives_the_same_decision(seed: u64) {
        let problem = random::problem(&mut Dice(seed), 3);
        for name in policies(seed) {
            let decide = || name.share().share(&problem.clone());
            prop_assert_eq!(decide(), decide(), "{}", name);
        }
    }

    #[test]
    fn deciding_twice_changes_nothing(seed: u64) {
        decides_once(seed)?;
    }

    #[test]
    fn nobody_waits_beside_what_he_needs(seed: u64) {
        let problem = random::problem(&mut Dice(seed), 3);
        for name in policies(seed) {
            if !promises(name).work_conserving {
                continue;
            }
            let decision = name.share().share(&problem);
            let after = carried_out(&problem, &decision);
            for job in 0..problem.jobs.len() {
                prop_assert!(
                    !after.jobs[job].present.is_empty() || !could_start(&after, job),
                    "{name}: job {job} waits\n{decision:?}\n{}", told(&problem)
                );
            }
        }
    }
}

/// Deciding again on what was just carried out changes nothing, where that is promised.
fn decides_once(seed: u64) -> Result<(), TestCaseError> {
    let mut dice = Dice(seed);
    let kinds = dice.between(1, 3);
    let problem = random::problem(&mut dice, kinds);
    for name in policies(seed) {
        let decision = name.share().share(&problem);
        let after = carried_out(&problem, &decision);
        let pinned = || {
            let mut jobs = problem.jobs.iter().zip(&after.jobs);
            jobs.any(|(before, after)| before.is_movable() && !after.is_movable())
        };
        let disturbed = || {
            let mut jobs = problem.jobs.iter().enumerate();
            jobs.any(|(job, of)| {
                !of.present.is_empty() && decision.holds(&problem, job) != of.present
            })
        };
        let promised = match promises(name).stability {
            Stability::Always => true,
            Stability::Stoppable => !pinned(),
            Stability::OneKind => !pinned() && problem.kinds.len() == 1,
            Stability::Undisturbed => !pinned() && !disturbed(),
            Stability::No => false,
        };
        if !promised {
            continue;
        }
        let again = name.share().share(&after);
        for job in 0..problem.jobs.len() {
            prop_assert_eq!(
                again.holds(&after, job),
                decision.holds(&problem, job),
                "{} job {}\n{:?}\n{:?}\n{}",
                name,
                job,
                decision.parts,
                again.parts,
                told(&problem)
            );
        }
    }
    Ok(())
}

/// Of this problem Pollux starts a job that cannot be stopped, beside which its search finds room for another the next time.
#[test]
fn pollux_decides_once_at_an_instant_that_starts_what_cannot_be_stopped() {
    decides_once(16_310_918_544_295_290_700).unwrap();
}

/// Whether a wide gang starts in the end, although small jobs never cease to come.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Seconds that it waits at most for each of those who were there before it, and once more.
    per_job_s: f64,
    /// Seconds that it takes.
    length_s: f64,
    name: PolicyName,
}

/// The policies that promise that nobody waits for ever, given that jobs end (FIFO) or may be stopped (Gandiva).
const PATIENT: [Patience; 2] = [
    Patience {
        per_job_s: LONGEST_S + 60.0,
        length_s: 100.0,
        name: PolicyName::Fifo,
    },
    Patience {
        per_job_s: 300.0,
        length_s: 100.0,
        name: PolicyName::Gandiva,
    },
];

const LONGEST_S: f64 = 600.0;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_wide_gang_is_not_overtaken_for_ever(seed: u64) {
        for patience in PATIENT {
            let waited_s = wait_of_a_wide_gang(patience, &mut Dice(seed));
            prop_assert!(waited_s.is_some(), "{patience:?}");
        }
    }
}

/// Overdue at a hundred times its length, which a case takes long to come to.
const OVERDUE: Patience = Patience {
    per_job_s: 5_600.0,
    length_s: 100.0,
    name: PolicyName::Muster,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..config() })]

    #[test]
    fn muster_serves_who_is_overdue_however_much_work_comes(seed: u64) {
        let waited_s = wait_of_a_wide_gang(OVERDUE, &mut Dice(seed));
        prop_assert!(waited_s.is_some());
    }
}

/// How long it waited; `None` when that was longer than promised.
fn wait_of_a_wide_gang(patience: Patience, dice: &mut Dice) -> Option<f64> {
    let policy = patience.name.share();
    let (nodes, gpus) = (dice.between(1, 4), dice.between(2, 8));
    let mut problem = cluster(nodes as usize, gpus);
    problem.now_s = 0.0;
    problem.round_s = f64::from(dice.between(10, 60));
    let small = |dice: &mut Dice, now_s: f64| Job {
        submitted_s: now_s,
        since_s: now_s,
        ..job(
            dice.between(1, gpus),
            f64::from(dice.between(30, LONGEST_S as u32)),
        )
    };
    let before = dice.between(1, 8);
    problem.jobs = (0..before).map(|_| small(dice, 0.0)).collect();
    // Told apart by its tenant, since jobs before it come to their ends.
    problem.tenants.push(tenant());
    let wide = dice.between(nodes * gpus / 2 + 1, nodes * gpus);
    problem.jobs.push(Job {
        tenant: 1,
        ..job(wide, patience.length_s)
    });
    while problem.now_s <= patience.per_job_s * f64::from(before + 1) {
        let decision = policy.share(&problem);
        problem = carried_out(&problem, &decision);
        let wide = problem.jobs.iter().find(|job| job.tenant == 1)?;
        if !wide.present.is_empty() {
            return Some(problem.now_s);
        }
        problem.now_s += problem.round_s;
        for job in &mut problem.jobs {
            let speed = job
                .outlook
                .speed(0, job.held_gpus(), nodes_of(&job.present));
            job.outlook.work_left -= speed * problem.round_s;
        }
        problem.jobs.retain(|job| job.outlook.work_left > 0.0);
        for _ in 0..dice.roll(4) {
            let new = small(dice, problem.now_s);
            problem.jobs.push(new);
        }
    }
    None
}

/// Whether the gang that was asked for fits into what is free: on one node, or on the emptiest first.
fn could_start(problem: &Problem, job: usize) -> bool {
    let of = &problem.jobs[job];
    let unit = of.unit.gpus;
    let wanted = (of.request_gpus / unit * unit).max(of.min_gpus.div_ceil(unit) * unit);
    let mut with = problem.clone();
    // What may not be touched would not be looked at.
    with.jobs[job].preemptible = true;
    let tally = Tally::present(problem);
    (0..problem.kinds.len()).any(|kind| {
        let mut free: Vec<(u32, u32)> = (0..)
            .zip(&problem.nodes)
            .filter(|(_, node)| usize::from(node.kind) == kind)
            .map(|(index, _)| (tally.available(index as usize, &of.unit), index))
            .collect();
        free.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = wanted;
        let mut parts = Vec::new();
        for (free, node) in free {
            let gpus = free.min(left);
            if gpus > 0 {
                parts.push(muster_core::problem::Part { node, gpus });
                left -= gpus;
            }
        }
        let kind = u16::try_from(kind).expect("few");
        // What runs on these nodes, but not where it would be packed on empty ones, is no promise of anybody.
        let runs = of.outlook.speed(kind, gpus_of(&parts), nodes_of(&parts)) > 0.0
            && of.outlook.curves[usize::from(kind)].packed(wanted, problem.node_gpus(kind)) > 0.0;
        with.jobs[job].present = parts;
        left == 0
            && runs
            && violations(&with, &muster_core::problem::Decision::keep(&with)).is_empty()
    })
}
