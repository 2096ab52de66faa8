//! Goodput of a job whose coordinator chooses its batch (Pollux, OSDI 2021, section 3.1), from the
//! updates that were measured with the batches chosen so far.
//!
//! Speeds with different batches are not comparable, and the best batch changes with the gradient
//! noise. Every measured placement is therefore converted to steps per second with the batch that
//! is best now.

mod best_batch;

use super::batch::BatchSplit;
use super::throughput::{PlacementShape, StepTime, Throughput};
use super::{NoiseScale, Observation, STRETCHES, Size, Spread};
use crate::problem::KindSpeedCurve;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Number of geometrically spaced batches that are compared.
const CANDIDATES: usize = 24;

/// Batch that a coordinator chooses, and the efficiency of an update over the remaining work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoodputModel {
    /// First and smallest batch in examples. A step is an update with it.
    pub init: u32,
    /// Largest batch in examples.
    pub max: u32,
    /// Noise scales in equal stretches of the remaining work, in batches of `init` examples. At 0 a
    /// larger batch has no gain.
    pub noises: [NoiseScale; STRETCHES],
}

/// Times of updates with chosen batches, and the goodput that follows from them.
#[derive(Debug, Default)]
pub struct UpdateTimes {
    by_kind: BTreeMap<String, Throughput>,
    /// Computed tables and curves. Jobs of a family share most of them.
    tables: Mutex<BTreeMap<TableKey, TimedBatches>>,
}

/// GPU kind, first and largest batch, and number of workers.
type TableKey = (String, u32, u32, u32);

/// Seconds of an update by placement and batch.
#[derive(Debug)]
struct TimedBatches {
    /// Batches over the first one.
    scales: [f64; CANDIDATES],
    /// By number of workers, on one node and on several.
    local: Vec<[f64; CANDIDATES]>,
    spread: Vec<[f64; CANDIDATES]>,
    /// Goodput by the bits of the noise scale.
    curves: BTreeMap<u64, Arc<KindSpeedCurve>>,
}

impl TimedBatches {
    fn of(throughput: &Throughput, (init, max, most): (u32, u32, u32)) -> Self {
        let scales = scales(init, max);
        let times = |shape: PlacementShape| update_s(throughput, shape, (init, scales));
        let local = (1..=most).map(|gpus| times(PlacementShape { nodes: 1, gpus }));
        let spread = (1..=most).map(|gpus| times(throughput.spread_shape(gpus)));
        Self {
            scales,
            local: local.collect(),
            spread: spread.collect(),
            curves: BTreeMap::new(),
        }
    }

    /// Steps per second with the best batch.
    fn curve(&mut self, noise: NoiseScale) -> Arc<KindSpeedCurve> {
        let gains = self.scales.map(|scale| noise.gain(scale));
        let (local, spread) = (&self.local, &self.spread);
        let curve = self.curves.entry(noise.0.to_bits()).or_insert_with(|| {
            let best = |times: &[f64; CANDIDATES]| {
                let goodputs = gains.iter().zip(times).map(|(gain, time)| gain / time);
                goodputs.fold(0.0, f64::max)
            };
            Arc::new(KindSpeedCurve {
                local: local.iter().map(best).collect(),
                spread: spread.iter().map(best).collect(),
            })
        });
        Arc::clone(curve)
    }
}

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
            tables: Mutex::default(),
        })
    }

    /// Returns the goodput on a kind by number of workers, up to `most`: on one node of any size,
    /// and on several. It is the mean over the remaining work, with the best batch in each stretch.
    /// `None` if the kind was not measured.
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
        let sizes = (model.init, model.max, most);
        let key = (kind.to_owned(), model.init, model.max, most);
        let curves = {
            let mut tables = self.tables.lock().expect("not poisoned");
            let table = tables.entry(key);
            let table = table.or_insert_with(|| TimedBatches::of(throughput, sizes));
            model.noises.map(|noise| table.curve(noise))
        };
        if model.noises.iter().all(|noise| *noise == model.noises[0]) {
            let [first, ..] = curves;
            return Some(first);
        }
        let mean = |of: fn(&KindSpeedCurve) -> &Vec<f64>| {
            let of_workers = (0..most as usize).map(|at| {
                let step_s: f64 = curves.iter().map(|curve| 1.0 / of(curve)[at]).sum();
                STRETCHES as f64 / step_s
            });
            of_workers.collect()
        };
        Some(Arc::new(KindSpeedCurve {
            local: mean(|curve| &curve.local),
            spread: mean(|curve| &curve.spread),
        }))
    }
}

impl GoodputModel {
    /// Converts the measurements of a job or of its family: one observation by kind, size and
    /// nodes, in steps per second of the kind's curve. Observations without a batch are in steps
    /// already, with the batches of their time. They stay where no batch was measured.
    #[must_use]
    pub fn converted(&self, times: &UpdateTimes, observations: &[Observation]) -> Vec<Observation> {
        let largest = observations.iter().map(|seen| seen.workers).max();
        let curves: BTreeMap<&str, Arc<KindSpeedCurve>> = times
            .by_kind
            .keys()
            .filter_map(|kind| Some((&**kind, times.curve(self, kind, largest?)?)))
            .collect();
        let timed = observations.iter().filter(|seen| seen.batch.is_some());
        let timed: BTreeSet<(&str, Size, u32)> = timed
            .map(|seen| (&*seen.gpu_kind, seen.size(), seen.nodes))
            .collect();
        let mut converted: Vec<Observation> = Vec::with_capacity(observations.len());
        let mut places: BTreeMap<(&str, Size, u32), usize> = BTreeMap::new();
        for seen in observations {
            let curve = curves.get(&*seen.gpu_kind);
            let place = (&*seen.gpu_kind, seen.size(), seen.nodes);
            let Some(curve) = curve.filter(|_| seen.batch.is_some()) else {
                if !timed.contains(&place) {
                    converted.push(seen.clone());
                }
                continue;
            };
            let speeds = match seen.spread() {
                Spread::OneNode => &curve.local,
                Spread::Nodes => &curve.spread,
            };
            match places.entry(place) {
                Entry::Occupied(at) => converted[*at.get()].samples += seen.samples,
                Entry::Vacant(at) => {
                    at.insert(converted.len());
                    converted.push(Observation {
                        steps_per_s: speeds[seen.workers as usize - 1],
                        batch: None,
                        ..seen.clone()
                    });
                }
            }
        }
        converted
    }
}

/// Returns the compared batches over the first one.
fn scales(init: u32, max: u32) -> [f64; CANDIDATES] {
    let ratio = f64::from(max.max(init).max(1)) / f64::from(init.max(1));
    std::array::from_fn(|number| ratio.powf(number as f64 / (CANDIDATES - 1) as f64))
}

/// Returns the seconds of an update with each of the batches.
fn update_s(
    throughput: &Throughput,
    shape: PlacementShape,
    (init, scales): (u32, [f64; CANDIDATES]),
) -> [f64; CANDIDATES] {
    let times = throughput.on(shape);
    scales.map(|scale| {
        let split = BatchSplit {
            local: part(examples(init, scale), shape.gpus),
            accumulated: 0,
        };
        times.iteration_s(split)
    })
}

fn examples(init: u32, scale: f64) -> u32 {
    // A batch is a u32.
    (f64::from(init.max(1)) * scale).round() as u32
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
mod tests;
