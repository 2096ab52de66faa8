//! The configurations that a job may take, and what each is worth.

use crate::policies::order::{maximum, minimum};
use crate::policies::room::{Room, Style};
use crate::policies::seat::{Wish, free_by_kind};
use crate::problem::{Job, Worth, gpus_of};

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

/// What one job may choose from.
#[derive(Debug, Clone)]
pub struct Choices {
    /// Kind by kind and the smaller ones first, what it holds last.
    pub all: Vec<Choice>,
    /// Makes its smallest goodput the number of GPUs of its smallest configuration.
    scale: f64,
    /// What a restart leaves of its goodput.
    discount: f64,
    /// GPUs of the cluster.
    gpus: f64,
}

impl Choices {
    /// The configurations for which the room, as it is, has a place, and that take something off the sum.
    pub fn of_job(room: &Room<'_>, job: usize) -> Self {
        let of = &room.problem.jobs[job];
        let configurations = configurations(room, job);
        let goodputs = configurations.iter().map(|&(_, goodput)| goodput);
        let smallest = goodputs.fold(f64::INFINITY, f64::min);
        let fewest = configurations.iter().map(|(wish, _)| wish.gpus).min();
        let mut choices = Self {
            all: Vec::new(),
            scale: f64::from(fewest.unwrap_or(1)) / smallest,
            discount: discount(of, room.problem.now_s),
            gpus: f64::from(room.problem.gpus().max(1)),
        };
        let held = held(room, job);
        let others = configurations.into_iter();
        let others = others.filter(|(wish, _)| held.is_none_or(|(present, _)| present != *wish));
        let all = others.map(|(wish, goodput)| (wish, goodput, false));
        let held = held.map(|(wish, goodput)| (wish, goodput, true));
        let choice = |(wish, goodput, present)| Choice {
            wish,
            gain: choices.gain(goodput, wish.gpus, present),
            present,
        };
        choices.all = without_waste(all.chain(held).map(choice).collect());
        choices
    }

    /// What so much goodput takes off the sum, where the job is already or elsewhere.
    fn gain(&self, goodput: f64, gpus: u32, stays: bool) -> f64 {
        let kept = if stays { 1.0 } else { self.discount };
        let cost = ((goodput * self.scale * kept).powf(FAIRNESS) * 100.0).round() / 100.0;
        let stay = if stays { STAY } else { 0.0 };
        IDLE_COST - cost + stay - LEAN * f64::from(gpus) / self.gpus
    }

    /// What the place that the job was given takes off the sum.
    pub fn gained(&self, room: &Room<'_>, job: usize) -> f64 {
        room.given(job).map_or(0.0, |parts| {
            let stays = room.present(job) == parts;
            self.gain(room.speed_on(job, parts), gpus_of(parts), stays)
        })
    }

    /// What the last step to a configuration gained per GPU, and what the next one of the same kind would.
    pub fn worth(&self, chosen: Wish) -> Worth {
        let here = self
            .all
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
}

/// Configurations and their goodput where the room would seat them now.
fn configurations(room: &Room<'_>, job: usize) -> Vec<(Wish, f64)> {
    let of = &room.problem.jobs[job];
    let free = free_by_kind(room);
    let mut configurations = Vec::new();
    for &(kind, node_gpus) in room.kinds() {
        let limit = maximum(of)
            .min(
                of.outlook
                    .largest_gpus
                    .saturating_mul(GROWTH)
                    .max(minimum(of)),
            )
            .min(free[usize::from(kind)]);
        for gpus in sizes(of, node_gpus, limit) {
            // None where the quota, CPU or memory forbid it, or where it has no speed.
            if let Some(parts) = room.find(job, kind, gpus, Style::Packed) {
                let goodput = room.speed_on(job, &parts);
                configurations.push((Wish { job, kind, gpus }, goodput));
            }
        }
    }
    configurations
}

/// What it holds and may keep, and its speed there.
fn held(room: &Room<'_>, job: usize) -> Option<(Wish, f64)> {
    let parts = room.present(job);
    let of = &room.problem.jobs[job];
    if !room.can_keep(job) {
        return None;
    }
    let (kind, gpus) = (room.kind_of(parts)?, gpus_of(parts));
    let right = (minimum(of)..=maximum(of)).contains(&gpus);
    right.then(|| (Wish { job, kind, gpus }, room.speed_on(job, parts)))
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
