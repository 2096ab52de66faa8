//! Value of an allocation: the goodput of the job there over the goodput of its fair share.

use crate::policies::allocation_state::AllocationState;
use crate::policies::order::{maximum, minimum};
use crate::problem::{NodeAllocation, ProblemJob, ScalingModel, gpus_of, nodes_of};

/// Maximum growth of a job, as a multiple of its largest measured size.
const GROWTH: u32 = 2;
/// Speedup of a job without GPUs. It keeps the inverse finite.
const NOTHING: f64 = 1e-3;

/// Job in the search.
#[derive(Debug, Clone)]
pub struct SearchJob<'a> {
    pub job: usize,
    pub of: &'a ProblemJob,
    /// Smallest size in GPUs, in whole units.
    pub least: u32,
    pub most: u32,
    /// Present parts that the job may keep, by node.
    pub present: Vec<NodeAllocation>,
    /// Goodput of the fair share, by which the job's goodput is divided.
    fair: f64,
    /// Factor on the speedup after a restart.
    restart: f64,
    /// GPUs of the largest node.
    node_gpus: f64,
}

impl<'a> SearchJob<'a> {
    pub fn new(state: &AllocationState<'a>, job: usize) -> Self {
        let problem = state.problem;
        let of = &problem.jobs[job];
        let most = maximum(of).min(
            of.outlook
                .largest_gpus
                .saturating_mul(GROWTH)
                .max(minimum(of)),
        );
        let mut present = Vec::new();
        if state.can_keep(job) {
            present = by_node(state.present(job));
        }
        let node_gpus = state.kinds().iter().map(|&(_, node_gpus)| node_gpus);
        let jobs = u32::try_from(problem.jobs.len()).unwrap_or(u32::MAX);
        Self {
            job,
            of,
            least: minimum(of),
            most,
            fair: fair(state, of, problem.gpus().div_ceil(jobs.max(1))),
            restart: restart(of, present.is_empty(), problem.now_s),
            present,
            node_gpus: f64::from(node_gpus.max().unwrap_or(1)),
        }
    }

    /// Returns the parts of a row. An unchanged row keeps the order in which the job holds its
    /// parts.
    pub fn as_held(&self, row: Vec<NodeAllocation>) -> Vec<NodeAllocation> {
        if !row.is_empty() && row == self.present {
            return self.of.present.clone();
        }
        row
    }

    /// Returns the inverse speedup, in units of the GPUs of one node. The search minimises the sum.
    pub fn cost(&self, state: &AllocationState<'_>, parts: &[NodeAllocation]) -> f64 {
        let Some(kind) = state.kind_of(parts) else {
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

/// Merges the parts into one entry per node, in the order of the nodes.
pub fn by_node(parts: &[NodeAllocation]) -> Vec<NodeAllocation> {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|part| part.node);
    parts.dedup_by(|next, part| {
        let same = next.node == part.node;
        part.gpus += if same { next.gpus } else { 0 };
        same
    });
    parts
}

/// Returns the goodput of `gpus` GPUs on one node, averaged over the kinds on which the job runs.
/// If the speed at that size on one node is unknown, the largest smaller size counts.
fn fair(state: &AllocationState<'_>, job: &ProblemJob, gpus: u32) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for &(kind, _) in state.kinds() {
        let weight = f64::from(state.problem.gpus_of_kind(kind));
        let gpus = gpus.clamp(minimum(job), maximum(job));
        if let Some(goodput) = local(&job.outlook, kind, gpus) {
            sum += goodput * weight;
            weights += weight;
        }
    }
    if sum > 0.0 { sum / weights } else { 1.0 }
}

fn local(outlook: &ScalingModel, kind: u16, gpus: u32) -> Option<f64> {
    let speeds = (1..=gpus).rev().map(|gpus| outlook.speed(kind, gpus, 1));
    speeds.into_iter().find(|&speed| speed > 0.0)
}

/// Returns the part of a job's life with progress, including past restarts and the next one. A job
/// that holds nothing loses nothing.
fn restart(job: &ProblemJob, idle: bool, now_s: f64) -> f64 {
    if idle {
        return 1.0;
    }
    let age_s = job.age_s(now_s);
    let lost_s = f64::from(job.restarts) * job.restart_s;
    (age_s - lost_s).max(0.0) / (age_s + job.restart_s).max(1.0)
}
