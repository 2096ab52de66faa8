//! First in, first out by whole gangs, with EASY backfill (Lifka, JSSPP 1995): what batch systems such as Slurm do.
//!
//! Nobody is displaced but by a higher priority. The first gang that does not fit gets a reservation for the moment at which
//! enough of the others should have ended; those behind it start before it only where they do not delay that: they end in time,
//! or they fit beside it. The times are the outlooks', where batch systems take the owner's word.
//!
//! Left out: reservations for more than the first (conservative backfill). Since ends are estimates, a reservation may slip; what
//! never happens is that somebody is overtaken for ever.

use super::order::request;
use super::room::{Room, Style};
use super::{Promises, Share};
use crate::problem::{Decision, Part, Problem, gpus_of};
use std::cmp::Reverse;

/// Gangs in order of submission.
#[derive(Debug, Clone, Copy)]
pub struct Fifo;

/// A start changes what the next reservation looks like, so the decision is repeated on its own result until nobody starts any
/// more. Twice is the rule; this is where it ends in any case.
const PASSES: usize = 8;

impl Share for Fifo {
    fn share(&self, problem: &Problem) -> Decision {
        let mut given = pass(Room::beside_fixed(problem)).into_given();
        for _ in 1..PASSES {
            let next = pass(Room::beside_fixed(problem).with_present(&given)).into_given();
            if next == given {
                break;
            }
            given = next;
        }
        pass(Room::beside_fixed(problem).with_present(&given)).decision()
    }

    fn promises(&self) -> Promises {
        Promises {
            bounded_waiting: true,
            takes_turns: false,
            gathers: false,
            ..Promises::default()
        }
    }
}

/// The moment for which the first in the queue has its place.
struct Reservation<'a> {
    at_s: f64,
    /// What is free then, beside it.
    room: Room<'a>,
}

fn pass(mut room: Room<'_>) -> Room<'_> {
    let problem = room.problem;
    let mut order: Vec<usize> = (0..problem.jobs.len()).collect();
    order.sort_by_key(|&job| (Reverse(problem.jobs[job].priority), !runs(&room, job)));
    let mut first: Option<Reservation<'_>> = None;
    for (turn, &job) in order.iter().enumerate() {
        if !problem.jobs[job].is_movable() {
            continue;
        }
        if runs(&room, job) && room.can_keep(job) {
            room.keep(job);
            continue;
        }
        let Some(parts) = seek(&room, job, &order[turn + 1..]) else {
            first = first.or_else(|| reserve(&room, job));
            continue;
        };
        let spared = match &mut first {
            Some(first) => spare(&room, first, job, parts),
            None => Some(parts),
        };
        if let Some(parts) = spared {
            room.give(job, parts);
        }
    }
    room
}

/// Where the job could start: beside those of lower priority that run, or else in their place.
fn seek(room: &Room<'_>, job: usize, lower: &[usize]) -> Option<Vec<Part>> {
    let size = request(&room.problem.jobs[job]);
    let mut running = lower.iter().filter(|&&other| runs(room, other)).peekable();
    if running.peek().is_some() {
        let mut beside = room.clone();
        for &other in running {
            if room.problem.jobs[other].is_movable() && beside.can_keep(other) {
                beside.keep(other);
            }
        }
        if let Some(parts) = beside.seek(job, size, Style::Packed) {
            return Some(parts);
        }
    }
    room.seek(job, size, Style::Packed)
}

/// Whether it holds what it asked for.
fn runs(room: &Room<'_>, job: usize) -> bool {
    gpus_of(room.present(job)) == request(&room.problem.jobs[job])
}

/// When the job finds its place, if the others end as they should and nobody else starts. `None` when it never does.
fn reserve<'a>(room: &Room<'a>, job: usize) -> Option<Reservation<'a>> {
    let problem = room.problem;
    let mut ends: Vec<(f64, usize)> = (0..problem.jobs.len())
        .filter_map(|other| {
            let fixed = !problem.jobs[other].is_movable();
            let parts = if fixed {
                Some(&problem.jobs[other].present[..])
            } else {
                room.given(other)
            };
            let end_s = end_s(room, other, parts?);
            end_s.is_finite().then_some((end_s, other))
        })
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let size = request(&problem.jobs[job]);
    let mut then = room.clone();
    for (at_s, other) in ends {
        then.end(other);
        if then.place(job, size, Style::Packed) {
            return Some(Reservation { at_s, room: then });
        }
    }
    None
}

/// Where the job may start now without delaying the first in the queue: where it ends in time, or beside it, in which case the
/// reservation counts with it.
fn spare(
    room: &Room<'_>,
    first: &mut Reservation<'_>,
    job: usize,
    parts: Vec<Part>,
) -> Option<Vec<Part>> {
    if end_s(room, job, &parts) <= first.at_s {
        return Some(parts);
    }
    let mut beside = room.clone();
    beside.tally = room.tally.common(&first.room.tally);
    let of = &room.problem.jobs[job];
    let parts = beside.seek(job, request(of), Style::Packed)?;
    let fits = first.room.quota_allows(of.tenant, gpus_of(&parts));
    fits.then(|| first.room.give(job, parts.clone()))?;
    Some(parts)
}

/// When a job ends on these GPUs, what is left of its start included.
fn end_s(room: &Room<'_>, job: usize, parts: &[Part]) -> f64 {
    let of = &room.problem.jobs[job];
    let now_s = room.problem.now_s;
    let begun_s = if of.present == parts {
        of.since_s
    } else {
        now_s
    };
    let ready_s = (begun_s + of.restart_s).max(now_s);
    ready_s + of.outlook.work_left / room.speed_on(job, parts)
}
