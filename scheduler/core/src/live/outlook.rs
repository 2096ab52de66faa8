//! What the estimators know of a job, as a policy reads it: speed at every number of GPUs, each with the number of shards that
//! brings it.

use super::gang::Shape;
use crate::estimate::Estimate;
use crate::problem::{Curve, Outlook};
use crate::snapshot::Node;
use muster_model::node::is_part;
use std::collections::BTreeSet;
use std::sync::Arc;

/// More shards must bring at least this: they cost CPU, memory and connections.
const ENOUGH: f64 = 0.99;
/// What several nodes keep of one node's speed while nothing is known: a little less, so that gangs stay together.
const SPREAD: f64 = 0.98;

/// The kinds of GPUs of the cluster, in order. Where tasks are pods on some nodes and processes on others, GPUs of one model are two kinds, since
/// jobs may need pods. They are not where executors are only too old to say: a gang on such nodes and newer ones would be on two kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kinds {
    kinds: Arc<[Kind]>,
    is_mixed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    model: String,
    /// In a mixed cluster: of nodes whose tasks are pods.
    pods: bool,
}

impl Kinds {
    pub(crate) fn of(nodes: &[Node]) -> Self {
        let is_mixed = nodes.iter().any(|node| node.pods == Some(false));
        let kinds: BTreeSet<Kind> = nodes
            .iter()
            .map(|node| Kind {
                model: node.gpu_model.clone(),
                pods: is_mixed && node.has_pods(),
            })
            .collect();
        Self {
            kinds: kinds.into_iter().collect(),
            is_mixed,
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let name = |kind: &Kind| match kind.pods {
            true => format!("{} in pods", kind.model),
            false => kind.model.clone(),
        };
        self.kinds.iter().map(name).collect()
    }

    /// The node's place among them; the first of a node whose kind is not there.
    pub(crate) fn index(&self, node: &Node) -> u16 {
        let wanted = (node.gpu_model.as_str(), self.is_mixed && node.has_pods());
        let found = self
            .kinds
            .binary_search_by(|kind| (kind.model.as_str(), kind.pods).cmp(&wanted));
        u16::try_from(found.unwrap_or(0)).unwrap_or(0)
    }

    /// A job has no speed on kinds on which it does not run: on parts, if its workers have more than one GPU, and where tasks are no pods, if
    /// its own must be.
    fn curves(&self, curve: &Curve, shape: &Shape) -> Arc<[Curve]> {
        let runs = |kind: &Kind| {
            let whole = shape.worker.gpus <= 1 || !is_part(&kind.model);
            whole && (kind.pods || !shape.pods || !self.is_mixed)
        };
        let of = |kind: &Kind| match runs(kind) {
            true => curve.clone(),
            false => Curve::default(),
        };
        self.kinds.iter().map(of).collect()
    }
}

/// A job's future, and how many shards go with how many workers.
#[derive(Debug, Clone)]
pub(crate) struct Sizing {
    pub outlook: Outlook,
    /// Of `workers.min + i` workers.
    ps_shards: Arc<[u32]>,
    min_workers: u32,
}

/// A job's speeds at all sizes.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    curves: Arc<[Curve]>,
    /// Of `workers.min + i` workers.
    ps_shards: Arc<[u32]>,
    largest_gpus: u32,
}

impl Sizes {
    /// A size that is no faster than a smaller one is not offered (speed 0), so that a dip in what was measured hides no better size
    /// behind it; the size that the job has now stays.
    pub(crate) fn of(
        estimate: &Estimate,
        shape: &Shape,
        present_workers: u32,
        kinds: &Kinds,
    ) -> Self {
        let min = shape.workers.min;
        let present = present_workers.min(shape.workers.max);
        let most = estimate.most.0.min(shape.workers.max);
        let max = most.max(min).max(present);
        let mut best = 0.0;
        let gpus = shape.worker.gpus.max(1);
        let mut local = vec![0.0; (max.saturating_mul(gpus)) as usize];
        let mut ps_shards = Vec::with_capacity((max - min + 1) as usize);
        let mut speeds = Vec::new();
        for workers in min..=max {
            let (shards, speed) = best_shards(estimate, shape, workers, &mut speeds);
            ps_shards.push(shards);
            let takes = shape.takes(workers);
            let offered = (takes && speed > best) || workers == present_workers;
            if let Some(entry) = (workers * gpus).checked_sub(1).filter(|_| offered) {
                local[entry as usize] = speed;
            }
            if takes {
                best = speed.max(best);
            }
        }
        let spread = local.iter().map(|speed| speed * SPREAD).collect();
        let curve = Curve { local, spread };
        // A job that never ran may start at any size: its owner has stated the bounds, and a wrong size costs one restart.
        let measured = estimate.speed.largest_measured().map_or(max, |size| size.0);
        Self {
            curves: kinds.curves(&curve, shape),
            ps_shards: ps_shards.into(),
            largest_gpus: measured.saturating_mul(gpus),
        }
    }
}

impl Sizing {
    pub(crate) fn of(
        estimate: &Estimate,
        shape: &Shape,
        step: u64,
        present_workers: u32,
        kinds: &Kinds,
    ) -> Self {
        let sizes = Sizes::of(estimate, shape, present_workers, kinds);
        Self::with(estimate, shape, step, sizes)
    }

    pub(crate) fn with(estimate: &Estimate, shape: &Shape, step: u64, sizes: Sizes) -> Self {
        Self {
            outlook: Outlook {
                work_done: step as f64,
                work_left: estimate.steps_left,
                uncertainty: uncertainty(estimate),
                curves: sizes.curves,
                largest_gpus: sizes.largest_gpus,
                loss: None,
            },
            ps_shards: sizes.ps_shards,
            min_workers: shape.workers.min,
        }
    }

    /// The largest number of workers that it may be given.
    pub(crate) fn max_workers(&self) -> u32 {
        self.min_workers + u32::try_from(self.ps_shards.len()).unwrap_or(u32::MAX) - 1
    }

    /// How many shards serve so many workers best.
    pub(crate) fn ps_shards(&self, workers: u32) -> u32 {
        let at = workers.saturating_sub(self.min_workers) as usize;
        let last = self.ps_shards.last().copied().unwrap_or(0);
        self.ps_shards.get(at).copied().unwrap_or(last)
    }
}

/// The fewest shards that are about as good as the best number of them; `speeds` is room for those of every number.
fn best_shards(
    estimate: &Estimate,
    shape: &Shape,
    workers: u32,
    speeds: &mut Vec<f64>,
) -> (u32, f64) {
    let all = shape.ps_shards.min..=estimate.most.1.max(shape.ps_shards.min);
    speeds.clear();
    speeds.extend(
        all.clone()
            .map(|shards| estimate.steps_per_s(workers, shards)),
    );
    let best = speeds.iter().copied().fold(0.0, f64::max);
    all.zip(&*speeds)
        .map(|(shards, &speed)| (shards, speed))
        .find(|&(_, speed)| speed >= ENOUGH * best)
        .unwrap_or((shape.ps_shards.min, best))
}

/// How far the fit is off where it was measured; a guess is off by half.
fn uncertainty(estimate: &Estimate) -> f64 {
    estimate.speed.mean_relative_error.unwrap_or(0.5)
}
