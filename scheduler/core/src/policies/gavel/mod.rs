//! Gavel (Narayanan et al., OSDI 2020): a linear programme decides which fraction of its time each
//! job should spend on each GPU kind. Rounds allocate the GPUs so that the received time approaches
//! these fractions.
//!
//! Jobs run at their requested size. A round of Gavel lasts 360 s, and its first decision places
//! all jobs anew. Until the next round no job is displaced, and released GPUs go to waiting jobs.
//! The Gavel of the Sia artefact differs in two points. A new job waits there for the next round. A
//! job without any fraction gets the first kind with room instead of the fastest.
//!
//! Gavel's rounds begin at multiples of 360 s of the problem's clock. A decision opens a round if
//! one began within the last `round_s` seconds, the longest time between two decisions. If events
//! cause more decisions in that time, each of them opens the round again.
//!
//! The paper has no strict priorities. Here the programme is solved once per priority, for the GPUs
//! that the higher priorities leave.

mod fractions;
mod strict;
#[cfg(test)]
mod tests;
mod weights;

use super::SchedulingPolicy;
use super::allocation_state::AllocationState;
use super::wish_placement::{self, SizeWish, free_by_kind};
use crate::problem::{PolicyDecision, ProblemJob, SchedulingProblem};
use fractions::TimeFraction;

/// Length of a round of Gavel in seconds.
const ROUND_S: f64 = 360.0;

/// The policy; see the module.
#[derive(Debug, Clone, Copy)]
pub struct Gavel {
    objective: Objective,
    /// Whether the policy follows Sia's artefact: nothing happens within a round, equal jobs have
    /// equal fractions, and places are taken in the order of the nodes.
    is_strict: bool,
}

/// Objective of the time fractions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Objective {
    /// The smallest weighted throughput, relative to the one of an equal share of every kind.
    MaxMin,
    /// The sum of the throughputs, each in the job's own unit of work. The Sia artefact uses this
    /// variant as a baseline.
    MaxSum,
}

impl Gavel {
    /// Returns the fair variant: it maximises the smallest normalised throughput.
    #[must_use]
    pub fn max_min() -> Self {
        Self {
            objective: Objective::MaxMin,
            is_strict: false,
        }
    }

    /// Returns the variant that maximises the total throughput.
    #[must_use]
    pub fn max_sum() -> Self {
        Self {
            objective: Objective::MaxSum,
            is_strict: false,
        }
    }

    /// Returns the second variant as Sia's artefact runs it. It is for comparisons: free GPUs stay
    /// idle until the next round, and jobs move more often.
    #[must_use]
    pub fn strict_max_sum() -> Self {
        Self {
            is_strict: true,
            ..Self::max_sum()
        }
    }
}

/// A job on a GPU kind, and its claim to time there.
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
            if self.is_strict {
                return state.decision();
            }
        }
        for mut level in wish_placement::levels(problem) {
            level.retain(|&job| state.given(job).is_none());
            let mut fractions = fractions::solve(self.objective, &state, &level);
            if self.is_strict {
                strict::split_ties(&mut fractions);
            }
            let mut claims = claims(&state, &fractions);
            self.sort(&mut claims);
            let wishes = fill(&state, &claims);
            if self.is_strict {
                strict::place_in_order(&mut state, &wishes);
                continue;
            }
            wish_placement::place_wishes(&mut state, &wishes);
            // `fill` counts GPUs only. A wish can still fail by whole units, fragmentation, CPU or
            // memory. Any job that fits takes the rest.
            for claim in &claims {
                if state.given(claim.wish.job).is_none() {
                    wish_placement::place_tight(&mut state, claim.wish);
                }
            }
        }
        state.decision()
    }
}

/// Whether a round of Gavel began within the last `round_s` seconds.
fn begins_round(problem: &SchedulingProblem) -> bool {
    let before_s = problem.now_s - problem.round_s;
    problem.round_s <= 0.0 || round_at(problem.now_s) > round_at(before_s)
}

/// Returns the number of the round at an instant.
fn round_at(at_s: f64) -> f64 {
    (at_s / ROUND_S).floor()
}

/// Keeps every running job where it is.
fn keep_running(state: &mut AllocationState<'_>) {
    for job in 0..state.problem.jobs.len() {
        if state.problem.jobs[job].is_movable() && state.can_keep(job) {
            state.keep(job);
        }
    }
}

impl Gavel {
    /// Orders claims by descending priority. The artefact orders equals by kind, this policy by
    /// speed. Among further equals the first submitted job comes first.
    fn sort(&self, claims: &mut [KindClaim]) {
        claims.sort_by(|a, b| {
            let by_priority = b.priority.total_cmp(&a.priority);
            by_priority.then_with(|| {
                if self.is_strict {
                    a.wish.kind.cmp(&b.wish.kind)
                } else {
                    b.speed.total_cmp(&a.speed)
                }
            })
        });
    }
}

/// Returns every job on every kind on which it can run. `fractions` are by job.
fn claims(state: &AllocationState<'_>, fractions: &[Vec<TimeFraction>]) -> Vec<KindClaim> {
    let jobs = &state.problem.jobs;
    let mut totals: Vec<(u16, f64)> = Vec::new();
    for &(kind, _) in state.kinds() {
        totals.push((kind, jobs.iter().map(|job| received_s(job, kind)).sum()));
    }
    let mut claims = Vec::new();
    for of_job in fractions {
        let speeds = of_job.iter().map(|on_kind| on_kind.speed);
        let fastest = speeds.fold(0.0, f64::max);
        for on_kind in of_job {
            let SizeWish { job, kind, .. } = on_kind.wish;
            let total = totals.iter().find(|&&(of, _)| of == kind);
            let total = total.map_or(1.0, |&(_, total)| total);
            claims.push(KindClaim {
                wish: on_kind.wish,
                priority: on_kind.fraction * total / received_s(&jobs[job], kind),
                speed: on_kind.speed / fastest,
            });
        }
    }
    claims
}

/// Returns the seconds that a job received on a kind, plus half a round. A new job therefore has a
/// finite priority, as in the Sia artefact.
fn received_s(job: &ProblemJob, kind: u16) -> f64 {
    job.held_s.get(usize::from(kind)).copied().unwrap_or(0.0) + ROUND_S / 2.0
}

/// Returns one wish per job: those that fit in the order of the claims, by GPU counts and quotas
/// alone.
fn fill(state: &AllocationState<'_>, claims: &[KindClaim]) -> Vec<SizeWish> {
    let mut free = free_by_kind(state);
    let mut served = vec![false; state.problem.jobs.len()];
    let mut quota = state.quota.clone();
    let mut wishes = Vec::new();
    for KindClaim { wish, .. } in claims {
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
