//! Cache of a family's speed curves between decisions.
//!
//! The batches of every size never change, their step times change with the measured steps, and
//! their gains with the noise scale. Each of the three is computed only if its inputs are new. The
//! curves are equal, bit for bit, to those of an empty cache.

use super::batch::{BatchLimits, Batching};
use super::efficiency::NoiseScale;
use super::throughput::{PlacementShape, Throughput};
use super::{CurveBounds, STRETCHES};
use crate::problem::KindSpeedCurve;
use std::collections::BTreeMap;
use std::ops::Range;

/// Maximum number of noise scales whose speeds are kept per table. A course has 100.
const MOST_NOISES: usize = 512;

/// Speeds of one family at all sizes. A cache serves one family only.
#[derive(Debug, Clone, Default)]
pub struct CurveCache {
    tables: BTreeMap<(u16, CurveBounds, Batching), CurveTable>,
}

/// Inputs of a curve that follow from the family's measurements.
#[derive(Debug, Clone, Copy)]
pub(super) struct CurveInputs<'a> {
    pub limits: BatchLimits,
    pub throughput: &'a Throughput,
    /// GPU kind of `throughput`.
    pub measured_kind: usize,
    /// Factor on all speeds.
    pub factor: f64,
    pub stretches: &'a [(f64, NoiseScale); STRETCHES],
}

/// Speeds on one GPU kind.
#[derive(Debug, Clone)]
struct CurveTable {
    local: Vec<TimedShape>,
    /// `None` for sizes that no policy asks for.
    spread: Vec<Option<TimedShape>>,
    batches: Vec<TimedBatch>,
    /// GPU kind and version of the steps from which the times were computed.
    timed: Option<(usize, u64)>,
    /// Speed of the best batch on every shape, by the bits of the noise scale.
    best: BTreeMap<u64, Vec<f64>>,
}

/// Shape with its index among all shapes and its batches.
#[derive(Debug, Clone)]
struct TimedShape {
    index: usize,
    shape: PlacementShape,
    batches: Range<usize>,
}

#[derive(Debug, Clone, Copy)]
struct TimedBatch {
    split: super::BatchSplit,
    /// Batch size over the initial one.
    scale: f64,
    iteration_s: f64,
}

impl CurveCache {
    pub(super) fn curve(
        &mut self,
        kind: u16,
        sizes: CurveBounds,
        batching: Batching,
        inputs: CurveInputs<'_>,
    ) -> KindSpeedCurve {
        let table = self.tables.entry((kind, sizes, batching));
        let table = table.or_insert_with(|| CurveTable::new(inputs.limits, sizes, batching));
        table.time(inputs.measured_kind, inputs.throughput);
        table.curve(inputs.factor, inputs.stretches)
    }
}

impl CurveTable {
    fn new(limits: BatchLimits, sizes: CurveBounds, batching: Batching) -> Self {
        let mut batches = Vec::new();
        let mut shapes = 0..;
        let mut timed = |gpus: u32, nodes: u32| {
            let start = batches.len();
            add_batches(limits, gpus, batching, &mut batches);
            TimedShape {
                index: shapes.next().expect("there are few sizes"),
                shape: PlacementShape { nodes, gpus },
                batches: start..batches.len(),
            }
        };
        let largest = limits.most_gpus(batching).min(sizes.gpus);
        let node_gpus = sizes.node_gpus.max(1);
        let local = (1..=largest.min(node_gpus)).map(|gpus| timed(gpus, 1));
        let local = local.collect();
        let spread = (1..=largest).map(|gpus| {
            let is_asked = gpus >= 2 && (gpus <= 2 * node_gpus || gpus % node_gpus == 0);
            is_asked.then(|| timed(gpus, gpus.div_ceil(node_gpus).max(2)))
        });
        let spread = spread.collect();
        Self {
            local,
            spread,
            batches,
            timed: None,
            best: BTreeMap::new(),
        }
    }

    fn shapes(&self) -> impl Iterator<Item = &TimedShape> {
        self.local.iter().chain(self.spread.iter().flatten())
    }

    /// Computes the step times, if the measured steps are new.
    fn time(&mut self, measured_kind: usize, throughput: &Throughput) {
        let version = (measured_kind, throughput.version());
        if self.timed == Some(version) {
            return;
        }
        self.timed = Some(version);
        self.best.clear();
        let Self {
            local,
            spread,
            batches,
            ..
        } = self;
        for of in local.iter().chain(spread.iter().flatten()) {
            let steps = throughput.on(of.shape);
            for batch in &mut batches[of.batches.clone()] {
                batch.iteration_s = steps.iteration_s(batch.split);
            }
        }
    }

    fn curve(&mut self, factor: f64, stretches: &[(f64, NoiseScale); STRETCHES]) -> KindSpeedCurve {
        if self.best.len() > MOST_NOISES {
            self.best.clear();
        }
        for (_, noise) in stretches {
            if !self.best.contains_key(&noise.0.to_bits()) {
                let best = self.shapes().map(|of| self.best_speed(of, *noise));
                let best = best.collect();
                self.best.insert(noise.0.to_bits(), best);
            }
        }
        let stretches = stretches.map(|(share, noise)| (share, &self.best[&noise.0.to_bits()]));
        let speed = |of: &TimedShape| factor * mean_speed(of.index, &stretches);
        let spread = self.spread.iter();
        KindSpeedCurve {
            local: self.local.iter().map(speed).collect(),
            spread: spread.map(|of| of.as_ref().map_or(0.0, speed)).collect(),
        }
    }

    /// Returns the speed with the best batch.
    fn best_speed(&self, of: &TimedShape, noise: NoiseScale) -> f64 {
        let batches = self.batches[of.batches.clone()].iter();
        batches
            .map(|batch| noise.gain(batch.scale) / batch.iteration_s)
            .fold(0.0, f64::max)
    }
}

/// Returns the speed on a shape over stretches of work, each with its best batch.
fn mean_speed(shape: usize, stretches: &[(f64, &Vec<f64>); STRETCHES]) -> f64 {
    let (mut work, mut time_s) = (0.0, 0.0);
    for (share, best) in stretches {
        work += share;
        time_s += share / best[shape];
    }
    if time_s > 0.0 { work / time_s } else { 0.0 }
}

/// Adds the different batches on `gpus` GPUs.
fn add_batches(limits: BatchLimits, gpus: u32, batching: Batching, batches: &mut Vec<TimedBatch>) {
    let mut splits: Vec<super::BatchSplit> = match batching {
        Batching::Fixed { batch } => vec![limits.split(batch, gpus)],
        Batching::Adaptive => limits.candidates(gpus).collect(),
    };
    splits.dedup();
    batches.extend(splits.into_iter().map(|split| TimedBatch {
        split,
        scale: f64::from(split.total(gpus)) / f64::from(limits.init),
        iteration_s: f64::NAN,
    }));
}

#[cfg(test)]
mod tests {
    use super::super::{Family, StepTime};
    use super::{BatchLimits, Batching, CurveBounds, CurveCache, NoiseScale, PlacementShape};
    use proptest::prelude::*;

    const LIMITS: [BatchLimits; 2] = [
        BatchLimits {
            init: 128,
            max: 4_096,
            min_local: 32,
            max_local: 512,
        },
        BatchLimits {
            init: 128,
            max: 4_096,
            min_local: 32,
            max_local: 256,
        },
    ];

    const SIZES: CurveBounds = CurveBounds {
        node_gpus: 4,
        gpus: 24,
    };

    const BATCHINGS: [Batching; 2] = [Batching::Adaptive, Batching::Fixed { batch: 512 }];

    proptest! {
        /// Each report has a kind, GPUs, a batch, a step and its exchange in milliseconds, a share
        /// of the work in per cent, and a noise scale.
        #[test]
        fn kept_cache_gives_curves_of_empty_cache(
            reports in prop::collection::vec(
                (
                    (0..2_u16, 1..=12_u32, 1..=4_u32),
                    (100..900_u32, 0..99_u32),
                    (0..100_u32, 0..400_u32),
                ),
                1..24,
            )
        ) {
            let mut family = Family::new(LIMITS.to_vec()).with_kind_speeds(vec![1.0, 3.0]);
            let mut kept = CurveCache::default();
            for ((kind, gpus, batch), (step_ms, sync_ms), (done, noise)) in reports {
                let shape = PlacementShape { nodes: gpus.div_ceil(4), gpus };
                let time = StepTime {
                    step_s: f64::from(step_ms) / 1e3,
                    sync_s: f64::from(sync_ms) / 1e3,
                };
                let share_done = f64::from(done) / 100.0;
                family.observe_step(kind, shape, 64 * batch, time);
                family.observe_noise(share_done, NoiseScale(f64::from(noise) / 10.0));
                for (kind, batching) in [0, 1].into_iter().zip(BATCHINGS) {
                    let of = |cache: &mut CurveCache| {
                        family.curve(cache, kind, SIZES, share_done, batching)
                    };
                    let curve = of(&mut kept);
                    prop_assert_eq!(&curve, &of(&mut CurveCache::default()));
                    prop_assert!(curve.local[0] > 0.0);
                }
            }
        }
    }
}
