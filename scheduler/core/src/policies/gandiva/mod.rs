//! Gandiva's time slices (Xiao et al., OSDI 2018): when there are more gangs than GPUs, they take turns of a quantum, so that
//! every job shows early whether it is worth its GPUs.
//!
//! It optimises no completion time; it gives early feedback and high utilisation. Whoever waits is served in the order in which
//! it began to wait; whoever has run for a quantum goes behind those who wait by then. Placement prefers nodes whose jobs have the
//! same size (affinity). Running jobs are migrated to bring a scattered gang together, by emptying the node with the most free
//! GPUs, and a job that may grow takes idle GPUs of its own node for as long as nobody else needs them.
//!
//! Left out: packing of two jobs on one GPU, because a decision cannot say that a GPU is shared; over-subscription node by node
//! (turns are taken in the cluster as a whole); and profiling: whether a migration or a growth pays is read off the outlook.

mod gather;
mod grow;

use super::order::request;
use super::room::{Room, Style};
use super::{Promises, Share, gang};
use crate::problem::{Decision, Part, Problem};
use std::cmp::Reverse;

/// Gangs in turns.
#[derive(Debug, Clone, Copy)]
pub struct Gandiva;

/// Seconds of a turn.
pub const QUANTUM_S: f64 = 60.0;

/// How often gangs are gathered in one decision: each time may make room for others, and once is the rule.
const MIGRATIONS: usize = 8;

/// Once a gang has waited so long, nobody behind it starts before it, so that room for it comes together.
const PATIENCE_S: f64 = 2.0 * QUANTUM_S;

impl Share for Gandiva {
    fn share(&self, problem: &Problem) -> Decision {
        let bases: Vec<Option<Vec<Part>>> = (0..problem.jobs.len())
            .map(|job| Some(base(problem, job)))
            .collect();
        let start = Room::beside_fixed(problem).with_present(&bases);
        let turns = turns(problem);
        let impatient = impatient(&start);
        let queue = || {
            let mut turns = turns.iter().copied();
            // The last one named, and the priority whose newcomers have to wait.
            let mut named: Option<usize> = None;
            let mut held_back: Option<i32> = None;
            let impatient = &impatient;
            move |room: &Room<'_>| {
                if let Some(job) = named.filter(|&job| impatient[job] && room.given(job).is_none())
                {
                    held_back = Some(problem.jobs[job].priority);
                }
                named = turns.find(|&job| {
                    let of = &problem.jobs[job];
                    Some(of.priority) != held_back || !of.present.is_empty()
                });
                named
            }
        };
        let serve = |given: &[Option<Vec<Part>>], start: &Room<'_>| {
            let start = start.clone().with_present(given);
            gang::run(&start, Style::Affine, queue).into_given()
        };
        let mut given = serve(&bases, &start);
        for _ in 0..MIGRATIONS {
            let Some(gathered) = gather::scattered(&start, &given) else {
                break;
            };
            // What moved may have made room for somebody.
            given = serve(&gathered, &start);
        }
        grow::into_idle(&start, given).decision()
    }

    fn promises(&self) -> Promises {
        Promises {
            gathers: true,
            ..Promises::default()
        }
    }
}

/// What a job holds but for what it grew into.
fn base(problem: &Problem, job: usize) -> Vec<Part> {
    let of = &problem.jobs[job];
    let mut left = request(of);
    let mut parts = of.present.clone();
    for part in &mut parts {
        part.gpus = part.gpus.min(left);
        left -= part.gpus;
    }
    parts.retain(|part| part.gpus > 0);
    parts
}

/// Whether a job is in its first quantum on what it holds, and keeps it if it can.
fn in_first_quantum(problem: &Problem, job: usize) -> bool {
    let of = &problem.jobs[job];
    !of.present.is_empty() && problem.now_s < of.since_s + QUANTUM_S
}

/// The order: by priority; in it those in their first quantum; then all others by when they last went to the end of the queue,
/// which is when one that waits began to wait and the end of the last whole quantum of one that runs.
fn turns(problem: &Problem) -> Vec<usize> {
    let queued_s = |job: usize| {
        let of = &problem.jobs[job];
        if of.present.is_empty() {
            return of.since_s;
        }
        let quanta = ((problem.now_s - of.since_s) / QUANTUM_S).floor();
        of.since_s + quanta * QUANTUM_S
    };
    let mut order: Vec<usize> = (0..problem.jobs.len()).collect();
    let class = |job: usize| {
        let of = &problem.jobs[job];
        (Reverse(of.priority), !in_first_quantum(problem, job))
    };
    order.sort_by(|&a, &b| {
        let waits = |job: usize| problem.jobs[job].present.is_empty();
        let by_queue = queued_s(a).total_cmp(&queued_s(b));
        class(a)
            .cmp(&class(b))
            .then(by_queue)
            .then(waits(a).cmp(&waits(b)))
    });
    order
}

/// Of every job, whether it has waited long for a place that it could have: on a cluster without anybody who may be moved.
fn impatient(start: &Room<'_>) -> Vec<bool> {
    let problem = start.problem;
    let waits_long = |job: usize| {
        let of = &problem.jobs[job];
        of.present.is_empty()
            && problem.now_s - of.since_s > PATIENCE_S
            && start.seek(job, request(of), Style::Packed).is_some()
    };
    (0..problem.jobs.len()).map(waits_long).collect()
}

/// Whether a job may be migrated or resized now: it holds what it held at the start, for more than a quantum.
fn is_settled(start: &Room<'_>, job: usize, given: Option<&[Part]>) -> bool {
    let present = start.present(job);
    !present.is_empty() && given == Some(present) && !in_first_quantum(start.problem, job)
}

/// Seconds that a job still needs on these GPUs.
fn time_left_s(room: &Room<'_>, job: usize, parts: &[Part]) -> f64 {
    room.problem.jobs[job].outlook.work_left / room.speed_on(job, parts)
}
