//! Choice of an option for each job on several GPU kinds by an integer programme. It maximises the
//! sum of values with at most one option per job, within the GPUs of each kind and the quotas.
//!
//! For a few dozen jobs it finds noticeably better choices than the prices of [`super::prices`],
//! which the caller uses if [`best`] returns `None`. The solver is `microlp` (branch and bound).

use super::options::{AllocationOption, JobOptions, OptionIndex};
use super::shares::Classes;
use crate::policies::gpu_limit::limit_gpus;
use crate::policies::quota::Quota;
use crate::problem::SchedulingProblem;
use microlp::{ComparisonOp, OptimizationDirection, SolveOptions, Variable};

/// Maximum number of jobs with options; the search for more would take too long.
const MOST_JOBS: usize = 64;

/// Maximum number of nodes of the search tree; the best solution so far is then used. Unlike a time
/// limit, it gives the same result on every machine.
const MAX_TREE_NODES: u64 = 500;

/// Highest rank of a class; all higher classes share it.
const MAX_RANK: i32 = 3;

/// Binary variable of the programme: 1 if a job of `tenant` gets the option.
struct OptionVariable<'a> {
    tenant: u32,
    option: &'a AllocationOption,
    x: Variable,
}

/// Returns the option of each job in the best solution within the limit of tree nodes. Returns
/// `None` if no job or too many jobs have options, or if no solution was found.
///
/// `all_options` and `classes` are by job, in the order of `problem.jobs`. `left` are the free GPUs
/// by kind.
pub(super) fn best(
    problem: &SchedulingProblem,
    all_options: &[JobOptions<'_>],
    classes: &Classes,
    left: &[u32],
    quota: &Quota<'_>,
) -> Option<Vec<OptionIndex>> {
    let jobs = all_options
        .iter()
        .filter(|job_options| !job_options.options.is_empty())
        .count();
    if jobs == 0 || jobs > MOST_JOBS {
        return None;
    }
    let options = all_options
        .iter()
        .flat_map(|job_options| job_options.options);
    let most = options.map(|option| option.value).fold(0.0, f64::max);
    let mut programme = microlp::Problem::new(OptimizationDirection::Maximize);
    let mut variables: Vec<Vec<Variable>> = Vec::with_capacity(all_options.len());
    let ranks = ranks(classes);
    for (job_options, rank) in all_options.iter().zip(ranks) {
        // Values are scaled to at most 1. With this bonus a job of a higher class is worth more
        // than all jobs of lower classes together.
        let bonus = if rank == 0 {
            0.0
        } else {
            (jobs as f64 + 1.0).powi(rank)
        };
        let options = job_options.options.iter();
        let of_job = options.map(|option| programme.add_binary_var(option.value / most + bonus));
        variables.push(of_job.collect());
    }
    for of_job in variables.iter().filter(|of_job| !of_job.is_empty()) {
        let one = of_job.iter().map(|&x| (x, 1.0));
        programme.add_constraint(one, ComparisonOp::Le, 1.0);
    }
    let all = option_variables(problem, all_options, &variables);
    for (kind, &gpus) in left.iter().enumerate() {
        let of_kind = all.iter().filter(|of| usize::from(of.option.kind) == kind);
        limit_gpus(
            &mut programme,
            of_kind.map(|of| (of.x, of.option.gpus)),
            gpus,
        );
    }
    for (tenant, gpus) in quota.rows() {
        // A tenant's quota also limits its descendants.
        let below = all.iter().filter(|of| quota.covers(tenant, of.tenant));
        limit_gpus(&mut programme, below.map(|of| (of.x, of.option.gpus)), gpus);
    }
    let mut options = SolveOptions::default();
    options.node_limit = Some(MAX_TREE_NODES);
    let solution = programme.solve_with(options).ok()?.into_solution().ok()?;
    Some(
        variables
            .iter()
            .map(|of_job| of_job.iter().position(|&x| solution.var_value(x) > 0.5))
            .collect(),
    )
}

/// Returns the variables of all jobs in one list. `variables` are those of each job.
fn option_variables<'a>(
    problem: &SchedulingProblem,
    all_options: &[JobOptions<'a>],
    variables: &[Vec<Variable>],
) -> Vec<OptionVariable<'a>> {
    let mut all = Vec::new();
    for ((job, job_options), of_job) in problem.jobs.iter().zip(all_options).zip(variables) {
        for (option, &x) in job_options.options.iter().zip(of_job) {
            let tenant = job.tenant;
            all.push(OptionVariable { tenant, option, x });
        }
    }
    all
}

/// Returns the rank of each job's class: 0 for the lowest, 1 for the next, up to [`MAX_RANK`].
fn ranks(classes: &Classes) -> Vec<i32> {
    let mut known = classes.clone();
    known.sort_unstable();
    known.dedup();
    classes
        .iter()
        .map(|class| {
            let rank = known.binary_search(class).unwrap_or(0);
            i32::try_from(rank).unwrap_or(MAX_RANK).min(MAX_RANK)
        })
        .collect()
}
