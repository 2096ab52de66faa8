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

use super::Share;
use super::room::Room;
use super::seat::{self, Wish};
use crate::problem::{Decision, Problem, Worth};
use choices::{Choice, Choices};

/// Policy of goodput over GPU kinds by an integer programme.
#[derive(Debug, Clone, Copy)]
pub struct Sia;

impl Share for Sia {
    fn share(&self, problem: &Problem) -> Decision {
        let mut room = Room::beside_fixed(problem);
        let mut worth = vec![Worth::default(); problem.jobs.len()];
        for level in seat::levels(problem) {
            let choices: Vec<Choices> = level
                .iter()
                .map(|&job| Choices::of_job(&room, job))
                .collect();
            room = better(
                chosen(room.clone(), &level, &choices),
                unmoved(room, &level, &choices),
            );
            for (&job, of_job) in level.iter().zip(&choices) {
                if let Some(wish) = seat::wish_of(&room, job) {
                    worth[job] = of_job.worth(wish);
                }
            }
        }
        Decision {
            worth,
            ..room.decision()
        }
    }
}

/// State with the placed jobs of a level, and the resulting reduction of the sum.
type Seated<'a> = (Room<'a>, f64);

/// Places what the programme chose, as far as it fits.
fn chosen<'a>(mut room: Room<'a>, level: &[usize], choices: &[Choices]) -> Seated<'a> {
    let picked = choices.iter().zip(programme::solve(&room, choices));
    let wishes: Vec<Wish> = picked
        .filter_map(|(of_job, chosen)| chosen.map(|index| of_job.all[index].wish))
        .collect();
    seat::seat(&mut room, &wishes);
    seat_rest(&mut room, level, choices);
    let gain = gain(&room, level, choices);
    (room, gain)
}

/// Keeps all jobs in place. Waiting jobs take the rest.
fn unmoved<'a>(mut room: Room<'a>, level: &[usize], choices: &[Choices]) -> Seated<'a> {
    for of_job in choices {
        let stays = of_job.all.iter().find(|choice| choice.present);
        if let Some(choice) = stays.filter(|choice| room.can_keep(choice.wish.job)) {
            room.keep(choice.wish.job);
        }
    }
    seat_rest(&mut room, level, choices);
    let gain = gain(&room, level, choices);
    (room, gain)
}

/// Keeps all jobs in place unless the chosen configurations gain more once they are placed. The
/// programme counts GPUs, but not nodes, CPU and memory.
fn better<'a>(chosen: Seated<'a>, unmoved: Seated<'a>) -> Room<'a> {
    let gains = chosen.1 > unmoved.1 + 1e-9;
    if gains { chosen.0 } else { unmoved.0 }
}

fn seat_rest(room: &mut Room<'_>, level: &[usize], choices: &[Choices]) {
    for (&job, of_job) in level.iter().zip(choices) {
        if room.given(job).is_none() {
            seat_best(room, &of_job.all);
        }
    }
}

/// Returns the reduction of the sum by the places of these jobs.
fn gain(room: &Room<'_>, level: &[usize], choices: &[Choices]) -> f64 {
    let jobs = level.iter().zip(choices);
    jobs.map(|(&job, of_job)| of_job.gained(room, job)).sum()
}

/// Gives a job the best other configuration that fits. Its chosen one did not fit because of
/// fragmentation, CPU or memory.
fn seat_best(room: &mut Room<'_>, of_job: &[Choice]) {
    let mut by_gain: Vec<&Choice> = of_job.iter().collect();
    by_gain.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    for choice in by_gain {
        let stays = choice.present && room.can_keep(choice.wish.job);
        if stays {
            room.keep(choice.wish.job);
        }
        if stays || seat::seat_tight(room, choice.wish) {
            return;
        }
    }
}
