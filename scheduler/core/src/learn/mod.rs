//! Model of a family of jobs (the same model on the same data), learned from the reports of its
//! jobs: step times by shape and gains of larger batches. Measurements of one job apply to the next
//! job of its family.
//!
//! [`PlacedSpeeds`], [`SpreadPenalty`] and [`KindRatios`] learn from the [`Observation`]s of live
//! jobs, whose batch is given. [`Family`] also chooses batches; the simulator of published
//! workloads uses it.
//!
//! The model of [`Family`] is that of Pollux (Qiao et al., OSDI 2021): goodput = throughput x
//! statistical efficiency. Sizes without measurement are assumed optimistically, so a job explores.
//! Policies bound the exploration by [`Family::largest_gpus`].

mod batch;
mod efficiency;
mod kind_ratios;
mod observation;
mod placed_speeds;
mod spread_penalty;
mod throughput;

pub use batch::{BatchLimits, BatchSplit, Batching};
pub use efficiency::{NoiseScale, Noises};
pub use kind_ratios::KindRatios;
pub use observation::{Observation, Size, Spread};
pub use placed_speeds::{Place, PlacedSpeeds, TrustedSpeed};
pub use spread_penalty::SpreadPenalty;
pub use throughput::{PlacementShape, StepTime, Throughput};

use crate::problem::KindSpeedCurve;

/// Model of one family.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Batch limits by GPU kind. Kinds differ in memory.
    limits: Vec<BatchLimits>,
    /// Step times by GPU kind.
    throughputs: Vec<Throughput>,
    noises: Noises,
    version: u64,
}

/// Sizes for which curves are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurveBounds {
    /// GPUs of one node.
    pub node_gpus: u32,
    /// GPUs of the kind in total.
    pub gpus: u32,
}

/// Number of stretches of the remaining work, each with its own noise scale.
const STRETCHES: usize = 6;

impl Family {
    /// Returns a family without measurements, with its declared limits by GPU kind.
    #[must_use]
    pub fn new(limits: Vec<BatchLimits>) -> Self {
        Self {
            throughputs: vec![Throughput::default(); limits.len()],
            limits,
            noises: Noises::default(),
            version: 0,
        }
    }

    /// Returns the version of the model. It changes with every observation that is news; older
    /// curves are then out of date.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Records the measured time of a step.
    pub fn observe_step(
        &mut self,
        kind: u16,
        shape: PlacementShape,
        local_batch: u32,
        time: StepTime,
    ) {
        let throughput = &mut self.throughputs[usize::from(kind)];
        if throughput.observe(shape, local_batch, time) {
            self.version += 1;
        }
    }

    /// Records the noise scale at a share (0 to 1) of the work.
    pub fn observe_noise(&mut self, share_done: f64, noise: NoiseScale) {
        if self.noises.observe(share_done, noise) {
            self.version += 1;
        }
    }

    /// Returns the largest measured number of GPUs, of any kind.
    #[must_use]
    pub fn largest_gpus(&self) -> u32 {
        let largest = self.throughputs.iter().map(Throughput::largest_gpus);
        largest.max().unwrap_or(0)
    }

    /// Returns the batch with the best goodput on a shape at this share of the work. Returns the
    /// declared first batch before the first measurement.
    #[must_use]
    pub fn batch(
        &self,
        kind: u16,
        shape: PlacementShape,
        share_done: f64,
        batching: Batching,
    ) -> BatchSplit {
        let limits = self.limits[usize::from(kind)];
        let adaptive = match batching {
            Batching::Fixed { batch } => return limits.split(batch, shape.gpus),
            Batching::Adaptive => self.throughput(kind),
        };
        let noise = self.noises.at(share_done);
        let first = limits.first(shape.gpus);
        let (Some(throughput), Some(noise)) = (adaptive, noise) else {
            return first;
        };

        limits
            .candidates(shape.gpus)
            .map(|batch| (goodput(limits, throughput, shape, batch, noise), batch))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(first, |(_, batch)| batch)
    }

    /// Returns the mean speed over the remaining work by size, in steps of the initial batch size
    /// per second. Empty if no kind was measured.
    #[must_use]
    pub fn curve(
        &self,
        kind: u16,
        sizes: CurveBounds,
        share_done: f64,
        batching: Batching,
    ) -> KindSpeedCurve {
        let Some(throughput) = self.throughput(kind) else {
            return KindSpeedCurve::default();
        };
        let stretches = self.noises.stretches::<STRETCHES>(share_done);
        let limits = self.limits[usize::from(kind)];
        let speed = |gpus: u32, nodes: u32| {
            let shape = PlacementShape { nodes, gpus };
            mean_speed(limits, throughput, shape, &stretches, batching)
        };
        let largest = limits.most_gpus(batching).min(sizes.gpus);
        let node_gpus = sizes.node_gpus.max(1);
        let local = (1..=largest.min(node_gpus)).map(|gpus| speed(gpus, 1));
        let spread = (1..=largest).map(|gpus| {
            let is_asked = gpus >= 2 && (gpus <= 2 * node_gpus || gpus % node_gpus == 0);
            if is_asked {
                speed(gpus, gpus.div_ceil(node_gpus).max(2))
            } else {
                0.0
            }
        });
        KindSpeedCurve {
            local: local.collect(),
            spread: spread.collect(),
        }
    }

    /// Returns the model of a kind, or of another measured kind if this one was not measured.
    fn throughput(&self, kind: u16) -> Option<&Throughput> {
        let own = &self.throughputs[usize::from(kind)];
        if own.largest_gpus() > 0 {
            return Some(own);
        }
        let measured = self
            .throughputs
            .iter()
            .filter(|other| other.largest_gpus() > 0);
        measured.max_by_key(|other| other.points())
    }
}

/// Returns the speed over stretches of work, each with its best batch.
fn mean_speed(
    limits: BatchLimits,
    throughput: &Throughput,
    shape: PlacementShape,
    stretches: &[(f64, NoiseScale)],
    batching: Batching,
) -> f64 {
    let batches: Vec<BatchSplit> = match batching {
        Batching::Fixed { batch } => vec![limits.split(batch, shape.gpus)],
        Batching::Adaptive => limits.candidates(shape.gpus).collect(),
    };
    let timed: Vec<(f64, f64)> = batches
        .into_iter()
        .map(|batch| {
            let scale = f64::from(batch.total(shape.gpus)) / f64::from(limits.init);
            (scale, throughput.iteration_s(shape, batch))
        })
        .collect();
    let (mut work, mut time_s) = (0.0, 0.0);
    for &(share, noise) in stretches {
        let best = timed
            .iter()
            .map(|&(scale, iteration_s)| noise.gain(scale) / iteration_s)
            .fold(0.0, f64::max);
        work += share;
        time_s += share / best;
    }
    if time_s > 0.0 { work / time_s } else { 0.0 }
}

fn goodput(
    limits: BatchLimits,
    throughput: &Throughput,
    shape: PlacementShape,
    batch: BatchSplit,
    noise: NoiseScale,
) -> f64 {
    let scale = f64::from(batch.total(shape.gpus)) / f64::from(limits.init);
    noise.gain(scale) / throughput.iteration_s(shape, batch)
}
