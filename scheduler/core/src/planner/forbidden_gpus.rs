//! GPUs that the constraints of a job exclude, by model and constraint: for wait reasons and their
//! remedies.

use super::free::{Availability, FreeNode};
use super::round_state::RoundState;
use crate::snapshot::SnapshotJob;
use muster_model::spec::{NodeConstraints, UnmetConstraint};
use muster_model::wait::ForbiddenGpus;
use std::collections::BTreeMap;

/// Maximum number of entries of one wait reason.
const MOST_NAMED: usize = 4;

/// GPUs that are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GpusCounted<'f> {
    /// All GPUs of open nodes.
    All,
    /// Free GPUs.
    Free(&'f [FreeNode]),
}

/// Returns the GPUs of open nodes that the job's constraints exclude, most GPUs first. The
/// list is empty for a job without constraints: CPU slots beside GPUs are not worth a hint.
pub(crate) fn forbidden_gpus(
    round: &RoundState<'_>,
    job: &SnapshotJob,
    counted: GpusCounted<'_>,
) -> Vec<ForbiddenGpus> {
    if job.constraints.is_empty() {
        return Vec::new();
    }
    let best = round.snapshot.best_gpu_class();
    let mut gpus_by: BTreeMap<(UnmetConstraint, &str), u32> = BTreeMap::new();
    for (index, node) in round.snapshot.nodes.iter().enumerate() {
        let gpus = match counted {
            GpusCounted::All if node.is_open() => node.own_gpus(),
            GpusCounted::All => 0,
            GpusCounted::Free(free) => free[index].gpus(Availability::Now),
        };
        if gpus == 0 || !node.hosts(job.pods, job.image) {
            continue;
        }
        if let Some(by) = job.constraints.unmet(&node.traits(), best) {
            *gpus_by.entry((by, &node.gpu_model)).or_default() += gpus;
        }
    }
    let mut forbidden: Vec<ForbiddenGpus> = gpus_by
        .into_iter()
        .map(|((by, model), gpus)| ForbiddenGpus {
            gpu_model: model.to_owned(),
            gpus,
            by,
        })
        .collect();
    // The sort is stable, so that equal numbers keep the order of constraint and model.
    forbidden.sort_by_key(|one| std::cmp::Reverse(one.gpus));
    forbidden.truncate(MOST_NAMED);
    forbidden
}

/// Returns the constraints without the part that excludes GPUs of this model.
pub(crate) fn relaxed(
    constraints: &NodeConstraints,
    by: UnmetConstraint,
    gpu_model: &str,
) -> NodeConstraints {
    let mut relaxed = constraints.clone();
    match by {
        UnmetConstraint::GpuKinds => relaxed.gpu_kinds.push(gpu_model.to_owned()),
        UnmetConstraint::GpuMemory => relaxed.gpu_memory_bytes = None,
        UnmetConstraint::ComputeCapability => relaxed.compute_capability = None,
        UnmetConstraint::NodeSelector => relaxed.node_selector.clear(),
        UnmetConstraint::ExcludeNodes => relaxed.exclude_nodes.clear(),
    }
    relaxed
}
