//! Sia (Jayaram Subramanya et al., SOSP 2023): every job chooses a configuration, so many GPUs of one kind, and an integer programme
//! takes the choices that together do the most goodput, more for those who have little.
//!
//! Jobs that hold something are discounted where they would have to restart, the more the younger they are and the more often they
//! were moved, so that nobody is moved without gain. Strict priorities, which Sia does not know, are levels: each is decided on what
//! the higher ones left.

mod choices;
mod programme;
#[cfg(test)]
mod tests;

use super::Share;
use super::room::Room;
use super::seat::{self, Wish};
use crate::problem::{Decision, Problem, Worth};
use choices::{Choice, Choices};

/// Goodput over GPU kinds by an integer programme.
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

/// A room in which a level sits, and what that takes off the sum.
type Seated<'a> = (Room<'a>, f64);

/// What the programme chose, as far as it can be seated.
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

/// Everybody stays, and those who wait take what is left.
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

/// The programme counts GPUs, but not nodes, CPU and memory: nobody is moved for a choice that, once seated, gains nothing.
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

/// What the places of these jobs take off the sum.
fn gain(room: &Room<'_>, level: &[usize], choices: &[Choices]) -> f64 {
    let jobs = level.iter().zip(choices);
    jobs.map(|(&job, of_job)| of_job.gained(room, job)).sum()
}

/// Whom fragments, CPU or memory kept from its configuration takes the best of the others that fits.
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
