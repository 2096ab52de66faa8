//! Muster's own policy: elastic sizes that maximise the sum of a value over all jobs. The value is
//! high for jobs that end soon, use their GPUs well or have waited for long.
//!
//! The value of a size is `(time left + cost)^-p * efficiency^t * (1 + age)^a`:
//!
//! - The first factor lies between shortest remaining time first (large `p`) and plain throughput
//!   (small `p`).
//! - The second restricts inefficient large sizes to times in which no other job needs the GPUs.
//! - The third grows without bound, so no job waits for ever. Age is relative to the time that the
//!   job would take by itself, as in the finish-time ratio of Themis (NSDI 2020). An hour is long
//!   for a job of minutes and short for a job of days, so old long jobs do not outweigh all new
//!   ones.
//!
//! The time left of every size but the present one includes the cost of a restart, and more for a
//! job that changed often. So a change must pay for itself, and planning twice changes nothing. A
//! job grows at most to twice the size at which its family was measured, which bounds exploration.
//!
//! Strict classes precede the value. Jobs of higher priority are served first. Then come the oldest
//! overdue jobs, which bounds waiting under permanent overload. Then come jobs of tenants that hold
//! less than their share while they have waiting jobs.
//!
//! If there are more jobs than GPUs, jobs rotate: age and time left are evaluated in every round,
//! and the cost of a restart favours a job that was just started. Two jobs never share a GPU,
//! because a problem does not contain the cost of sharing.

mod choose;
mod exact;
mod greedy_hull;
mod incremental;
mod options;
mod place;
mod placement_index;
mod prices;
mod shares;
mod speed_order;
#[cfg(test)]
mod tests;

use super::{PolicyCapabilities, SchedulingPolicy};
use crate::problem::{PolicyDecision, ProblemJob, SchedulingProblem, gpus_of};
pub use incremental::{AllocationChange, IncrementalState};

/// The policy with its parameters. They were tuned on published workloads, at two loads and with
/// one and three GPU kinds. Nearby values give nearly the same results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Muster {
    /// Exponent `p` of the time left.
    pub power: f64,
    /// Exponent `t` of the efficiency: the speed per GPU over the best speed per GPU of the job on
    /// the same GPU kind.
    pub efficiency_exponent: f64,
    /// Exponent `a` of the age.
    pub ageing: f64,
    /// First part of the unit of age, in restarts of the job.
    pub age_unit_restarts: f64,
    /// Second part of the unit of age, in total durations of the job at its fastest size.
    pub age_unit_lengths: f64,
    /// Age from which the value grows only with the square root of the age. A job that waits for
    /// ever still comes first in the end, but a job from yesterday does not delay a new job of
    /// seconds.
    pub age_knee: f64,
    /// First part of the age from which a job is overdue, in restarts of the job. Overdue jobs
    /// precede others of their priority.
    pub overdue_restarts: f64,
    /// Second part of that age, in total durations of the job at its fastest size.
    pub overdue_lengths: f64,
    /// Number of restarts added to every time left, so that a job about to end does not outweigh
    /// all others.
    pub offset_restarts: f64,
    /// Weight of a restart. Estimates err, and a job that moves now may move again.
    pub caution: f64,
    /// Time for which a new job is assumed to keep a GPU kind, in changes of size. The changes of
    /// the job itself then count more and more.
    pub held_changes: f64,
    /// Minimum speed that each further GPU must add, as a share of the best speed per GPU of its
    /// kind.
    pub min_marginal_speed: f64,
    /// Maximum growth of a job, as a multiple of its largest measured size.
    pub explore_factor: u32,
    /// Weight of the uncertainty by which the expected work is reduced. A new job therefore starts
    /// early.
    pub unknown_length_discount: f64,
}

impl Muster {
    /// Default parameters.
    pub const STANDARD: Self = Self {
        power: 0.8,
        efficiency_exponent: 0.45,
        ageing: 2.0,
        age_unit_restarts: 240.0,
        age_unit_lengths: 0.25,
        age_knee: 5.0,
        overdue_restarts: 1_200.0,
        overdue_lengths: 100.0,
        offset_restarts: 6.5,
        caution: 5.0,
        held_changes: 60.0,
        min_marginal_speed: 0.2,
        explore_factor: 2,
        unknown_length_discount: 1.0,
    };
}

impl Muster {
    /// Returns the expected share of the time left that a job loses by changes if it changes its
    /// GPU kind now: the share that its changes, this one included, have cost since its submission.
    /// A job that changes often keeps its next kind only for a short time. So a small gain of speed
    /// does not pay for another kind, although the job has long to go (similar to the discount of
    /// Sia). On one kind the value of a size decides alone.
    fn lost_share(&self, job: &ProblemJob, now_s: f64) -> f64 {
        let usual_s = (job.restart_s * job.restart_cost_factor).max(1e-3);
        let changes_s = usual_s * f64::from(job.restarts) + job.change_s().max(1e-3);
        changes_s / (job.age_s(now_s) + self.held_changes * usual_s)
    }

    /// Returns the objective of this policy: the sum of the values of all sizes. A job on a size
    /// that is not among its options counts 0.
    #[must_use]
    pub fn objective(&self, problem: &SchedulingProblem, decision: &PolicyDecision) -> f64 {
        let table = options::OptionTable::of(problem, self);
        let all_options = table.all_options().into_iter().enumerate();
        all_options
            .filter_map(|(job, job_options)| {
                let parts = decision.holds(problem, job);
                let size = (problem.kind_of(parts.first()?), gpus_of(parts));
                let mut options = job_options.options.iter();
                let held = options.find(|option| (option.kind, option.gpus) == size)?;
                Some(held.value)
            })
            .sum()
    }
}

impl SchedulingPolicy for Muster {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        let table = options::OptionTable::of(problem, self);
        let all_options = table.all_options();
        let classes = shares::priorities(problem, self, &all_options);
        let mut chosen = choose::choose(problem, &all_options, &classes);
        if let Some(owed) = shares::owed(problem, &all_options, &classes, &chosen) {
            chosen = choose::choose(problem, &all_options, &owed);
        }
        let mut anew = place::place_options(problem, &all_options, chosen.clone());
        if let Some(chosen) = choose::refill(problem, &all_options, &chosen, &anew.held) {
            anew = place::place_options(problem, &all_options, chosen);
        }
        let Some(stays) = choose::stay(problem, &all_options) else {
            return place::decision(problem, &all_options, anew);
        };
        let stays = place::place_options(problem, &all_options, stays);
        let better = choose::is_better(&all_options, &classes, &anew.held, &stays.held);
        place::decision(problem, &all_options, if better { anew } else { stays })
    }

    fn capabilities(&self) -> PolicyCapabilities {
        PolicyCapabilities {
            restarts_pay: true,
            bounded_waiting: true,
            takes_turns: true,
            gathers: false,
        }
    }
}
