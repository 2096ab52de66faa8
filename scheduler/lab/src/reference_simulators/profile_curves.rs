//! Speed curves from the profiles themselves, for policies that see them.

use super::application::Application;
use super::rules::SimulatorRules;
use super::training::{ReferenceTraining, iteration_s, packed};
use muster_core::learn::{BatchLimits, BatchSplit, Batching, CurveBounds};
use muster_core::problem::KindSpeedCurve;
use std::ops::RangeInclusive;

/// Maximum number of stretches of the remaining epochs, each with its own best batch.
const STRETCHES: u32 = 12;

/// Application on one GPU kind, as the profiles and the rules know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProfiledKind<'a> {
    pub application: &'a Application,
    pub rules: SimulatorRules,
    pub kind: u16,
}

/// Steps per second of all sizes with a fixed batch.
pub(super) fn fixed_batch_curve(
    profiled: ProfiledKind<'_>,
    batch: u32,
    sizes: CurveBounds,
) -> KindSpeedCurve {
    curve(sizes, 1..=sizes.gpus, |placement| {
        profiled.fixed_batch_speed(batch, placement)
    })
}

/// Mean goodput of all sizes from `epoch` to the end with the best batch of every stretch, in steps
/// of the initial batch per second.
pub(super) fn adaptive_curve(
    profiled: ProfiledKind<'_>,
    epoch: u32,
    sizes: CurveBounds,
) -> KindSpeedCurve {
    let application = profiled.application;
    let stretches = stretches(application, epoch);
    let limits = profiled.rules.limits(application, profiled.kind);
    let largest_gpus = limits.most_gpus(Batching::Adaptive).min(sizes.gpus);
    curve(sizes, 1..=largest_gpus, |placement| {
        // The policies that choose the batch take only whole nodes beyond two of them.
        if placement.len() > 2 && placement.first() != placement.last() {
            return 0.0;
        }
        let timed = profiled.timed_batches(placement);
        let (mut work, mut time_s) = (0.0, 0.0);
        for &(middle, of_stretch) in &stretches {
            let goodputs = timed.iter().map(|batch| batch.goodput(application, middle));
            work += of_stretch;
            time_s += of_stretch / goodputs.fold(0.0, f64::max);
        }
        if time_s > 0.0 { work / time_s } else { 0.0 }
    })
}

/// Batch with the best goodput of a training on the GPUs that it holds.
pub(super) fn best_batch(training: &ReferenceTraining<'_>) -> BatchSplit {
    let application = training.application;
    let epoch = training.epoch.min(application.epochs - 1);
    let profiled = ProfiledKind {
        application,
        rules: training.rules,
        kind: training.kind,
    };
    profiled
        .timed_batches(&training.placement())
        .into_iter()
        .map(|batch| (batch.goodput(application, epoch), batch.split))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(
            || training.limits().first(training.gpus()),
            |(_, split)| split,
        )
}

/// Possible batch on a placement.
struct TimedBatch {
    split: BatchSplit,
    total: f64,
    iteration_s: f64,
}

impl TimedBatch {
    /// Work per second in an epoch.
    fn goodput(&self, application: &Application, epoch: u32) -> f64 {
        let noise = application.noise(self.total, epoch);
        noise.gain(self.total / f64::from(application.init_batch)) / self.iteration_s
    }
}

impl ProfiledKind<'_> {
    fn limits_on(self, placement: &[u32]) -> BatchLimits {
        self.rules.limits_on(self.application, self.kind, placement)
    }

    fn iteration_s(self, placement: &[u32], split: BatchSplit) -> f64 {
        let measured = &self.application.measured[usize::from(self.kind)];
        iteration_s(measured, placement, split)
    }

    fn timed_batches(self, placement: &[u32]) -> Vec<TimedBatch> {
        let gpus = placement.iter().sum();
        let splits = self.limits_on(placement).candidates(gpus);
        splits
            .map(|split| TimedBatch {
                split,
                total: f64::from(split.total(gpus)),
                iteration_s: self.iteration_s(placement, split),
            })
            .collect()
    }

    /// Steps per second. One GPU always accumulates, as the artefact's Optimus predicts.
    fn fixed_batch_speed(self, batch: u32, placement: &[u32]) -> f64 {
        let gpus: u32 = placement.iter().sum();
        let limits = self.limits_on(placement);
        let split = if gpus == 1 {
            limits.split_accumulating(batch)
        } else {
            limits.split(batch, gpus)
        };
        1.0 / self.iteration_s(placement, split)
    }
}

/// Divides the epochs from `epoch` to the end. Returns the middle epoch and the work of each
/// stretch.
fn stretches(application: &Application, epoch: u32) -> Vec<(u32, f64)> {
    let first = epoch.min(application.epochs.saturating_sub(1));
    let count = application.epochs - first;
    let parts = count.clamp(1, STRETCHES);
    (0..parts)
        .map(|part| {
            let from = first + count * part / parts;
            let to = first + count * (part + 1) / parts;
            let work = application.progress_until(to) - application.progress_until(from);
            (from + (to - from) / 2, work)
        })
        .collect()
}

/// Speeds of all sizes on the fewest nodes.
fn curve(
    sizes: CurveBounds,
    gpus: RangeInclusive<u32>,
    speed: impl Fn(&[u32]) -> f64,
) -> KindSpeedCurve {
    let node_gpus = sizes.node_gpus.max(1);
    let local = gpus.clone().take_while(|&gpus| gpus <= node_gpus);
    let spread = gpus.map(|gpus| match gpus {
        0 | 1 => 0.0,
        _ if gpus <= node_gpus => speed(&[gpus / 2, gpus - gpus / 2]),
        _ => speed(&packed(gpus, node_gpus)),
    });
    KindSpeedCurve {
        local: local.map(|gpus| speed(&[gpus])).collect(),
        spread: spread.collect(),
    }
}
