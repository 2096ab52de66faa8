//! Estimates of a job as a policy reads them: speed for each number of GPUs, with the number of
//! shards that gives this speed.

use super::gang::GangShape;
use crate::estimate::Estimate;
use crate::problem::{KindSpeedCurve, ScalingModel};
use crate::snapshot::SnapshotNode;
use muster_model::node::is_part;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Minimum share of the best speed that is enough: more shards cost CPU, memory and connections.
const ENOUGH: f64 = 0.99;

/// Kinds of GPUs of the cluster, in order. In a cluster with pods on some nodes and processes on
/// others, a GPU model has two kinds, because jobs may need pods. Executors too old to report this
/// do not make the cluster mixed: a gang on older and newer nodes would otherwise have two kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kinds {
    kinds: Arc<[NodeGpuKind]>,
    is_mixed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NodeGpuKind {
    model: String,
    /// Whether tasks of the node are pods; `false` unless the cluster is mixed.
    pods: bool,
}

impl Kinds {
    pub(crate) fn of(nodes: &[SnapshotNode]) -> Self {
        let is_mixed = nodes.iter().any(|node| node.pods == Some(false));
        let kinds: BTreeSet<NodeGpuKind> = nodes
            .iter()
            .map(|node| NodeGpuKind {
                model: node.gpu_model.clone(),
                pods: is_mixed && node.has_pods(),
            })
            .collect();
        Self {
            kinds: kinds.into_iter().collect(),
            is_mixed,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.kinds
            .iter()
            .map(|kind| {
                if kind.pods {
                    format!("{} in pods", kind.model)
                } else {
                    kind.model.clone()
                }
            })
            .collect()
    }

    /// Index of the node's kind; 0 if the kind is unknown.
    pub(crate) fn index(&self, node: &SnapshotNode) -> u16 {
        let wanted = (node.gpu_model.as_str(), self.is_mixed && node.has_pods());
        let found = self
            .kinds
            .binary_search_by(|kind| (kind.model.as_str(), kind.pods).cmp(&wanted));
        u16::try_from(found.unwrap_or(0)).unwrap_or(0)
    }

    /// Curves by kind. A job has no speed on kinds on which it does not run. These are parts of
    /// GPUs if its workers have several GPUs, and kinds without a node of [`JobNodes`].
    ///
    /// [`JobNodes`]: super::job_nodes::JobNodes
    fn curves(
        &self,
        shape: &GangShape,
        curve_on: impl Fn(&str) -> KindSpeedCurve,
    ) -> Arc<[KindSpeedCurve]> {
        self.kinds
            .iter()
            .enumerate()
            .map(|(index, kind)| {
                let fits_worker = shape.worker.gpus <= 1 || !is_part(&kind.model);
                if fits_worker && shape.nodes.has_kind(index) {
                    curve_on(&kind.model)
                } else {
                    KindSpeedCurve::default()
                }
            })
            .collect()
    }
}

/// Outlook of a job, and the number of shards for each number of workers.
#[derive(Debug, Clone)]
pub(crate) struct JobScaling {
    pub outlook: ScalingModel,
    /// For `workers.min + i` workers.
    ps_shards: Arc<[u32]>,
    min_workers: u32,
}

/// Speeds of a job at all sizes.
#[derive(Debug, Clone)]
pub(crate) struct ScalingCurves {
    curves: Arc<[KindSpeedCurve]>,
    /// For `workers.min + i` workers.
    ps_shards: Arc<[u32]>,
    largest_gpus: u32,
}

impl ScalingCurves {
    /// A size that is not faster than a smaller one is not offered (speed 0). A dip in the
    /// measurements then hides no better size behind it. The present size is always offered.
    pub(crate) fn of(
        estimate: &Estimate,
        shape: &GangShape,
        present_workers: u32,
        kinds: &Kinds,
    ) -> Self {
        let min = shape.workers.min;
        let present = present_workers.min(shape.workers.max);
        let most = estimate.most.0.min(shape.workers.max);
        let max = most.max(min).max(present);
        let gpus = shape.worker.gpus.max(1);
        let mut speeds = Vec::new();
        let ps_shards: Arc<[u32]> = (min..=max)
            .map(|workers| best_shards(estimate, shape, workers, &mut speeds))
            .collect();
        let sizes = OfferedSizes {
            estimate,
            shape,
            present_workers,
            ps_shards: &ps_shards,
        };
        let curves = if estimate.kinds.is_some() {
            kinds.curves(shape, |kind| sizes.curve_on(kind))
        } else {
            let curve = sizes.curve_on("");
            kinds.curves(shape, |_| curve.clone())
        };
        // A job that never ran may start at any size: its owner has stated the range, and a wrong
        // size costs one restart.
        let measured = estimate.speed.largest_measured().map_or(max, |size| size.0);
        Self {
            curves,
            ps_shards,
            largest_gpus: measured.saturating_mul(gpus),
        }
    }
}

/// Inputs of the curves of one job.
struct OfferedSizes<'s> {
    estimate: &'s Estimate,
    shape: &'s GangShape,
    present_workers: u32,
    /// Number of shards for `workers.min + i` workers.
    ps_shards: &'s [u32],
}

impl OfferedSizes<'_> {
    /// Returns the speeds on a kind.
    fn curve_on(&self, kind: &str) -> KindSpeedCurve {
        let gpus = self.shape.worker.gpus.max(1);
        let min = self.shape.workers.min;
        let largest = min as usize + self.ps_shards.len() - 1;
        let mut local = vec![0.0; largest * gpus as usize];
        let mut spread = local.clone();
        let mut best = 0.0;
        for (workers, &shards) in (min..).zip(self.ps_shards) {
            let speeds = self.estimate.speeds_on(kind, (workers, shards));
            let takes = self.shape.takes(workers);
            let offered = (takes && speeds.local > best) || workers == self.present_workers;
            if let Some(entry) = (workers * gpus).checked_sub(1).filter(|_| offered) {
                local[entry as usize] = speeds.local;
                spread[entry as usize] = speeds.spread;
            }
            if takes {
                best = speeds.local.max(best);
            }
        }
        KindSpeedCurve { local, spread }
    }
}

impl JobScaling {
    pub(crate) fn of(
        estimate: &Estimate,
        shape: &GangShape,
        step: u64,
        present_workers: u32,
        kinds: &Kinds,
    ) -> Self {
        let sizes = ScalingCurves::of(estimate, shape, present_workers, kinds);
        Self::with(estimate, shape, step, sizes)
    }

    pub(crate) fn with(
        estimate: &Estimate,
        shape: &GangShape,
        step: u64,
        sizes: ScalingCurves,
    ) -> Self {
        Self {
            outlook: ScalingModel {
                work_done: step as f64,
                work_left: estimate.steps_left,
                uncertainty: uncertainty(estimate),
                curves: sizes.curves,
                largest_gpus: sizes.largest_gpus,
                loss: estimate.loss,
            },
            ps_shards: sizes.ps_shards,
            min_workers: shape.workers.min,
        }
    }

    /// Maximum number of workers that the job can get.
    pub(crate) fn max_workers(&self) -> u32 {
        self.min_workers + u32::try_from(self.ps_shards.len()).unwrap_or(u32::MAX) - 1
    }

    /// Best number of shards for this number of workers.
    pub(crate) fn ps_shards(&self, workers: u32) -> u32 {
        let at = workers.saturating_sub(self.min_workers) as usize;
        let last = self.ps_shards.last().copied().unwrap_or(0);
        self.ps_shards.get(at).copied().unwrap_or(last)
    }
}

/// Smallest number of shards that is about as good as the best one. `speeds` is a scratch buffer.
fn best_shards(estimate: &Estimate, shape: &GangShape, workers: u32, speeds: &mut Vec<f64>) -> u32 {
    let all = shape.ps_shards.min..=estimate.most.1.max(shape.ps_shards.min);
    speeds.clear();
    speeds.extend(
        all.clone()
            .map(|shards| estimate.steps_per_s(workers, shards)),
    );
    let best = speeds.iter().copied().fold(0.0, f64::max);
    all.zip(&*speeds)
        .find(|&(_, &speed)| speed >= ENOUGH * best)
        .map_or(shape.ps_shards.min, |(shards, _)| shards)
}

/// Mean relative error of the fit; 0.5 before a measurement.
fn uncertainty(estimate: &Estimate) -> f64 {
    estimate.speed.mean_relative_error.unwrap_or(0.5)
}
