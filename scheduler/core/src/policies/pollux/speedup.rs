//! What an allocation is worth to a job: its goodput there over that of its fair share.

use crate::policies::order::{maximum, minimum};
use crate::policies::room::Room;
use crate::problem::{Job, Outlook, Part, gpus_of, nodes_of};

/// A job may grow to so many times the largest size at which it was measured.
const GROWTH: u32 = 2;
/// What a job without GPUs counts, so that its inverse is finite.
const NOTHING: f64 = 1e-3;

/// One job as the search sees it.
#[derive(Debug, Clone)]
pub struct Contender<'a> {
    pub job: usize,
    pub of: &'a Job,
    /// GPUs, in whole units.
    pub least: u32,
    pub most: u32,
    /// What it holds and may keep, by node.
    pub present: Vec<Part>,
    /// By which its goodput is divided.
    fair: f64,
    /// What a restart leaves of its speedup.
    restart: f64,
    /// GPUs of the largest node.
    node_gpus: f64,
}

impl<'a> Contender<'a> {
    pub fn new(room: &Room<'a>, job: usize) -> Self {
        let problem = room.problem;
        let of = &problem.jobs[job];
        let most = maximum(of).min(
            of.outlook
                .largest_gpus
                .saturating_mul(GROWTH)
                .max(minimum(of)),
        );
        let mut present = Vec::new();
        if room.can_keep(job) {
            present = by_node(room.present(job));
        }
        let node_gpus = room.kinds().iter().map(|&(_, node_gpus)| node_gpus);
        let jobs = u32::try_from(problem.jobs.len()).unwrap_or(u32::MAX);
        Self {
            job,
            of,
            least: minimum(of),
            most,
            fair: fair(room, of, problem.gpus().div_ceil(jobs.max(1))),
            restart: restart(of, present.is_empty(), problem.now_s),
            present,
            node_gpus: f64::from(node_gpus.max().unwrap_or(1)),
        }
    }

    /// In the order in which it holds them when they are the same.
    pub fn as_held(&self, row: Vec<Part>) -> Vec<Part> {
        if !row.is_empty() && row == self.present {
            return self.of.present.clone();
        }
        row
    }

    /// The inverse of its speedup, in units of a node's worth of GPUs: what the search minimises the sum of.
    pub fn cost(&self, room: &Room<'_>, parts: &[Part]) -> f64 {
        let Some(kind) = room.kind_of(parts) else {
            return 1.0 / NOTHING;
        };
        let goodput = self.of.outlook.speed(kind, gpus_of(parts), nodes_of(parts));
        let restart = if parts == self.present {
            1.0
        } else {
            self.restart
        };
        1.0 / (goodput / self.fair * restart / self.node_gpus + NOTHING)
    }
}

/// One entry for each node, in the nodes' order.
pub fn by_node(parts: &[Part]) -> Vec<Part> {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|part| part.node);
    parts.dedup_by(|next, part| {
        let same = next.node == part.node;
        part.gpus += if same { next.gpus } else { 0 };
        same
    });
    parts
}

/// The goodput of so many GPUs on one node, averaged over the kinds on which the job runs at all; where nobody knows its speed at
/// that size on one node, that of the largest size below.
fn fair(room: &Room<'_>, job: &Job, gpus: u32) -> f64 {
    let on = |kind: u16| local(&job.outlook, kind, gpus.clamp(minimum(job), maximum(job)));
    let (mut sum, mut weights) = (0.0, 0.0);
    for &(kind, _) in room.kinds() {
        let weight = f64::from(room.problem.gpus_of_kind(kind));
        if let Some(goodput) = on(kind) {
            sum += goodput * weight;
            weights += weight;
        }
    }
    if sum > 0.0 { sum / weights } else { 1.0 }
}

fn local(outlook: &Outlook, kind: u16, gpus: u32) -> Option<f64> {
    let speeds = (1..=gpus).rev().map(|gpus| outlook.speed(kind, gpus, 1));
    speeds.into_iter().find(|&speed| speed > 0.0)
}

/// The part of its life that a job would have made progress in, restarts behind and ahead. One that holds nothing loses nothing.
fn restart(job: &Job, idle: bool, now_s: f64) -> f64 {
    if idle {
        return 1.0;
    }
    let age_s = job.age_s(now_s);
    let lost_s = f64::from(job.restarts) * job.restart_s;
    (age_s - lost_s).max(0.0) / (age_s + job.restart_s).max(1.0)
}
