//! Lower bounds of a job for a class of policies: its fastest run on the empty cluster and its
//! least work.

use super::application::Application;
use super::rules::SimulatorRules;
use super::training::{iteration_s, packed};
use muster_core::learn::{BatchLimits, BatchSplit};
use muster_core::problem::ProblemNode;

/// Freedom of a class of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Chooses batch size and GPUs.
    Adaptive,
    /// Chooses GPUs; the batch size is the user's.
    Elastic { batch: u32 },
    /// Chooses neither.
    Rigid { batch: u32, gpus: u32 },
}

/// Minimum seconds and minimum GPU-seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct JobLowerBound {
    pub alone_s: f64,
    pub gpu_s: f64,
}

/// Number of batch sizes tried for every shape.
const BATCHES: u32 = 30;

/// Index of a GPU kind, GPUs of its largest node, and all its GPUs.
type GpuKindCapacity = (u16, u32, u32);

pub(super) fn lower_bound(
    application: &Application,
    rules: SimulatorRules,
    nodes: &[ProblemNode],
    class: Class,
) -> JobLowerBound {
    let shapes: Vec<(u32, Vec<(BatchSplit, f64)>)> = kinds(nodes)
        .into_iter()
        .filter(|&(kind, ..)| !application.measured[usize::from(kind)].is_empty())
        .flat_map(|kind| {
            let limits = rules.limits(application, kind.0);
            sizes(kind, class, limits).map(move |gpus| (kind, gpus))
        })
        .map(|((kind, node_gpus, _), gpus)| {
            let placement = packed(gpus, node_gpus);
            let measured = &application.measured[usize::from(kind)];
            let limits = rules.limits_on(application, kind, &placement);
            let timed = batches(class, limits, gpus).into_iter().map(|batch| {
                let slow = rules.slowdown(&application.name);
                (batch, iteration_s(measured, &placement, batch) * slow)
            });
            (gpus, timed.collect())
        })
        .collect();
    let mut bound = JobLowerBound {
        alone_s: 0.0,
        gpu_s: 0.0,
    };
    for epoch in 0..application.epochs {
        let work = application.progress_until(epoch + 1) - application.progress_until(epoch);
        let (mut alone_s, mut gpu_s) = (f64::INFINITY, f64::INFINITY);
        for (gpus, batches) in &shapes {
            for &(batch, step_s) in batches {
                let total = f64::from(batch.total(*gpus));
                let noise = application.noise(total, epoch);
                let gain = noise.gain(total / f64::from(application.init_batch));
                let time_s = work / gain * step_s;
                alone_s = alone_s.min(time_s);
                gpu_s = gpu_s.min(time_s * f64::from(*gpus));
            }
        }
        bound.alone_s += alone_s;
        bound.gpu_s += gpu_s;
    }
    bound
}

fn kinds(nodes: &[ProblemNode]) -> Vec<GpuKindCapacity> {
    let most = nodes.iter().map(|node| node.kind).max().unwrap_or(0);
    (0..=most)
        .map(|kind| {
            let of_kind = nodes.iter().filter(|node| node.kind == kind);
            let gpus = of_kind.map(|node| node.gpus);
            (kind, gpus.clone().max().unwrap_or(0), gpus.sum())
        })
        .filter(|&(_, _, gpus)| gpus > 0)
        .collect()
}

/// Numbers of GPUs to try: any number on one node, whole nodes beyond it. A rigid class has its
/// requested number only.
fn sizes(
    (_, node_gpus, gpus): GpuKindCapacity,
    class: Class,
    limits: BatchLimits,
) -> impl Iterator<Item = u32> {
    let (only, most) = match class {
        Class::Adaptive => (None, limits.max / limits.min_local),
        Class::Elastic { batch } => (None, batch / limits.min_local),
        Class::Rigid { gpus, .. } => (Some(gpus), gpus),
    };
    (1..=gpus).filter(move |&size| match only {
        Some(only) => size == only,
        None => size <= most.max(1) && (size <= node_gpus || size % node_gpus == 0),
    })
}

fn batches(class: Class, limits: BatchLimits, gpus: u32) -> Vec<BatchSplit> {
    match class {
        Class::Elastic { batch } | Class::Rigid { batch, .. } => vec![limits.split(batch, gpus)],
        Class::Adaptive => {
            let low = f64::from(limits.init.max(limits.min_local * gpus));
            let high = f64::from(limits.max).max(low);
            let size =
                |index: u32| low * (high / low).powf(f64::from(index) / f64::from(BATCHES - 1));
            (0..BATCHES)
                .map(|index| limits.split(size(index).round().min(high) as u32, gpus))
                .collect()
        }
    }
}
