//! Goodput of a job whose coordinator chooses its batch (Pollux, OSDI 2021, section 3.1), from the
//! updates that were measured with the batches chosen so far.
//!
//! Speeds with different batches are not comparable, and the best batch changes with the gradient
//! noise. Every measured placement is therefore converted to steps per second with the batch that
//! is best now.

use super::batch::BatchSplit;
use super::throughput::{PlacementShape, StepTime, Throughput};
use super::{NoiseScale, Observation, Size};
use crate::problem::KindSpeedCurve;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex};

/// Number of geometrically spaced batches that are compared.
const CANDIDATES: u32 = 24;

/// Batch that a coordinator chooses, and the efficiency of an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoodputModel {
    /// First and smallest batch in examples. A step is an update with it.
    pub init: u32,
    /// Largest batch in examples.
    pub max: u32,
    /// Noise scale in batches of `init` examples. At 0 a larger batch has no gain.
    pub noise: NoiseScale,
}

/// Times of updates with chosen batches, and the goodput that follows from them.
#[derive(Debug, Default)]
pub struct UpdateTimes {
    by_kind: BTreeMap<String, Throughput>,
    /// Computed curves. Jobs of a family share most of them.
    curves: Mutex<BTreeMap<CurveKey, Arc<KindSpeedCurve>>>,
}

/// GPU kind, first and largest batch, bits of the noise scale, and number of workers.
type CurveKey = (String, u32, u32, u64, u32);

impl UpdateTimes {
    /// Collects the observations with a batch. `None` if there is none.
    #[must_use]
    pub fn of<'a>(observations: impl Iterator<Item = &'a Observation>) -> Option<Self> {
        let mut steps: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for seen in observations.filter(|seen| seen.is_usable()) {
            let Some(batch) = seen.batch else { continue };
            let time = StepTime {
                step_s: 1.0 / seen.steps_per_s,
                sync_s: batch.exchange_s,
            };
            let part = part(batch.examples, seen.workers);
            let of_kind = steps.entry(&seen.gpu_kind).or_default();
            of_kind.push((shape(seen), part, time));
        }
        let by_kind: BTreeMap<String, Throughput> = steps
            .into_iter()
            .map(|(kind, steps)| (kind.to_owned(), Throughput::of(steps.into_iter())))
            .collect();
        (!by_kind.is_empty()).then(|| Self {
            by_kind,
            curves: Mutex::default(),
        })
    }

    /// Returns the goodput on a kind by number of workers, up to `most`: on one node of any size,
    /// and on several. `None` if the kind was not measured.
    ///
    /// # Panics
    /// Never: no thread panics while it holds the lock.
    #[must_use]
    pub fn curve(
        &self,
        model: &GoodputModel,
        kind: &str,
        most: u32,
    ) -> Option<Arc<KindSpeedCurve>> {
        let throughput = self.by_kind.get(kind)?;
        let key = (
            kind.to_owned(),
            model.init,
            model.max,
            model.noise.0.to_bits(),
            most,
        );
        let mut curves = self.curves.lock().expect("not poisoned");
        let curve = curves.entry(key).or_insert_with(|| {
            let local = (1..=most).map(|gpus| PlacementShape { nodes: 1, gpus });
            let spread = (1..=most).map(|gpus| throughput.spread_shape(gpus));
            Arc::new(KindSpeedCurve {
                local: local.map(|at| model.goodput(throughput, at)).collect(),
                spread: spread.map(|at| model.goodput(throughput, at)).collect(),
            })
        });
        Some(Arc::clone(curve))
    }
}

impl GoodputModel {
    /// Converts the measurements of a job and of its family: one observation by kind, size and
    /// nodes, in steps per second with the best batch. Observations without a batch are in steps
    /// already and stay.
    #[must_use]
    pub fn converted(
        &self,
        times: &UpdateTimes,
        observations: &[Observation],
    ) -> Vec<Observation> {
        let mut best: Vec<Observation> = Vec::with_capacity(observations.len());
        let mut places: BTreeMap<(&str, Size, u32), usize> = BTreeMap::new();
        for seen in observations {
            let throughput = times.by_kind.get(&seen.gpu_kind);
            let Some(throughput) = throughput.filter(|_| seen.batch.is_some()) else {
                best.push(seen.clone());
                continue;
            };
            match places.entry((&seen.gpu_kind, seen.size(), seen.nodes)) {
                Entry::Occupied(at) => best[*at.get()].samples += seen.samples,
                Entry::Vacant(at) => {
                    at.insert(best.len());
                    best.push(Observation {
                        steps_per_s: self.goodput(throughput, shape(seen)),
                        batch: None,
                        ..seen.clone()
                    });
                }
            }
        }
        best
    }

    /// Steps per second with the best batch.
    fn goodput(&self, throughput: &Throughput, shape: PlacementShape) -> f64 {
        let times = throughput.on(shape);
        let goodputs = self.candidates(shape.gpus).map(|examples| {
            let split = BatchSplit {
                local: part(examples, shape.gpus),
                accumulated: 0,
            };
            let scale = f64::from(examples) / f64::from(self.init.max(1));
            self.noise.gain(scale) / times.iteration_s(split)
        });
        goodputs.fold(0.0, f64::max)
    }

    /// Batches from the first to the largest, in examples.
    fn candidates(&self, workers: u32) -> impl Iterator<Item = u32> {
        let low = self.init.max(workers).max(1);
        let high = self.max.max(low);
        let ratio = f64::from(high) / f64::from(low);
        (0..CANDIDATES).map(move |number| {
            let share = f64::from(number) / f64::from(CANDIDATES - 1);
            // At most `high`, which is a u32.
            (f64::from(low) * ratio.powf(share)).round() as u32
        })
    }
}

fn shape(seen: &Observation) -> PlacementShape {
    PlacementShape {
        nodes: seen.nodes,
        gpus: seen.workers,
    }
}

/// Examples of the worker with the largest part of a batch.
fn part(examples: u32, workers: u32) -> u32 {
    examples.div_ceil(workers.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::ObservedBatch;

    const MODEL: GoodputModel = GoodputModel {
        init: 100,
        max: 1_600,
        noise: NoiseScale(10.0),
    };

    /// An update of `workers` workers: 10 ms, 1 ms for each example of a part, and 20 ms for the
    /// exchange.
    fn seen(workers: u32, examples: u32) -> Observation {
        let exchange_s = if workers > 1 { 0.02 } else { 0.0 };
        let update_s = 0.01 + 0.001 * f64::from(examples / workers) + exchange_s;
        Observation {
            gpu_kind: "A".to_owned(),
            workers,
            ps_shards: 0,
            nodes: 1,
            steps_per_s: 1.0 / update_s,
            samples: 5.0,
            batch: Some(ObservedBatch {
                examples,
                exchange_s,
            }),
        }
    }

    fn times(observations: &[Observation]) -> UpdateTimes {
        UpdateTimes::of(observations.iter()).expect("there are batches")
    }

    #[test]
    fn measured_batches_of_a_size_become_its_best_goodput() {
        let own = [seen(4, 100), seen(4, 200)];
        let converted = MODEL.converted(&times(&own), &own);
        let [only] = &converted[..] else {
            panic!("one size: {converted:?}")
        };
        assert_eq!((only.samples, only.batch), (10.0, None));
        let best = (1..=16).map(|times| {
            let batch = f64::from(times * 100);
            MODEL.noise.gain(batch / 100.0) / (0.03 + batch / 4_000.0)
        });
        let best = best.fold(0.0, f64::max);
        assert!(
            (only.steps_per_s / best - 1.0).abs() < 0.02,
            "{only:?}, {best}"
        );
        assert!(only.steps_per_s > 1.3 * own[0].steps_per_s, "{only:?}");
    }

    #[test]
    fn without_noise_a_step_is_an_update_of_the_first_batch() {
        let model = GoodputModel {
            noise: NoiseScale(0.0),
            ..MODEL
        };
        let own = [seen(4, 100), seen(4, 400)];
        let converted = model.converted(&times(&own), &own);
        assert!((converted[0].steps_per_s - own[0].steps_per_s).abs() < 1e-9);
    }

    /// Sizes without a measurement follow from the measured computation and exchange.
    #[test]
    fn curve_tells_the_goodput_of_further_sizes() {
        let measured = [seen(1, 100), seen(1, 400), seen(2, 400), seen(4, 800)];
        let curve = times(&measured).curve(&MODEL, "A", 8).expect("measured");
        let truth = |workers: f64| {
            let exchange_s = if workers > 1.0 { 0.02 } else { 0.0 };
            let goodputs = (100..=1_600).map(|examples| {
                let batch = f64::from(examples);
                MODEL.noise.gain(batch / 100.0) / (0.01 + exchange_s + 0.001 * batch / workers)
            });
            goodputs.fold(0.0, f64::max)
        };
        for (workers, speed) in (1..).zip(&curve.local) {
            let truth = truth(f64::from(workers));
            assert!((speed / truth - 1.0).abs() < 0.03, "{workers}: {speed}, {truth}");
        }
        assert_eq!((curve.local.len(), curve.spread.len()), (8, 8));
        assert_eq!(times(&measured).curve(&MODEL, "B", 8), None);
    }

    #[test]
    fn steps_stay_as_they_are() {
        let steps = Observation {
            batch: None,
            ..seen(2, 100)
        };
        let mixed = [seen(2, 100), steps.clone()];
        let converted = MODEL.converted(&times(&mixed), &mixed);
        assert_eq!((converted.len(), &converted[1]), (2, &steps));
        assert!(UpdateTimes::of([steps].iter()).is_none());
    }
}
