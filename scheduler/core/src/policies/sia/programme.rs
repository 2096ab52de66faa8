//! Integer programme of Sia: at most one configuration per job, within the GPUs of each kind and
//! the quotas.

use super::choices::{SiaConfiguration, SiaConfigurations};
use crate::policies::allocation_state::AllocationState;
use crate::policies::gpu_limit::limit_gpus;
use crate::policies::wish_placement::free_by_kind;
use microlp::{ComparisonOp, OptimizationDirection, SolveOptions, Variable};

/// Maximum number of nodes of the search tree; the best solution so far is then used. The bound
/// limits the time of a round and is the same on every machine.
const NODES: u64 = 2_000;

/// Returns the chosen configuration of each job.
pub fn solve(state: &AllocationState<'_>, choices: &[SiaConfigurations]) -> Vec<Option<usize>> {
    let simple = greedy(state, choices);
    match optimum(state, choices) {
        Some(best) if gain(choices, &best) > gain(choices, &simple) + 1e-9 => best,
        // The solver failed, or found nothing better within its node limit.
        _ => simple,
    }
}

/// Returns the optimum, or the best solution within the node limit.
fn optimum(
    state: &AllocationState<'_>,
    choices: &[SiaConfigurations],
) -> Option<Vec<Option<usize>>> {
    let mut programme = microlp::Problem::new(OptimizationDirection::Maximize);
    let mut variables: Vec<Vec<Variable>> = Vec::with_capacity(choices.len());
    for of_job in choices {
        let all = of_job.all.iter();
        let added = all.map(|choice| programme.add_binary_var(choice.gain));
        variables.push(added.collect());
    }
    for of_job in variables.iter().filter(|of_job| of_job.len() > 1) {
        programme.add_constraint(of_job.iter().map(|&x| (x, 1.0)), ComparisonOp::Le, 1.0);
    }
    let all = choices.iter().flat_map(|of_job| &of_job.all);
    let all: Vec<(&SiaConfiguration, Variable)> =
        all.zip(variables.iter().flatten().copied()).collect();
    let free = free_by_kind(state);
    for &(kind, _) in state.kinds() {
        let of_kind = all.iter().filter(|(choice, _)| choice.wish.kind == kind);
        let counted = of_kind.map(|(choice, x)| (*x, choice.wish.gpus));
        limit_gpus(&mut programme, counted, free[usize::from(kind)]);
    }
    for (tenant, left) in state.quota.rows() {
        let below = all.iter().filter(|(choice, _)| {
            let owner = state.problem.jobs[choice.wish.job].tenant;
            state.quota.covers(tenant, owner)
        });
        let counted = below.map(|(choice, x)| (*x, choice.wish.gpus));
        limit_gpus(&mut programme, counted, left);
    }
    let mut options = SolveOptions::default();
    options.node_limit = Some(NODES);
    let solution = programme.solve_with(options).ok()?.into_solution().ok()?;
    Some(
        variables
            .iter()
            .map(|of_job| of_job.iter().position(|&x| solution.var_value(x) > 0.5))
            .collect(),
    )
}

/// Keeps all jobs in place and gives the rest to the others by gain per GPU.
fn greedy(state: &AllocationState<'_>, choices: &[SiaConfigurations]) -> Vec<Option<usize>> {
    let all = choices.iter().enumerate();
    let mut all: Vec<(usize, usize)> = all
        .flat_map(|(job, of_job)| (0..of_job.all.len()).map(move |index| (job, index)))
        .collect();
    all.sort_by(|a, b| {
        let [a, b] = [a, b].map(|&(job, index)| &choices[job].all[index]);
        let by_density = b.gain_per_gpu().total_cmp(&a.gain_per_gpu());
        b.present.cmp(&a.present).then(by_density)
    });
    let mut free = free_by_kind(state);
    let mut quota = state.quota.clone();
    let mut taken = vec![None; choices.len()];
    for (job, index) in all {
        let wish = choices[job].all[index].wish;
        let tenant = state.problem.jobs[wish.job].tenant;
        let left = &mut free[usize::from(wish.kind)];
        if taken[job].is_none() && *left >= wish.gpus && quota.allows(tenant, wish.gpus) {
            *left -= wish.gpus;
            quota.charge(tenant, wish.gpus);
            taken[job] = Some(index);
        }
    }
    taken
}

fn gain(choices: &[SiaConfigurations], taken: &[Option<usize>]) -> f64 {
    let taken = choices.iter().zip(taken);
    taken
        .filter_map(|(of_job, index)| index.map(|index| of_job.all[index].gain))
        .sum()
}
