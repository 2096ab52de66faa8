//! Gavel (Narayanan et al., OSDI 2020): a linear programme decides which fraction of its time each
//! job should spend on each GPU kind. Rounds allocate the GPUs so that the received time approaches
//! these fractions.
//!
//! Gangs are rigid and run at their requested size. A round lasts 360 s. All is decided anew at its
//! beginning. During a round no job is displaced, and released GPUs go to waiting jobs, so an
//! arrival need not wait for the next round. The Gavel of the Sia artefact differs: an arrival
//! waits there, and a job without any fraction gets the first kind with room instead of the
//! fastest.
//!
//! Rounds begin at multiples of their length since the problem's origin. A decision opens a round
//! if such an instant lies within the last `round_s` seconds.
//!
//! Gavel has no strict priorities. Here each priority is decided on what the higher ones leave.

mod fractions;
#[cfg(test)]
mod tests;
mod weights;

use super::SchedulingPolicy;
use super::allocation_state::AllocationState;
use super::wish_placement::{self, SizeWish, free_by_kind};
use crate::problem::{PolicyDecision, ProblemJob, SchedulingProblem};
use fractions::TimeFraction;

/// Length of a round in seconds.
const ROUND_S: f64 = 360.0;

/// Policy with time fractions from a linear programme and rounds by priority.
#[derive(Debug, Clone, Copy)]
pub struct Gavel {
    objective: Objective,
}

/// Objective of the time fractions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Objective {
    /// The smallest weighted throughput, relative to the one of an equal share of every kind.
    MaxMin,
    /// The sum of the throughputs, each in the job's own unit of work. The Sia artefact compares
    /// with it.
    MaxSum,
}

impl Gavel {
    /// Returns the fair variant: it maximises the smallest normalised throughput.
    #[must_use]
    pub fn max_min() -> Self {
        Self {
            objective: Objective::MaxMin,
        }
    }

    /// Returns the variant that maximises the total throughput.
    #[must_use]
    pub fn max_sum() -> Self {
        Self {
            objective: Objective::MaxSum,
        }
    }
}

/// A job on a kind, and its claim to time there.
#[derive(Debug, Clone, Copy)]
struct KindClaim {
    wish: SizeWish,
    /// Fraction of time that the job should have, over its part of the time that all jobs received
    /// there.
    priority: f64,
    /// Speed relative to the job's fastest kind.
    speed: f64,
}

impl SchedulingPolicy for Gavel {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        let mut state = AllocationState::beside_fixed(problem);
        if !begins_round(problem) {
            keep_running(&mut state);
        }
        for mut level in wish_placement::levels(problem) {
            level.retain(|&job| state.given(job).is_none());
            let chances = fractions::solve(self.objective, &state, &level);
            let entries = entries(&state, &chances);
            let wishes = fill(&state, &entries);
            wish_placement::place_wishes(&mut state, &wishes);
            // Whole units, fragmentation, CPU and memory can exclude a wish. Any job that fits
            // takes the rest.
            for entry in &entries {
                if state.given(entry.wish.job).is_none() {
                    wish_placement::place_tight(&mut state, entry.wish);
                }
            }
        }
        state.decision()
    }
}

/// Whether a round began since the previous decision.
fn begins_round(problem: &SchedulingProblem) -> bool {
    let before_s = problem.now_s - problem.round_s;
    problem.round_s <= 0.0 || round_at(problem.now_s) > round_at(before_s)
}

/// Returns the number of the round at an instant.
fn round_at(at_s: f64) -> f64 {
    (at_s / ROUND_S).floor()
}

fn keep_running(state: &mut AllocationState<'_>) {
    for job in 0..state.problem.jobs.len() {
        if state.problem.jobs[job].is_movable() && state.can_keep(job) {
            state.keep(job);
        }
    }
}

/// Returns every job on every kind on which it runs, by descending priority.
fn entries(state: &AllocationState<'_>, chances: &[Vec<TimeFraction>]) -> Vec<KindClaim> {
    let jobs = &state.problem.jobs;
    let mut totals: Vec<(u16, f64)> = Vec::new();
    for &(kind, _) in state.kinds() {
        totals.push((kind, jobs.iter().map(|job| received_s(job, kind)).sum()));
    }
    let mut entries = Vec::new();
    for of_job in chances {
        let speeds = of_job.iter().map(|chance| chance.speed);
        let fastest = speeds.fold(0.0, f64::max);
        for chance in of_job {
            let SizeWish { job, kind, .. } = chance.wish;
            let total = totals.iter().find(|&&(of, _)| of == kind);
            let total = total.map_or(1.0, |&(_, total)| total);
            entries.push(KindClaim {
                wish: chance.wish,
                priority: chance.fraction * total / received_s(&jobs[job], kind),
                speed: chance.speed / fastest,
            });
        }
    }
    // The sort is stable: among equals the first submitted job comes first.
    entries.sort_by(|a, b| {
        let by_priority = b.priority.total_cmp(&a.priority);
        by_priority.then(b.speed.total_cmp(&a.speed))
    });
    entries
}

/// Returns the seconds that a job received on a kind, and half a round. New jobs therefore have a
/// finite priority, as in the artefact.
fn received_s(job: &ProblemJob, kind: u16) -> f64 {
    job.held_s.get(usize::from(kind)).copied().unwrap_or(0.0) + ROUND_S / 2.0
}

/// Returns the wishes that fit in this order, by GPU counts and quotas alone.
fn fill(state: &AllocationState<'_>, entries: &[KindClaim]) -> Vec<SizeWish> {
    let mut free = free_by_kind(state);
    let mut served = vec![false; state.problem.jobs.len()];
    let mut quota = state.quota.clone();
    let mut wishes = Vec::new();
    for KindClaim { wish, .. } in entries {
        let left = &mut free[usize::from(wish.kind)];
        let tenant = state.problem.jobs[wish.job].tenant;
        if served[wish.job] || *left < wish.gpus || !quota.allows(tenant, wish.gpus) {
            continue;
        }
        *left -= wish.gpus;
        quota.charge(tenant, wish.gpus);
        served[wish.job] = true;
        wishes.push(*wish);
    }
    wishes
}
