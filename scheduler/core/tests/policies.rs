//! Properties of the decisions of every policy on random problems, and the additional guarantees of
//! each policy.

use crate::dense::random::{self, Dice};
use crate::dense::{carried_out, cluster, job, tenant, told, violations};
use muster_core::policies::name::PolicyName;
use muster_core::problem::{
    FreeResources, PolicyDecision, ProblemJob, SchedulingProblem, gpus_of, nodes_of,
};
use proptest::prelude::*;

/// Guarantees of a policy beyond a valid decision.
struct ExpectedCapabilities {
    /// When a repeated decision on the applied result changes nothing.
    stability: Stability,
    /// No job waits that would fit into the remaining GPUs.
    work_conserving: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stability {
    Always,
    /// Unless a job was started that cannot be stopped. It precedes all others from then on.
    Stoppable,
    /// As `Stoppable`, on one GPU kind only.
    OneKind,
    /// As `Stoppable`, unless a running job was changed. In its first quantum that job keeps its
    /// place, so another way to gather a gang is tried and may succeed.
    Undisturbed,
    No,
}

fn promises(name: PolicyName) -> ExpectedCapabilities {
    use PolicyName as Name;
    let (stability, work_conserving) = match name {
        Name::Srtf | Name::Tiresias | Name::TiresiasGittins | Name::Themis => {
            (Stability::Always, true)
        }
        Name::Drf | Name::Tetris => (Stability::Stoppable, true),
        // GPUs may be reserved for a large gang.
        Name::Gandiva => (Stability::Undisturbed, false),
        // A reservation may leave GPUs idle.
        Name::Fifo => (Stability::Stoppable, false),
        Name::Optimus | Name::Slaq => (Stability::OneKind, true),
        // It decides once per instant.
        Name::Pollux => (Stability::Always, false),
        _ => (Stability::No, false),
    };
    ExpectedCapabilities {
        stability,
        work_conserving,
    }
}

/// Returns the policies that a case is tried with. A slow policy gets only a part of the cases.
fn policies(seed: u64) -> impl Iterator<Item = PolicyName> {
    let all = PolicyName::ALL.iter().copied();
    all.filter(move |&name| match name {
        // The genetic search evaluates 10,000 allocations.
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
    fn policies_place_jobs_only_on_allowed_nodes(seed: u64) {
        let mut dice = Dice(seed);
        let mut problem = random::problem(&mut dice, 3);
        random::restrict(&mut dice, &mut problem);
        for name in policies(seed) {
            let decision = name.policy().allocate(&problem);
            let violations = violations(&problem, &decision);
            prop_assert!(violations.is_empty(), "{name:?}: {violations:?} of {}", told(&problem));
        }
    }

    #[test]
    fn decisions_of_all_policies_are_valid(seed: u64) {
        let problem = random::problem(&mut Dice(seed), 3);
        for name in policies(seed) {
            let decision = name.policy().allocate(&problem);
            let wrong = violations(&problem, &decision);
            prop_assert!(wrong.is_empty(), "{name}: {wrong:?}\n{decision:?}\n{}", told(&problem));
        }
    }

    #[test]
    fn same_problem_gives_same_decision(seed: u64) {
        let problem = random::problem(&mut Dice(seed), 3);
        for name in policies(seed) {
            let decision = name.policy().allocate(&problem);
            let again = name.policy().allocate(&problem.clone());
            prop_assert_eq!(decision, again, "{}", name);
        }
    }

    #[test]
    fn repeated_decision_changes_nothing(seed: u64) {
        decides_once(seed)?;
    }

    #[test]
    fn work_conserving_policies_start_every_job_that_fits(seed: u64) {
        let problem = random::problem(&mut Dice(seed), 3);
        for name in policies(seed) {
            if !promises(name).work_conserving {
                continue;
            }
            let decision = name.policy().allocate(&problem);
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

/// Whether the decision changes a running job.
fn is_disturbed(problem: &SchedulingProblem, decision: &PolicyDecision) -> bool {
    let mut jobs = problem.jobs.iter().enumerate();
    jobs.any(|(job, of)| !of.present.is_empty() && decision.holds(problem, job) != of.present)
}

/// Checks that a repeated decision on the applied result changes nothing, for policies that
/// guarantee it.
fn decides_once(seed: u64) -> Result<(), TestCaseError> {
    let mut dice = Dice(seed);
    let kinds = dice.between(1, 3);
    let problem = random::problem(&mut dice, kinds);
    for name in policies(seed) {
        let decision = name.policy().allocate(&problem);
        let after = carried_out(&problem, &decision);
        let mut both = problem.jobs.iter().zip(&after.jobs);
        let pinned = both.any(|(before, after)| before.is_movable() && !after.is_movable());
        let promised = match promises(name).stability {
            Stability::Always => true,
            Stability::Stoppable => !pinned,
            Stability::OneKind => !pinned && problem.kinds.len() == 1,
            Stability::Undisturbed => !pinned && !is_disturbed(&problem, &decision),
            Stability::No => false,
        };
        if !promised {
            continue;
        }
        let again = name.policy().allocate(&after);
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

/// On this problem Pollux starts a job that cannot be stopped. Its next search would find room for
/// another.
#[test]
fn pollux_decides_once_with_unstoppable_start() {
    decides_once(16_310_918_544_295_290_700).unwrap();
}

/// Bound on the wait of a wide gang while small jobs keep arriving.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Maximum wait in seconds, per job that was there before the gang plus one.
    per_job_s: f64,
    /// Length of the gang in seconds.
    length_s: f64,
    name: PolicyName,
}

/// Policies with bounded waiting, given that jobs end (FIFO) or can be stopped (Gandiva).
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
    fn wide_gang_is_not_overtaken_without_bound(seed: u64) {
        for patience in PATIENT {
            let waited_s = wait_of_a_wide_gang(patience, &mut Dice(seed));
            prop_assert!(waited_s.is_some(), "{patience:?}");
        }
    }
}

/// Bound under the muster policy: overdue at a hundred times the length, so a case takes long.
const OVERDUE: Patience = Patience {
    per_job_s: 5_600.0,
    length_s: 100.0,
    name: PolicyName::Muster,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..config() })]

    #[test]
    fn muster_serves_overdue_job_under_overload(seed: u64) {
        let waited_s = wait_of_a_wide_gang(OVERDUE, &mut Dice(seed));
        prop_assert!(waited_s.is_some());
    }
}

/// Returns a job of up to `gpus` GPUs that was just submitted.
fn small(dice: &mut Dice, gpus: u32, now_s: f64) -> ProblemJob {
    let gpus = dice.between(1, gpus);
    ProblemJob {
        submitted_s: now_s,
        since_s: now_s,
        ..job(gpus, f64::from(dice.between(30, LONGEST_S as u32)))
    }
}

/// Returns the waiting time of the gang, or `None` if it exceeds the bound.
fn wait_of_a_wide_gang(patience: Patience, dice: &mut Dice) -> Option<f64> {
    let policy = patience.name.policy();
    let (nodes, gpus) = (dice.between(1, 4), dice.between(2, 8));
    let mut problem = cluster(nodes as usize, gpus);
    problem.now_s = 0.0;
    problem.round_s = f64::from(dice.between(10, 60));

    let before = dice.between(1, 8);
    problem.jobs = (0..before).map(|_| small(dice, gpus, 0.0)).collect();
    // Identified by its tenant, because jobs before it end.
    problem.tenants.push(tenant());
    let wide = dice.between(nodes * gpus / 2 + 1, nodes * gpus);
    problem.jobs.push(ProblemJob {
        tenant: 1,
        ..job(wide, patience.length_s)
    });
    while problem.now_s <= patience.per_job_s * f64::from(before + 1) {
        let decision = policy.allocate(&problem);
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
            let new = small(dice, gpus, problem.now_s);
            problem.jobs.push(new);
        }
    }
    None
}

/// Whether the requested gang fits into the free GPUs: on one node, or on the emptiest nodes first.
fn could_start(problem: &SchedulingProblem, job: usize) -> bool {
    let of = &problem.jobs[job];
    let unit = of.unit.gpus;
    let wanted = (of.request_gpus / unit * unit).max(of.min_gpus.div_ceil(unit) * unit);
    let mut with = problem.clone();
    // `violations` would not check an immovable job.
    with.jobs[job].preemptible = true;
    let tally = FreeResources::present(problem);
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
                parts.push(muster_core::problem::NodeAllocation { node, gpus });
                left -= gpus;
            }
        }
        let kind = u16::try_from(kind).expect("few");
        // A policy need not consider a place that is only possible because it is not packed as on
        // empty nodes.
        let runs = of.outlook.speed(kind, gpus_of(&parts), nodes_of(&parts)) > 0.0
            && of.outlook.curves[usize::from(kind)].packed(wanted, problem.node_gpus(kind)) > 0.0;
        with.jobs[job].present = parts;
        left == 0 && runs && violations(&with, &PolicyDecision::keep(&with)).is_empty()
    })
}
