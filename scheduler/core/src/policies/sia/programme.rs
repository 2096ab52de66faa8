//! Integer programme of Sia: at most one configuration per job, within the GPUs of each kind and
//! the quotas.

use super::choices::{SiaConfiguration, SiaConfigurations};
use crate::policies::allocation_state::AllocationState;
use crate::policies::wish_placement::free_by_kind;
use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, SolveOptions, Variable};

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
    let of_job = |of_job: &SiaConfigurations| -> Vec<Variable> {
        of_job
            .all
            .iter()
            .map(|choice| programme.add_binary_var(choice.gain))
            .collect()
    };
    let variables: Vec<Vec<Variable>> = choices.iter().map(of_job).collect();
    for of_job in variables.iter().filter(|of_job| of_job.len() > 1) {
        programme.add_constraint(of_job.iter().map(|&x| (x, 1.0)), ComparisonOp::Le, 1.0);
    }
    for (counts, gpus) in limits(state) {
        let all = choices.iter().flat_map(|of_job| &of_job.all);
        let all = all.zip(variables.iter().flatten());
        let terms: LinearExpr = all
            .filter(|(choice, _)| counts(choice))
            .map(|(choice, &x)| (x, f64::from(choice.wish.gpus)))
            .collect();
        programme.add_constraint(terms, ComparisonOp::Le, f64::from(gpus));
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
    let choice = |(job, index): (usize, usize)| &choices[job].all[index];
    all.sort_by(|&a, &b| {
        let (a, b) = (choice(a), choice(b));
        let density = |choice: &SiaConfiguration| choice.gain / f64::from(choice.wish.gpus);
        let by_density = density(b).total_cmp(&density(a));
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

type ConfigurationFilter<'a> = Box<dyn Fn(&SiaConfiguration) -> bool + 'a>;

/// Returns groups of choices with the number of GPUs that each group may take.
fn limits<'a>(state: &'a AllocationState<'_>) -> Vec<(ConfigurationFilter<'a>, u32)> {
    let free = free_by_kind(state);
    let kinds = state.kinds().iter().map(|&(kind, _)| {
        let counts: ConfigurationFilter<'a> = Box::new(move |choice| choice.wish.kind == kind);
        (counts, free[usize::from(kind)])
    });
    let tenants = state.quota.rows().map(|(tenant, left)| {
        let of = |choice: &SiaConfiguration| state.problem.jobs[choice.wish.job].tenant;
        let counts: ConfigurationFilter<'a> =
            Box::new(move |choice| state.quota.lineage(of(choice)).any(|above| above == tenant));
        (counts, left)
    });
    kinds.chain(tenants).collect()
}
