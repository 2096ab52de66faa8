//! Sia (Jayaram Subramanya et al., SOSP 2023): each job takes a configuration, which is a number of
//! GPUs of one kind. An integer programme chooses the configurations with the largest total
//! goodput, weighted towards jobs of little goodput.
//!
//! The goodput of a running job is discounted where it would have to restart. The discount is
//! larger for young jobs and for jobs that were moved often, so no job moves without a gain. Sia
//! has no strict priorities. Here each priority is decided on what the higher ones leave.

mod choices;
mod programme;
#[cfg(test)]
mod tests;

use super::SchedulingPolicy;
use super::allocation_state::AllocationState;
use super::wish_placement::{self, SizeWish};
use crate::problem::{PolicyDecision, SchedulingProblem, SizeValue};
use choices::{SiaConfiguration, SiaConfigurations};

/// Policy of goodput over GPU kinds by an integer programme.
#[derive(Debug, Clone, Copy)]
pub struct Sia;

impl SchedulingPolicy for Sia {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        let mut state = AllocationState::beside_fixed(problem);
        let mut worth = vec![SizeValue::default(); problem.jobs.len()];
        for level in wish_placement::levels(problem) {
            let choices: Vec<SiaConfigurations> = level
                .iter()
                .map(|&job| SiaConfigurations::of_job(&state, job))
                .collect();
            state = better(
                chosen(state.clone(), &level, &choices),
                unmoved(state, &level, &choices),
            );
            for (&job, of_job) in level.iter().zip(&choices) {
                if let Some(wish) = wish_placement::wish_of(&state, job) {
                    worth[job] = of_job.worth(wish);
                }
            }
        }
        PolicyDecision {
            worth,
            ..state.decision()
        }
    }
}

/// State with the placed jobs of a level, and the resulting reduction of the sum.
type PlacedLevel<'a> = (AllocationState<'a>, f64);

/// Places what the programme chose, as far as it fits.
fn chosen<'a>(
    mut state: AllocationState<'a>,
    level: &[usize],
    choices: &[SiaConfigurations],
) -> PlacedLevel<'a> {
    let picked = choices.iter().zip(programme::solve(&state, choices));
    let wishes: Vec<SizeWish> = picked
        .filter_map(|(of_job, chosen)| chosen.map(|index| of_job.all[index].wish))
        .collect();
    wish_placement::place_wishes(&mut state, &wishes);
    seat_rest(&mut state, level, choices);
    let gain = gain(&state, level, choices);
    (state, gain)
}

/// Keeps all jobs in place. Waiting jobs take the rest.
fn unmoved<'a>(
    mut state: AllocationState<'a>,
    level: &[usize],
    choices: &[SiaConfigurations],
) -> PlacedLevel<'a> {
    for of_job in choices {
        let stays = of_job.all.iter().find(|choice| choice.present);
        if let Some(choice) = stays.filter(|choice| state.can_keep(choice.wish.job)) {
            state.keep(choice.wish.job);
        }
    }
    seat_rest(&mut state, level, choices);
    let gain = gain(&state, level, choices);
    (state, gain)
}

/// Keeps all jobs in place unless the chosen configurations gain more once they are placed. The
/// programme counts GPUs, but not nodes, CPU and memory.
fn better<'a>(chosen: PlacedLevel<'a>, unmoved: PlacedLevel<'a>) -> AllocationState<'a> {
    let gains = chosen.1 > unmoved.1 + 1e-9;
    if gains { chosen.0 } else { unmoved.0 }
}

fn seat_rest(state: &mut AllocationState<'_>, level: &[usize], choices: &[SiaConfigurations]) {
    for (&job, of_job) in level.iter().zip(choices) {
        if state.given(job).is_none() {
            seat_best(state, &of_job.all);
        }
    }
}

/// Returns the reduction of the sum by the places of these jobs.
fn gain(state: &AllocationState<'_>, level: &[usize], choices: &[SiaConfigurations]) -> f64 {
    let jobs = level.iter().zip(choices);
    jobs.map(|(&job, of_job)| of_job.gained(state, job)).sum()
}

/// Gives a job the best other configuration that fits. Its chosen one did not fit because of
/// fragmentation, CPU or memory.
fn seat_best(state: &mut AllocationState<'_>, of_job: &[SiaConfiguration]) {
    let mut by_gain: Vec<&SiaConfiguration> = of_job.iter().collect();
    by_gain.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    for choice in by_gain {
        let stays = choice.present && state.can_keep(choice.wish.job);
        if stays {
            state.keep(choice.wish.job);
        }
        if stays || wish_placement::place_tight(state, choice.wish) {
            return;
        }
    }
}
