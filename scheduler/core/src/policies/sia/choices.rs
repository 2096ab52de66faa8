//! The configurations that a job may take, and what each is worth.

use crate::policies::order::{maximum, minimum};
use crate::policies::room::Room;
use crate::policies::seat::{Wish, free_by_kind};
use crate::problem::{Job, Worth, gpus_of, nodes_of};

/// How strongly jobs with little goodput are preferred: the exponent of the goodput in the sum that is minimised.
const FAIRNESS: f64 = -0.5;
/// What a job without GPUs costs in that sum. A job at its smallest costs 1.
const IDLE_COST: f64 = 1.1;
/// A job may grow to so many times the largest size at which it was measured.
const GROWTH: u32 = 2;
/// Of equal sums, the one that moves fewer jobs is taken, and then the one with fewer GPUs; the costs are rounded to 0.01.
const STAY: f64 = 2e-3;
const LEAN: f64 = 1e-3;

/// A configuration for a job.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    pub wish: Wish,
    /// What it takes off the sum; more than 0.
    pub gain: f64,
    /// What the job holds already.
    pub present: bool,
}

/// The configurations that take something off the sum, kind by kind and the smaller ones first.
pub fn of_job(room: &Room<'_>, job: usize) -> Vec<Choice> {
    let of = &room.problem.jobs[job];
    let goodputs = goodputs(room, job);
    let smallest = goodputs.iter().map(|&(_, _, goodput)| goodput);
    let smallest = smallest.fold(f64::INFINITY, f64::min);
    let fewest = goodputs.iter().map(|(wish, ..)| wish.gpus).min();
    let scale = f64::from(fewest.unwrap_or(1)) / smallest;
    let discount = discount(of, room.problem.now_s);
    let gpus = f64::from(room.problem.gpus().max(1));
    let choice = |(wish, present, goodput): (Wish, bool, f64)| {
        let kept = if present { 1.0 } else { discount };
        let cost = ((goodput * scale * kept).powf(FAIRNESS) * 100.0).round() / 100.0;
        let stays = if present { STAY } else { 0.0 };
        let gain = IDLE_COST - cost + stays - LEAN * f64::from(wish.gpus) / gpus;
        Choice {
            wish,
            gain,
            present,
        }
    };
    without_waste(goodputs.into_iter().map(choice).collect())
}

/// Configurations with their goodput, and whether the job holds just that.
fn goodputs(room: &Room<'_>, job: usize) -> Vec<(Wish, bool, f64)> {
    let of = &room.problem.jobs[job];
    let free = free_by_kind(room);
    let held = held(room, job);
    let mut goodputs = Vec::new();
    for &(kind, node_gpus) in room.kinds() {
        let limit = maximum(of)
            .min((GROWTH * of.outlook.largest_gpus).max(minimum(of)))
            .min(free[usize::from(kind)]);
        for gpus in sizes(of, node_gpus, limit) {
            let wish = Wish { job, kind, gpus };
            if held.is_none_or(|(present, _)| present != wish) {
                goodputs.push((wish, false, room.speed(job, kind, gpus)));
            }
        }
    }
    if let Some((present, speed)) = held {
        goodputs.push((present, true, speed));
    }
    goodputs.retain(|&(wish, _, goodput)| goodput > 0.0 && room.quota_allows(of.tenant, wish.gpus));
    goodputs
}

/// What it holds and may keep, and its speed there.
fn held(room: &Room<'_>, job: usize) -> Option<(Wish, f64)> {
    let parts = room.present(job);
    let of = &room.problem.jobs[job];
    if !room.can_keep(job) {
        return None;
    }
    let kind = room.kind_of(parts)?;
    let gpus = gpus_of(parts);
    let speed = of.outlook.speed(kind, gpus, nodes_of(parts));
    (minimum(of)..=maximum(of))
        .contains(&gpus)
        .then_some((Wish { job, kind, gpus }, speed))
}

/// Whole units by powers of two on one node, whole nodes above; and the smallest gang, which may be none of these.
fn sizes(job: &Job, node_gpus: u32, limit: u32) -> Vec<u32> {
    let unit = job.unit.gpus.max(1);
    let node = node_gpus / unit * unit;
    if node == 0 {
        return Vec::new();
    }
    let parts = std::iter::successors(Some(unit), |gpus| Some(gpus * 2));
    let parts = parts.take_while(|&gpus| gpus < node);
    let nodes = (1..=limit / node).map(|nodes| nodes * node);
    let all = parts.chain(nodes).chain([minimum(job)]);
    let mut sizes: Vec<u32> = all
        .filter(|gpus| (minimum(job)..=limit).contains(gpus))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// What a restart leaves of a job's goodput: the part of its life that it would have made progress in, restarts behind and ahead.
fn discount(job: &Job, now_s: f64) -> f64 {
    let age_s = job.age_s(now_s);
    if job.present.is_empty() || age_s < job.restart_s {
        return 1.0;
    }
    let lost_s = f64::from(job.restarts) * job.restart_s;
    (age_s - lost_s).max(0.0) / (age_s + job.restart_s).max(1.0)
}

/// Drops what costs the sum and what gains no more than a smaller configuration of the same kind: no optimum takes it.
fn without_waste(choices: Vec<Choice>) -> Vec<Choice> {
    let better = |choice: &Choice| {
        choices.iter().any(|other| {
            other.wish.kind == choice.wish.kind
                && other.wish.gpus < choice.wish.gpus
                && other.gain >= choice.gain
        })
    };
    let keeps = |choice: &&Choice| choice.gain > 0.0 && !better(choice);
    choices.iter().filter(keeps).copied().collect()
}

/// What the last step to a configuration gained per GPU, and what the next one of the same kind would.
pub fn worth(of_job: &[Choice], chosen: Wish) -> Worth {
    let here = of_job
        .iter()
        .filter(|choice| choice.wish.kind == chosen.kind);
    let sizes: Vec<(u32, f64)> = here.map(|choice| (choice.wish.gpus, choice.gain)).collect();
    let at = sizes.iter().find(|&&(gpus, _)| gpus == chosen.gpus);
    let &(gpus, gain) = at.unwrap_or(&(chosen.gpus, 0.0));
    let smaller = sizes.iter().filter(|&&(other, _)| other < gpus);
    let &(below, least) = smaller
        .max_by_key(|&&(other, _)| other)
        .unwrap_or(&(0, 0.0));
    let larger = sizes.iter().filter(|&&(other, _)| other > gpus);
    let next = larger.min_by_key(|&&(other, _)| other);
    let step = |more: f64, gpus: u32| more / f64::from(gpus.max(1));
    Worth {
        last_gain: step(gain - least, gpus - below),
        next_gain: next.map_or(0.0, |&(above, more)| step(more - gain, above - gpus)),
    }
}
