//! Choice of a size for every job, before nodes are chosen. On one GPU kind, steps are taken by
//! descending value per GPU. On several kinds, an exact search chooses the sizes, or prices if
//! there are many jobs. Then single improvements follow.

use super::greedy_hull::GreedyHull;
use super::options::{AllocationOption, JobOptions, OptionIndex};
use super::shares::Classes;
use super::{exact, prices};
use crate::policies::quota::Quota;
use crate::problem::{FreeResources, SchedulingProblem};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Maximum number of rounds of single improvements.
const ROUNDS: usize = 4;

/// Minimum number of jobs for which the steps that are certainly taken are computed first.
const MANY_JOBS: usize = 1_000;

/// Remaining capacity while sizes are chosen.
struct RemainingCapacity<'a> {
    problem: &'a SchedulingProblem,
    all_options: &'a [JobOptions<'a>],
    quota: Quota<'a>,
    /// Remaining GPUs by kind.
    left: Vec<u32>,
    /// Whether any tenant has a quota.
    limited: bool,
    chosen: Vec<OptionIndex>,
}

pub(super) fn choose(
    problem: &SchedulingProblem,
    all_options: &[JobOptions<'_>],
    classes: &Classes,
) -> Vec<OptionIndex> {
    let mut giving = RemainingCapacity::new(problem, all_options);
    if giving.left.iter().filter(|gpus| **gpus > 0).count() > 1 {
        let wanted = exact::best(problem, all_options, classes, &giving.left, &giving.quota)
            .unwrap_or_else(|| prices::at_prices(all_options, classes, &giving.left));
        for (job, choice) in wanted.into_iter().enumerate() {
            if let Some(to) = choice {
                giving.change(job, to);
            }
        }
    } else {
        giving.climb(classes);
    }
    giving.improve(|_| true);
    giving.chosen
}

/// Returns the choice in which all jobs keep their sizes and free GPUs are distributed. Returns
/// `None` if no job keeps a size.
pub(super) fn stay(
    problem: &SchedulingProblem,
    all_options: &[JobOptions<'_>],
) -> Option<Vec<OptionIndex>> {
    let mut giving = RemainingCapacity::new(problem, all_options);
    let mut any = false;
    for (job, job_options) in all_options.iter().enumerate() {
        if let Some(present) = job_options.present {
            any |= giving.change(job, present);
        }
    }
    if !any {
        return None;
    }
    giving.climb(&vec![0; all_options.len()]);
    giving.improve(|_| true);
    Some(giving.chosen)
}

/// Gives the GPUs of jobs that were chosen but found no place on the nodes where they may run to
/// other jobs. A choice counts GPUs by kind and does not see that some nodes are full. Returns
/// `None` if every such job has its size.
pub(super) fn refill(
    problem: &SchedulingProblem,
    all_options: &[JobOptions<'_>],
    chosen: &[OptionIndex],
    held: &[OptionIndex],
) -> Option<Vec<OptionIndex>> {
    let lacks_place = |job: usize| {
        problem.jobs[job].unit.nodes.is_restricted()
            && all_options[job].value(held[job]) < all_options[job].value(chosen[job])
    };
    let short: Vec<bool> = (0..held.len()).map(lacks_place).collect();
    if !short.contains(&true) {
        return None;
    }
    let mut giving = RemainingCapacity::new(problem, all_options);
    for (job, choice) in held.iter().enumerate() {
        if let Some(to) = *choice {
            giving.change(job, to);
        }
    }
    giving.improve(|job| !short[job]);
    Some(giving.chosen)
}

/// Whether `one` serves more jobs of a higher class than `other`, or is worth more with equally
/// many.
pub(super) fn is_better(
    all_options: &[JobOptions<'_>],
    classes: &Classes,
    one: &[OptionIndex],
    other: &[OptionIndex],
) -> bool {
    let mut by_class: std::collections::BTreeMap<i64, i64> = std::collections::BTreeMap::new();
    let (mut gained, mut total) = (0.0, 0.0);
    for (job, (a, b)) in one.iter().zip(other).enumerate() {
        let served = i64::from(a.is_some()) - i64::from(b.is_some());
        *by_class.entry(classes[job]).or_default() += served;
        let (a, b) = (all_options[job].value(*a), all_options[job].value(*b));
        gained += a - b;
        total += b;
    }
    // In the lowest class the value decides which jobs are served.
    let lowest = by_class.keys().next().copied();
    let higher = by_class
        .into_iter()
        .rev()
        .filter(|&(class, _)| Some(class) != lowest);
    match higher.map(|(_, served)| served).find(|&served| served != 0) {
        Some(served) => served > 0,
        None => gained > 1e-9 * total,
    }
}

impl<'a> RemainingCapacity<'a> {
    fn new(problem: &'a SchedulingProblem, all_options: &'a [JobOptions<'a>]) -> Self {
        let mut quota = Quota::whole(problem);
        let kinds = problem.nodes.iter().map(|node| usize::from(node.kind) + 1);
        let mut left = vec![0; kinds.max().unwrap_or(0)];
        let tally = FreeResources::beside_fixed(problem);
        for (node, free) in problem.nodes.iter().zip(&tally.free) {
            left[usize::from(node.kind)] += free;
        }
        for job in problem.jobs.iter().filter(|job| !job.is_movable()) {
            quota.charge(job.tenant, job.held_gpus());
        }
        let limited = quota.rows().next().is_some();
        Self {
            problem,
            all_options,
            limited,
            quota,
            left,
            chosen: vec![None; all_options.len()],
        }
    }

    fn option(&self, job: usize) -> Option<AllocationOption> {
        self.chosen[job].map(|option| self.all_options[job].options[option])
    }

    /// Whether the capacity allows a job to change from one option to another.
    fn fits(&self, new: &AllocationOption, old: Option<AllocationOption>) -> bool {
        let own = old.filter(|old| old.kind == new.kind);
        self.left[usize::from(new.kind)] + own.map_or(0, |own| own.gpus) >= new.gpus
    }

    /// Changes the option of a job, if the capacity and the quotas allow it.
    fn change(&mut self, job: usize, to: usize) -> bool {
        let (old, new) = (self.option(job), self.all_options[job].options[to]);
        if !self.fits(&new, old) {
            return false;
        }
        if self.limited {
            let tenant = self.problem.jobs[job].tenant;
            let had = old.map_or(0, |old| old.gpus);
            self.quota.refund(tenant, had);
            let allowed = self.quota.allows(tenant, new.gpus);
            self.quota
                .charge(tenant, if allowed { new.gpus } else { had });
            if !allowed {
                return false;
            }
        }
        if let Some(old) = old {
            self.left[usize::from(old.kind)] += old.gpus;
        }
        self.left[usize::from(new.kind)] -= new.gpus;
        self.chosen[job] = Some(to);
        true
    }

    fn is_spent(&self) -> bool {
        self.left.iter().all(|gpus| *gpus == 0)
    }

    /// Takes steps along the upper concave hulls of the options of all jobs without an option, by
    /// descending value per GPU, while GPUs are left.
    fn climb(&mut self, classes: &[i64]) {
        if self.is_spent() {
            return;
        }
        let mut climb =
            GreedyHull::new(self.all_options, classes, |job| self.chosen[job].is_none());
        if let [left] = self.left[..]
            && self.all_options.len() >= MANY_JOBS
            && !self.limited
        {
            for (job, to) in climb.surely(self.all_options, left) {
                self.change(job, to);
            }
        }
        let mut steps = BinaryHeap::from(climb.next);
        while let Some(mut step) = steps.peek_mut() {
            let job = step.job as usize;
            let changed = self.change(job, climb.corners[step.corner as usize] as usize);
            if self.is_spent() {
                break;
            }
            match step.above(self.all_options[job].options, &climb.corners, climb.lowest) {
                Some(above) if changed => *step = above,
                _ => drop(PeekMut::pop(step)),
            }
        }
    }

    /// Changes single jobs among those that `may` change to better options that fit into the
    /// remaining capacity.
    fn improve(&mut self, may: impl Fn(usize) -> bool) {
        for _ in 0..ROUNDS {
            if self.is_spent() {
                break;
            }
            let mut improved = false;
            for job in (0..self.all_options.len()).filter(|&job| may(job)) {
                if let Some(to) = self.improvement(job) {
                    improved |= self.change(job, to);
                }
            }
            if !improved {
                break;
            }
        }
    }

    fn improvement(&self, job: usize) -> OptionIndex {
        let has = self.option(job);
        let value = has.map_or(0.0, |option| option.value);

        let options = self.all_options[job].options.iter().enumerate();
        options
            .filter(|(_, option)| option.value > value * (1.0 + 1e-9) && self.fits(option, has))
            .max_by(|a, b| a.1.value.total_cmp(&b.1.value).then(b.0.cmp(&a.0)))
            .map(|(index, _)| index)
    }
}
