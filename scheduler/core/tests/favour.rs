//! Exchange between a study's trials: other jobs are unaffected, and trials of larger expected gain
//! come first.

use crate::dense::random::{self, Dice};
use crate::dense::{cluster, job, sizes, violations};
use muster_core::policies::name::PolicyName;
use muster_core::policies::prioritise_trials::prioritise_trials;
use muster_core::problem::{
    NodeAllocation, PolicyDecision, ProblemJob, ProblemTrial, SchedulingProblem, gpus_of,
};
use proptest::prelude::*;

fn trial(study: u32, gain: f64) -> Option<ProblemTrial> {
    Some(ProblemTrial { study, gain })
}

/// Returns the GPUs held by each tenant, by priority, and the GPUs allocated on each node.
fn sums(problem: &SchedulingProblem, decision: &PolicyDecision) -> (Vec<u32>, Vec<u32>) {
    let mut of_tenants = vec![0; problem.tenants.len() * 3];
    let mut of_nodes = vec![0; problem.nodes.len()];
    for (index, job) in problem.jobs.iter().enumerate() {
        let parts = decision.holds(problem, index);
        let class = usize::try_from(job.priority + 1).expect("-1 to 1");
        of_tenants[job.tenant as usize * 3 + class] += gpus_of(parts);
        parts
            .iter()
            .for_each(|part| of_nodes[part.node as usize] += part.gpus);
    }
    (of_tenants, of_nodes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn expected_gains_do_not_change_gpus_of_tenants(seed: u64) {
        let mut dice = Dice(seed);
        let mut problem = random::problem(&mut dice, 2);
        for job in &mut problem.jobs {
            // Trials of a study belong to one tenant and often have equal demands.
            if !dice.one_in(4) {
                job.trial = trial(job.tenant * 2 + dice.roll(2), f64::from(dice.roll(5)) / 4.0);
                job.unit.cpu_milli = 0;
                job.unit.memory_bytes = 0;
                job.priority = job.priority.min(0);
            }
        }
        for name in [PolicyName::Muster, PolicyName::Srtf, PolicyName::Optimus, PolicyName::Drf] {
            let plain = name.policy().allocate(&problem);
            let favoured = prioritise_trials(&problem, plain.clone());
            prop_assert_eq!(sums(&problem, &plain), sums(&problem, &favoured));
            let before = violations(&problem, &plain);
            let after = violations(&problem, &favoured);
            prop_assert!(before.is_empty() && after.is_empty(), "{name:?}: {after:?}");
            for (index, job) in problem.jobs.iter().enumerate() {
                let same = plain.holds(&problem, index) == favoured.holds(&problem, index);
                prop_assert!(same || job.trial.is_some(), "{name:?} changed a stranger");
                let stopped = favoured.holds(&problem, index).is_empty() && !plain.holds(&problem, index).is_empty();
                prop_assert!(!stopped || job.present.is_empty(), "{name:?} stopped one who runs");
            }
            let again = prioritise_trials(&problem, favoured.clone());
            prop_assert_eq!(again, favoured, "once is enough");
        }
    }
}

fn problem(jobs: Vec<ProblemJob>, gpus: u32) -> SchedulingProblem {
    SchedulingProblem {
        jobs,
        ..cluster(1, gpus)
    }
}

fn waiting(study: u32, gain: f64) -> ProblemJob {
    ProblemJob {
        trial: trial(study, gain),
        ..job(1, 100.0)
    }
}

fn running(study: u32, gain: f64) -> ProblemJob {
    ProblemJob {
        present: vec![NodeAllocation { node: 0, gpus: 1 }],
        ..waiting(study, gain)
    }
}

#[test]
fn promising_trials_start_first_within_their_study() {
    let jobs = vec![
        waiting(0, 0.2),
        waiting(1, 0.1),
        waiting(0, 0.9),
        waiting(0, 0.5),
    ];
    let problem = problem(jobs, 2);
    let plain = PolicyName::Fifo.policy().allocate(&problem);
    assert_eq!(sizes(&problem, &plain), [1, 1, 0, 0]);
    let favoured = prioritise_trials(&problem, plain);
    assert_eq!(sizes(&problem, &favoured), [0, 1, 1, 0]);
}

#[test]
fn promising_trials_grow_first_without_stopping_others() {
    let mut problem = problem(vec![running(0, 0.2), running(0, 0.9), waiting(0, 1.0)], 4);
    (problem.jobs[0].max_gpus, problem.jobs[1].max_gpus) = (4, 4);
    let grown = PolicyDecision {
        parts: vec![Some(vec![NodeAllocation { node: 0, gpus: 3 }]), None, None],
        worth: Vec::new(),
    };
    let favoured = prioritise_trials(&problem, grown);
    assert_eq!(sizes(&problem, &favoured), [1, 3, 0]);
}

#[test]
fn running_trial_is_not_stopped_for_less_promising_one() {
    let problem = problem(vec![waiting(0, 0.2), running(0, 0.9)], 1);
    let turned = PolicyDecision {
        parts: vec![Some(problem.jobs[1].present.clone()), Some(Vec::new())],
        worth: Vec::new(),
    };
    assert_eq!(prioritise_trials(&problem, turned).parts, [None, None]);
}
