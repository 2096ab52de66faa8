//! Invariants of the muster policy between two whole decisions, event by event.

use crate::dense::random::{self, Dice};
use crate::dense::{told, violations};
use muster_core::policies::SchedulingPolicy;
use muster_core::policies::muster::{AllocationChange, IncrementalState, Muster};
use muster_core::problem::{NodeAllocation, PolicyDecision, SchedulingProblem};
use proptest::prelude::*;

/// Present problem and allocations.
struct Now {
    problem: SchedulingProblem,
    holds: Vec<Vec<NodeAllocation>>,
    ended: Vec<bool>,
}

impl Now {
    fn take(&mut self, changes: &[AllocationChange]) -> Result<(), TestCaseError> {
        for change in changes {
            prop_assert!(!self.ended[change.job], "{change:?} of who ended");
            // A running job is changed only by a lost node, as a stop.
            let had = &self.holds[change.job];
            prop_assert!(
                had.is_empty() || change.parts.is_empty(),
                "{change:?} had {had:?}"
            );
            self.holds[change.job].clone_from(&change.parts);
        }
        Ok(())
    }

    fn examine(&self, standing: &IncrementalState<'_>) -> Result<(), TestCaseError> {
        for (job, holds) in self.holds.iter().enumerate() {
            prop_assert_eq!(standing.holds(job), &holds[..], "job {}", job);
        }
        let decision = PolicyDecision {
            parts: self.holds.iter().cloned().map(Some).collect(),
            worth: Vec::new(),
        };
        let wrong = violations(&self.problem, &decision);
        prop_assert!(wrong.is_empty(), "{wrong:?}\n{}", told(&self.problem));
        Ok(())
    }
}

fn walk(seed: u64) -> Result<(), TestCaseError> {
    let mut dice = Dice(seed);
    let mut before = random::problem(&mut dice, 3);
    for job in &mut before.jobs {
        (job.fixed, job.preemptible) = (false, true);
    }
    let others = random::problem(&mut dice, 3).jobs;
    let decision = Muster::STANDARD.allocate(&before);
    let mut standing = IncrementalState::after(Muster::STANDARD, &before, &decision);
    let mut now = Now {
        holds: (0..before.jobs.len())
            .map(|job| decision.holds(&before, job).to_vec())
            .collect(),
        ended: vec![false; before.jobs.len()],
        problem: before.clone(),
    };
    now.examine(&standing)?;
    for mut job in others {
        let changes = match dice.roll(3) {
            0 => {
                (job.fixed, job.preemptible) = (false, true);
                (job.present, job.held_s) = (Vec::new(), vec![0.0; before.kinds.len()]);
                now.problem.jobs.push(job.clone());
                now.holds.push(Vec::new());
                now.ended.push(false);
                standing.arrived(job)
            }
            1 if !now.holds.is_empty() => {
                let job = dice.roll(u32::try_from(now.holds.len()).expect("few")) as usize;
                now.holds[job].clear();
                now.ended[job] = true;
                standing.ended(job)
            }
            _ => {
                let node = dice.roll(u32::try_from(before.nodes.len()).expect("few"));
                now.problem.nodes[node as usize].gpus = 0;
                let torn = now.holds.iter_mut();
                torn.filter(|parts| parts.iter().any(|part| part.node == node))
                    .for_each(Vec::clear);
                standing.lost(node)
            }
        };
        now.take(&changes)?;
        now.examine(&standing)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn events_keep_allocations_valid_and_running_jobs(seed: u64) {
        walk(seed)?;
    }
}

/// Returns the change that starts a job on the first node.
fn started(job: usize, gpus: u32) -> AllocationChange {
    AllocationChange {
        job,
        parts: vec![NodeAllocation { node: 0, gpus }],
    }
}

/// Released GPUs are allocated at once, and new jobs start on free ones.
#[test]
fn waiting_job_starts_when_another_job_ends() {
    let mut problem = crate::dense::cluster(1, 4);
    problem.jobs = vec![
        crate::dense::runs(crate::dense::job(4, 1_000.0), &[(0, 4)], 0.0),
        crate::dense::job(2, 1e7),
    ];
    let decision = Muster::STANDARD.allocate(&problem);
    let mut standing = IncrementalState::after(Muster::STANDARD, &problem, &decision);
    assert_eq!(standing.holds(1), []);

    assert_eq!(standing.ended(0), [started(1, 2)]);
    assert_eq!(
        standing.arrived(crate::dense::job(2, 10.0)),
        [started(2, 2)]
    );
    let stopped = [1, 2].map(|job| AllocationChange {
        job,
        parts: Vec::new(),
    });
    assert_eq!(standing.lost(0), stopped);
}
