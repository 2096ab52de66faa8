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
use choices::Choice;

/// Goodput over GPU kinds by an integer programme.
#[derive(Debug, Clone, Copy)]
pub struct Sia;

impl Share for Sia {
    fn share(&self, problem: &Problem) -> Decision {
        let mut room = Room::beside_fixed(problem);
        let mut worth = vec![Worth::default(); problem.jobs.len()];
        for level in seat::levels(problem) {
            let choices: Vec<Vec<Choice>> = level
                .iter()
                .map(|&job| choices::of_job(&room, job))
                .collect();
            let chosen = programme::solve(&room, &choices);
            let picked = choices.iter().zip(chosen);
            let wishes: Vec<Wish> = picked
                .filter_map(|(of_job, chosen)| chosen.map(|index| of_job[index].wish))
                .collect();
            seat::seat(&mut room, &wishes);
            for (&job, of_job) in level.iter().zip(&choices) {
                if room.given(job).is_none() {
                    seat_best(&mut room, of_job);
                }
                if let Some(wish) = seat::wish_of(&room, job) {
                    worth[job] = choices::worth(of_job, wish);
                }
            }
        }
        Decision {
            worth,
            ..room.decision()
        }
    }
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
