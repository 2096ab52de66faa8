//! Gavel (Narayanan et al., OSDI 2020): a linear programme says which part of its time each job should spend on each GPU kind, and
//! rounds hand out the GPUs so that the time received comes near to that.
//!
//! Gangs are rigid: they run at the size that was asked for. A round lasts 360 s. At its beginning everything is decided anew; during
//! it nobody is displaced, and GPUs that became free go to those who wait, so that an arrival need not wait for the next round when
//! there is room (the Sia artefact's Gavel lets it wait, and gives who has no fraction anywhere the first kind with room; here it is
//! the fastest). Rounds begin at multiples of their length since the problem's origin: a decision opens a round when such an instant
//! has passed since the previous decision fell due, `round_s` ago at the latest.
//!
//! Strict priorities, which Gavel does not know, are levels: each is decided on what the higher ones left.

mod fractions;
#[cfg(test)]
mod tests;
mod weights;

use super::Share;
use super::room::Room;
use super::seat::{self, Wish, free_by_kind};
use crate::problem::{Decision, Problem};
use fractions::Chance;

/// Seconds of a round.
const ROUND_S: f64 = 360.0;

/// Time fractions by a linear programme, rounds by priority.
#[derive(Debug, Clone, Copy)]
pub struct Gavel {
    objective: Objective,
}

/// What the fractions optimise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Objective {
    /// The smallest weighted throughput, each relative to what the job would get from an equal share of every kind.
    MaxMin,
    /// The sum of the throughputs, in each job's own unit of work: what the Sia artefact compares itself with.
    MaxSum,
}

impl Gavel {
    /// Fair: maximises the worst-off job's normalised throughput.
    #[must_use]
    pub fn max_min() -> Self {
        Self {
            objective: Objective::MaxMin,
        }
    }

    /// Maximises the total throughput.
    #[must_use]
    pub fn max_sum() -> Self {
        Self {
            objective: Objective::MaxSum,
        }
    }
}

/// A job on a kind, and how much it lacks there of the time that it should have.
#[derive(Debug, Clone, Copy)]
struct Entry {
    wish: Wish,
    /// Its fraction of time over its part of the time that all jobs received there.
    priority: f64,
    /// Relative to its fastest kind.
    speed: f64,
}

impl Share for Gavel {
    fn share(&self, problem: &Problem) -> Decision {
        let mut room = Room::beside_fixed(problem);
        if !begins_round(problem) {
            keep_running(&mut room);
        }
        for mut level in seat::levels(problem) {
            level.retain(|&job| room.given(job).is_none());
            let chances = fractions::solve(self.objective, &room, &level);
            let entries = entries(&room, &chances);
            let wishes = fill(&room, &entries);
            seat::seat(&mut room, &wishes);
            // Whole units, fragments, CPU and memory may have kept somebody out: whoever fits takes what is left.
            for entry in &entries {
                if room.given(entry.wish.job).is_none() {
                    seat::seat_tight(&mut room, entry.wish);
                }
            }
        }
        room.decision()
    }
}

/// Whether a round began since the previous decision.
fn begins_round(problem: &Problem) -> bool {
    let round = |at_s: f64| (at_s / ROUND_S).floor();
    problem.round_s <= 0.0 || round(problem.now_s) > round(problem.now_s - problem.round_s)
}

fn keep_running(room: &mut Room<'_>) {
    for job in 0..room.problem.jobs.len() {
        if room.problem.jobs[job].is_movable() && room.can_keep(job) {
            room.keep(job);
        }
    }
}

/// Every job on every kind where it runs, the most entitled first.
fn entries(room: &Room<'_>, chances: &[Vec<Chance>]) -> Vec<Entry> {
    let received = |job: usize, kind: u16| {
        let held = &room.problem.jobs[job].held_s;
        // Half a round for everybody, so that newcomers have a finite priority (the artefact does the same).
        held.get(usize::from(kind)).copied().unwrap_or(0.0) + ROUND_S / 2.0
    };
    let all_received = |kind: u16| -> f64 {
        let jobs = 0..room.problem.jobs.len();
        jobs.map(|job| received(job, kind)).sum()
    };
    let totals: Vec<(u16, f64)> = room
        .kinds()
        .iter()
        .map(|&(k, _)| (k, all_received(k)))
        .collect();
    let mut entries = Vec::new();
    for of_job in chances {
        let speeds = of_job.iter().map(|chance| chance.speed);
        let fastest = speeds.fold(0.0, f64::max);
        for chance in of_job {
            let Wish { job, kind, .. } = chance.wish;
            let total = totals.iter().find(|&&(of, _)| of == kind);
            let total = total.map_or(1.0, |&(_, total)| total);
            entries.push(Entry {
                wish: chance.wish,
                priority: chance.fraction * total / received(job, kind),
                speed: chance.speed / fastest,
            });
        }
    }
    // Stable: of equals the first submitted comes first.
    entries.sort_by(|a, b| {
        let by_priority = b.priority.total_cmp(&a.priority);
        by_priority.then(b.speed.total_cmp(&a.speed))
    });
    entries
}

/// Whoever fits into what those before it left, by numbers alone.
fn fill(room: &Room<'_>, entries: &[Entry]) -> Vec<Wish> {
    let mut free = free_by_kind(room);
    let mut served = vec![false; room.problem.jobs.len()];
    let mut quota = room.quota.clone();
    let mut wishes = Vec::new();
    for Entry { wish, .. } in entries {
        let left = &mut free[usize::from(wish.kind)];
        let tenant = room.problem.jobs[wish.job].tenant;
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
