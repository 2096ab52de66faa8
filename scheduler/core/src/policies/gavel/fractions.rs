//! Gavel's linear programme over X[job, kind], the fraction of its time that a job spends on a GPU
//! kind.

use super::Objective;
use super::weights::shares;
use crate::policies::allocation_state::AllocationState;
use crate::policies::gpu_limit::limit_gpus;
use crate::policies::order::request;
use crate::policies::wish_placement::{SizeWish, free_by_kind};
use crate::problem::SchedulingProblem;
use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Variable};

/// Variable of the programme: a job on a kind on which it can run.
#[derive(Debug, Clone, Copy)]
pub struct TimeFraction {
    pub wish: SizeWish,
    /// Work per second on the kind.
    pub speed: f64,
    /// Fraction of its time that the job should spend on the kind.
    pub fraction: f64,
}

/// Weight of the sum of the normalised throughputs beside the smallest one. The smallest alone does
/// not determine the rest of the cluster. The sum assigns it to the jobs that use it best.
const SUM_WEIGHT: f64 = 1e-3;

/// Returns the solved variables by job, for the jobs that can run. Capacity and quotas are those
/// left in `state`.
pub fn solve(
    objective: Objective,
    state: &AllocationState<'_>,
    jobs: &[usize],
) -> Vec<Vec<TimeFraction>> {
    let mut chances: Vec<Vec<TimeFraction>> = jobs.iter().map(|&job| of_job(state, job)).collect();
    chances.retain(|of_job| !of_job.is_empty());
    let values = values(objective, state, &chances);
    let mut programme = match objective {
        Objective::MaxSum => Programme::new(state, &chances, &values),
        Objective::MaxMin => {
            let weight = SUM_WEIGHT / chances.len().max(1) as f64;
            let sum: Vec<Vec<f64>> = values
                .iter()
                .map(|of_job| of_job.iter().map(|value| value * weight).collect())
                .collect();
            Programme::new(state, &chances, &sum)
        }
    };
    if objective == Objective::MaxMin {
        programme.raise_smallest(&values);
    }
    programme.fill_in(&mut chances);
    chances
}

/// Returns the kinds on which a job runs at its size, if the free capacity and its quota allow it.
fn of_job(state: &AllocationState<'_>, job: usize) -> Vec<TimeFraction> {
    let of = &state.problem.jobs[job];
    let gpus = request(of);
    if gpus > of.max_gpus || !state.quota_allows(of.tenant, gpus) {
        return Vec::new();
    }
    let free = free_by_kind(state);
    let kinds = state.kinds().iter();
    kinds
        .filter(|&&(kind, _)| gpus <= free[usize::from(kind)])
        .map(|&(kind, _)| TimeFraction {
            wish: SizeWish { job, kind, gpus },
            speed: state.speed(job, kind, gpus),
            fraction: 0.0,
        })
        .filter(|chance| chance.speed > 0.0)
        .collect()
}

/// Returns the coefficient of each variable in the objective.
fn values(
    objective: Objective,
    state: &AllocationState<'_>,
    chances: &[Vec<TimeFraction>],
) -> Vec<Vec<f64>> {
    let jobs: Vec<usize> = chances.iter().map(|of_job| of_job[0].wish.job).collect();
    let shares = shares(state.problem, &jobs);
    let mut values: Vec<Vec<f64>> = Vec::with_capacity(chances.len());
    for (chances, share) in chances.iter().zip(shares) {
        let scale = match objective {
            Objective::MaxSum => 1.0,
            Objective::MaxMin => normalisation(state.problem, chances, share),
        };
        values.push(chances.iter().map(|chance| chance.speed * scale).collect());
    }
    // The unit does not change the optimum, and the solver is most accurate near 1.
    let largest = values.iter().flatten().copied().fold(0.0, f64::max);
    values
        .iter_mut()
        .flatten()
        .for_each(|value| *value /= largest);
    values
}

/// Returns the factor that normalises the throughputs of a job: the inverse of the throughput of an
/// equal share of every kind, up to a factor common to all jobs.
fn normalisation(problem: &SchedulingProblem, chances: &[TimeFraction], share: f64) -> f64 {
    let equal = chances
        .iter()
        .map(|chance| chance.speed * f64::from(problem.gpus_of_kind(chance.wish.kind)));
    let gpus = chances.first().map_or(0, |chance| chance.wish.gpus);
    f64::from(problem.gpus()) * f64::from(gpus) / (equal.sum::<f64>() * share)
}

/// Linear programme and its variables by job.
struct Programme {
    microlp: microlp::Problem,
    variables: Vec<Vec<Variable>>,
}

impl Programme {
    /// Adds the constraints:
    ///
    /// - `sum_k X[j, k] <= 1` for each job;
    /// - `sum_j gpus[j] X[j, k] <= GPUs[k]` for each kind;
    /// - `sum_j gpus[j] X[j, .] <= quota` for each tenant with a quota.
    fn new(state: &AllocationState<'_>, chances: &[Vec<TimeFraction>], sum: &[Vec<f64>]) -> Self {
        let mut microlp = microlp::Problem::new(OptimizationDirection::Maximize);
        let mut variables: Vec<Vec<Variable>> = Vec::with_capacity(sum.len());
        for values in sum {
            let of_job = values
                .iter()
                .map(|&value| microlp.add_var(value, (0.0, 1.0)));
            variables.push(of_job.collect());
        }
        for of_job in variables.iter().filter(|of_job| of_job.len() > 1) {
            microlp.add_constraint(of_job.iter().map(|&x| (x, 1.0)), ComparisonOp::Le, 1.0);
        }
        let wishes = chances.iter().flatten().map(|chance| chance.wish);
        let wishes: Vec<(SizeWish, Variable)> =
            wishes.zip(variables.iter().flatten().copied()).collect();
        let free = free_by_kind(state);
        for &(kind, _) in state.kinds() {
            let of_kind = wishes.iter().filter(|(wish, _)| wish.kind == kind);
            let counted = of_kind.map(|(wish, x)| (*x, wish.gpus));
            limit_gpus(&mut microlp, counted, free[usize::from(kind)]);
        }
        for (tenant, left) in state.quota.rows() {
            let below = wishes.iter().filter(|(wish, _)| {
                let owner = state.problem.jobs[wish.job].tenant;
                state.quota.covers(tenant, owner)
            });
            limit_gpus(&mut microlp, below.map(|(wish, x)| (*x, wish.gpus)), left);
        }
        Self { microlp, variables }
    }

    /// Adds a variable that is at most the value of every job and is maximised.
    fn raise_smallest(&mut self, values: &[Vec<f64>]) {
        let smallest = self.microlp.add_var(1.0, (0.0, f64::INFINITY));
        for (of_job, values) in self.variables.iter().zip(values) {
            let terms = of_job.iter().copied().zip(values.iter().copied());
            let terms: LinearExpr = terms.chain([(smallest, -1.0)]).collect();
            self.microlp.add_constraint(terms, ComparisonOp::Ge, 0.0);
        }
    }

    /// Solves the programme and stores the fractions. If the solver fails on a numerically
    /// difficult programme, every job gets equal fractions of the kinds on which it runs. Rotation
    /// by priority still works then.
    fn fill_in(self, chances: &mut [Vec<TimeFraction>]) {
        let solution = self
            .microlp
            .solve()
            .ok()
            .and_then(|it| it.into_solution().ok());
        for (of_job, variables) in chances.iter_mut().zip(&self.variables) {
            let equal = 1.0 / of_job.len() as f64;
            for (chance, &x) in of_job.iter_mut().zip(variables) {
                let fraction = solution.as_ref().map_or(equal, |it| it.var_value(x));
                // Rounding removes the influence of the solver's last digits.
                chance.fraction = (fraction.clamp(0.0, 1.0) * 1e5).round() / 1e5;
            }
        }
    }
}
