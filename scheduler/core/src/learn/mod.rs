//! Model of a family of jobs (the same model on the same data), learned from the reports of its
//! jobs: step times by shape and gains of larger batches. Measurements of one job apply to the next
//! job of its family.
//!
//! [`PlacedSpeeds`], [`SpreadPenalty`] and [`KindRatios`] learn from the [`Observation`]s of live
//! jobs. Where the coordinator chooses the batch, [`GoodputModel`] converts them first. [`Family`]
//! also chooses batches; the simulator of published workloads uses it.
//!
//! [`node_factors`] compares the nodes of one GPU kind.
//!
//! The model of [`Family`] is that of Pollux (Qiao et al., OSDI 2021): goodput = throughput x
//! statistical efficiency. Sizes without measurement are assumed optimistically, so a job explores.
//! Policies bound the exploration by [`Family::largest_gpus`].

mod batch;
mod curve_cache;
mod efficiency;
mod goodput;
mod kind_ratios;
mod node_speed;
mod observation;
mod placed_speeds;
mod spread_penalty;
mod throughput;

pub use batch::{BatchLimits, BatchSplit, Batching};
pub use curve_cache::CurveCache;
pub use efficiency::{NoiseScale, Noises};
pub use goodput::{GoodputModel, UpdateTimes};
pub use kind_ratios::KindRatios;
pub use node_speed::{NodeFactor, NodeObservation, node_factors};
pub use observation::{CourseNoise, Observation, ObservedBatch, Size, Spread};
pub use placed_speeds::{Place, PlacedSpeeds, TrustedSpeed};
pub use spread_penalty::SpreadPenalty;
pub use throughput::{PlacementShape, StepTime, Throughput};

use crate::problem::KindSpeedCurve;
use curve_cache::CurveInputs;

/// Model of one family.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Batch limits by GPU kind. Kinds differ in memory.
    limits: Vec<BatchLimits>,
    /// Step times by GPU kind.
    throughputs: Vec<Throughput>,
    /// Speeds of one GPU of each kind in a common unit; they scale the model of another kind.
    kind_speeds: Vec<f64>,
    noises: Noises,
    version: u64,
}

/// Sizes for which curves are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CurveBounds {
    /// GPUs of one node.
    pub node_gpus: u32,
    /// GPUs of the kind in total.
    pub gpus: u32,
}

/// Number of stretches of the remaining work, each with its own noise scale.
pub const STRETCHES: usize = 6;

impl Family {
    /// Returns a family without measurements, with its declared limits by GPU kind.
    #[must_use]
    pub fn new(limits: Vec<BatchLimits>) -> Self {
        Self {
            throughputs: vec![Throughput::default(); limits.len()],
            kind_speeds: vec![1.0; limits.len()],
            limits,
            noises: Noises::default(),
            version: 0,
        }
    }

    /// Sets the known speeds of one GPU of each kind, in a common unit. A kind without
    /// measurements then takes the model of another kind times the ratio of their speeds (Sia,
    /// SOSP 2023). Without this, all kinds count as equally fast until they are measured.
    #[must_use]
    pub fn with_kind_speeds(mut self, kind_speeds: Vec<f64>) -> Self {
        assert_eq!(kind_speeds.len(), self.limits.len(), "a speed per kind");
        self.kind_speeds = kind_speeds;
        self
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
    /// first batch of `limits` before the first measurement. `limits` apply to the placement.
    #[must_use]
    pub fn batch(
        &self,
        kind: u16,
        shape: PlacementShape,
        limits: BatchLimits,
        share_done: f64,
    ) -> BatchSplit {
        let noise = self.noises.at(share_done);
        let first = limits.first(shape.gpus);
        let (Some((throughput, ..)), Some(noise)) = (self.throughput(kind), noise) else {
            return first;
        };

        let steps = throughput.on(shape);
        let goodput = |batch: BatchSplit| {
            let scale = f64::from(batch.total(shape.gpus)) / f64::from(limits.init);
            noise.gain(scale) / steps.iteration_s(batch)
        };
        limits
            .candidates(shape.gpus)
            .map(|batch| (goodput(batch), batch))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(first, |(_, batch)| batch)
    }

    /// Returns the mean speed over the remaining work by size, in steps of the initial batch size
    /// per second. Empty if no kind was measured. `cache` is this family's and saves work; it does
    /// not change the curve.
    #[must_use]
    pub fn curve(
        &self,
        cache: &mut CurveCache,
        kind: u16,
        sizes: CurveBounds,
        share_done: f64,
        batching: Batching,
    ) -> KindSpeedCurve {
        let Some((throughput, measured_kind, factor)) = self.throughput(kind) else {
            return KindSpeedCurve::default();
        };
        let inputs = CurveInputs {
            limits: self.limits[usize::from(kind)],
            throughput,
            measured_kind,
            factor,
            stretches: &self.noises.stretches(share_done),
        };
        cache.curve(kind, sizes, batching, inputs)
    }

    /// Returns the model of a kind, or of another measured kind if this one was not measured, with
    /// the kind of the model. The last value is the factor on its speeds.
    fn throughput(&self, kind: u16) -> Option<(&Throughput, usize, f64)> {
        let kind = usize::from(kind);
        let own = &self.throughputs[kind];
        if own.largest_gpus() > 0 {
            return Some((own, kind, 1.0));
        }
        let measured = self.throughputs.iter().enumerate();
        let measured = measured.filter(|(_, other)| other.largest_gpus() > 0);
        let (index, other) = measured.max_by_key(|(_, other)| other.points())?;
        let factor = self.kind_speeds[kind] / self.kind_speeds[index];
        Some((other, index, factor))
    }
}

#[cfg(test)]
mod tests {
    use super::{BatchLimits, Batching, CurveBounds, CurveCache, Family, PlacementShape, StepTime};

    const LIMITS: BatchLimits = BatchLimits {
        init: 8,
        max: 64,
        min_local: 8,
        max_local: 16,
    };

    /// Speed of one GPU of each kind; only the first kind was measured.
    fn speeds(mut family: Family) -> [f64; 2] {
        let shape = PlacementShape { nodes: 1, gpus: 1 };
        let time = StepTime {
            step_s: 0.5,
            sync_s: 0.0,
        };
        family.observe_step(0, shape, 8, time);
        let sizes = CurveBounds {
            node_gpus: 1,
            gpus: 1,
        };
        let batching = Batching::Fixed { batch: 8 };
        let mut cache = CurveCache::default();
        [0, 1].map(|kind| family.curve(&mut cache, kind, sizes, 0.0, batching).local[0])
    }

    #[test]
    fn unmeasured_kind_takes_speed_by_known_ratio() {
        let family = Family::new(vec![LIMITS; 2]);
        assert_eq!(speeds(family.clone()), [2.0, 2.0]);
        assert_eq!(
            speeds(family.with_kind_speeds(vec![10.0, 30.0])),
            [2.0, 6.0]
        );
    }
}
