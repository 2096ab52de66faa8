//! Whether it pays to restart a running job at another size.
//!
//! A resize costs the job its stop, its start and the steps in between, and an estimate may be wrong; so a job is left alone unless
//! the time saved, the cost already paid, is a fair share of the time left. Only one wave of resizes is under way at a time: while
//! jobs stop or start, nothing is resized for speed, because the cluster that such a decision rests on is not there yet.

use crate::admit::{Admission, without_stopped};
use crate::contender::{Contender, Standing};
use crate::place::Gang;
use crate::policy::Policy;
use crate::scale::{Growing, Size, grow};
use crate::solve::{Problem, Solution};
use std::collections::{BTreeMap, BTreeSet};

/// More rounds of dropping doubtful candidates than this are not worth their time; then nobody is resized.
const MOST_TRIALS: usize = 8;

/// A solution, and the running jobs that are resized for it.
pub(crate) struct Resized {
    pub solution: Solution,
    pub resized: BTreeSet<usize>,
}

/// Improves on the admission's solution by resizing running jobs, where that pays.
pub(crate) fn improve(
    problem: &Problem<'_, '_>,
    admission: &Admission,
    base: Solution,
    policy: &Policy,
) -> Resized {
    let unchanged = |solution| Resized {
        solution,
        resized: BTreeSet::new(),
    };
    if !is_quiet(problem, policy) {
        return unchanged(base);
    }
    let movable: BTreeSet<usize> = problem
        .contenders
        .iter()
        .enumerate()
        .filter(|(index, contender)| {
            contender.standing == Standing::Running
                && !admission.stopped.contains(index)
                && ran_ms(problem, contender) >= policy.min_run_ms
        })
        .map(|(index, _)| index)
        .collect();
    if movable.is_empty() {
        return unchanged(base);
    }
    let improving = Improving {
        problem,
        admission,
        policy,
        base: &base,
    };
    let shifted = improving.shift(&movable);
    let better = shifted.or_else(|| improving.spread(&movable));
    better.unwrap_or_else(|| unchanged(base))
}

/// Whether nothing is under way. A start that takes longer than a job's shortest run does not hold up the others.
fn is_quiet(problem: &Problem<'_, '_>, policy: &Policy) -> bool {
    problem
        .contenders
        .iter()
        .all(|contender| match contender.standing {
            Standing::Starting => ran_ms(problem, contender) >= policy.min_run_ms,
            Standing::Evicted | Standing::Returning | Standing::Displaced => false,
            Standing::Resting | Standing::Ending => contender.job.held_gpus() == 0,
            Standing::Running | Standing::Queued => true,
        })
}

fn ran_ms(problem: &Problem<'_, '_>, contender: &Contender<'_>) -> u64 {
    let since_ms = contender.job.placed_ms.unwrap_or(i64::MIN);
    u64::try_from(problem.snapshot.now_ms.saturating_sub(since_ms)).unwrap_or(0)
}

struct Improving<'p, 's, 'a> {
    problem: &'p Problem<'s, 'a>,
    admission: &'p Admission,
    policy: &'p Policy,
    base: &'p Solution,
}

impl Improving<'_, '_, '_> {
    /// Takes from some to give to others: worth it only if all of them together gain.
    fn shift(&self, movable: &BTreeSet<usize>) -> Option<Resized> {
        let mut changed = self.wanted(movable, movable);
        for _ in 0..MOST_TRIALS {
            if changed.is_empty() {
                return None;
            }
            let solution = self.with(&changed)?;
            let idle: BTreeSet<usize> = changed
                .iter()
                .copied()
                .filter(|index| self.size(&solution, *index) == self.now(*index))
                .collect();
            if idle.is_empty() {
                return self.pays(&solution, &changed).then_some(Resized {
                    solution,
                    resized: changed,
                });
            }
            changed.retain(|index| !idle.contains(index));
        }
        None
    }

    /// Gives away only what is free: every job must gain by itself.
    fn spread(&self, movable: &BTreeSet<usize>) -> Option<Resized> {
        let mut growing = movable.clone();
        for _ in 0..MOST_TRIALS {
            let changed = self.wanted(&growing, &BTreeSet::new());
            if changed.is_empty() {
                return None;
            }
            let solution = self.with(&changed)?;
            let poor: BTreeSet<usize> = changed
                .iter()
                .copied()
                .filter(|&index| !self.pays(&solution, &BTreeSet::from([index])))
                .collect();
            if poor.is_empty() {
                return Some(Resized {
                    solution,
                    resized: changed,
                });
            }
            growing.retain(|index| !poor.contains(index));
        }
        None
    }

    /// Which of `movable` would have another size if sizes cost nothing. Those in `shrinkable` start from their minimum, the others
    /// from what they have.
    fn wanted(&self, movable: &BTreeSet<usize>, shrinkable: &BTreeSet<usize>) -> BTreeSet<usize> {
        let problem = self.problem;
        let mut stopped = self.admission.stopped.clone();
        stopped.extend(movable);
        let free = without_stopped(problem.snapshot, problem.contenders, &stopped);
        let mut budget = problem.budget(&free, &stopped);
        let mut turns: BTreeMap<_, usize> = self.admission.starters.clone();
        turns.extend(
            movable
                .iter()
                .map(|&index| (problem.contenders[index].claim(), index)),
        );
        let growing: Vec<Growing> = turns
            .values()
            .map(|&index| {
                let job = problem.contenders[index].job;
                let keeps = movable.contains(&index) && !shrinkable.contains(&index);
                let from = if keeps {
                    self.now(index)
                } else {
                    (job.workers.min, job.ps_shards.min)
                };
                budget.force(Gang {
                    job,
                    workers: from.0,
                    ps_shards: from.1,
                });
                Growing { index, from }
            })
            .collect();
        let sizes = grow(problem.contenders, &growing, budget).sizes;
        movable
            .iter()
            .copied()
            .filter(|index| sizes.get(index) != Some(&self.now(*index)))
            .collect()
    }

    fn with(&self, changed: &BTreeSet<usize>) -> Option<Solution> {
        let mut starters = self.admission.starters.clone();
        starters.extend(
            changed
                .iter()
                .map(|&index| (self.problem.contenders[index].claim(), index)),
        );
        let mut stopped = self.admission.stopped.clone();
        stopped.extend(changed);
        self.problem.solve(&starters, &stopped)
    }

    /// Whether the jobs in `changed` and those that start anyway save enough time together.
    fn pays(&self, solution: &Solution, changed: &BTreeSet<usize>) -> bool {
        let cost_s = self.policy.resize_cost_ms as f64 / 1000.0;
        let (mut saved_s, mut before_s) = (0.0, 0.0);
        for &index in changed {
            let estimate = &self.problem.contenders[index].estimate;
            let now_s = estimate.time_s(self.now(index));
            before_s += now_s;
            saved_s += now_s - estimate.time_s(self.size(solution, index)) - cost_s;
        }
        for &index in self.admission.starters.values() {
            let estimate = &self.problem.contenders[index].estimate;
            let base_s = estimate.time_s(self.size(self.base, index));
            saved_s += base_s - estimate.time_s(self.size(solution, index));
        }
        saved_s > 0.0 && saved_s >= self.policy.min_gain * before_s
    }

    fn now(&self, index: usize) -> Size {
        self.problem.contenders[index].job.size()
    }

    /// The size under a solution: the present one where it has nothing to say.
    fn size(&self, solution: &Solution, index: usize) -> Size {
        solution
            .placed
            .get(&index)
            .map_or_else(|| self.now(index), |placed| placed.size)
    }
}
