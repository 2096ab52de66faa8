//! Pollux (Qiao et al., OSDI 2021): a genetic search over allocation matrices, GPUs of every job on every node, for the one in which
//! the jobs' speedups over their fair share have the greatest harmonic mean.
//!
//! What is Pollux' here: the speedup, the restart factor, the limits of growth and of nodes shared by spread jobs, population,
//! generations, crossover over jobs, mutation and repair. What is not: the goodput is that of the job's
//! [`Outlook`](crate::problem::Outlook), whoever fitted it, and mutations are fewer. The artefact sorts by a second objective as well, which never decides; here the first alone ranks. The artefact begins
//! with the population of its previous decision; a pure decision remembers none and begins with the present allocation, with
//! everybody at a fair share, and with mutations of both. Strict priorities are levels, each decided on what the higher ones left.
//!
//! A search finds something else each time, so it is asked once at an instant: while some job's allocation is of this very instant,
//! everything stays until time has passed.

mod genome;
mod search;
mod speedup;
#[cfg(test)]
mod tests;

use super::Share;
use super::room::Room;
use super::seat;
use crate::problem::{Decision, Problem};
use search::Search;

/// Goodput by a genetic search.
#[derive(Debug, Clone, Copy)]
pub struct Pollux;

impl Share for Pollux {
    fn share(&self, problem: &Problem) -> Decision {
        let mut room = Room::beside_fixed(problem);
        if decided_now(problem) {
            keep_all(&mut room);
            return room.decision();
        }
        for level in seat::levels(problem) {
            for (job, parts) in Search::new(&room, level).run() {
                if !parts.is_empty() {
                    room.give(job, parts);
                }
            }
        }
        room.decision()
    }
}

/// Whether this instant has seen a decision that changed something; what others have fixed is not for this policy to have decided.
fn decided_now(problem: &Problem) -> bool {
    problem.jobs.iter().any(|job| {
        let submitted_now = job.present.is_empty() && job.since_s <= job.submitted_s;
        !job.fixed && job.since_s >= problem.now_s && !submitted_now
    })
}

fn keep_all(room: &mut Room<'_>) {
    for job in 0..room.problem.jobs.len() {
        if room.problem.jobs[job].is_movable() && room.can_keep(job) {
            room.keep(job);
        }
    }
}
