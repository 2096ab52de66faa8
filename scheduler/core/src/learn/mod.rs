//! What is learned of a family of jobs (the same model on the same data) from what its jobs report: how long a step takes on which
//! shape, and how much a larger batch is worth. What one job measured, the next of its family knows.
//!
//! The model is Pollux' (Qiao et al., OSDI 2021): goodput = throughput x statistical efficiency. What was never measured is assumed
//! optimistically, so that a job explores, but never beyond twice the largest measured size.

mod batch;
mod efficiency;
mod throughput;

pub use batch::{Batch, BatchLimits, Batching};
pub use efficiency::{NoiseScale, Noises};
pub use throughput::{Shape, StepTime, Throughput};

use crate::problem::Curve;

/// Everything learned of one family.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// By GPU kind: what fits into its memory differs.
    limits: Vec<BatchLimits>,
    /// By GPU kind.
    throughputs: Vec<Throughput>,
    noises: Noises,
    version: u64,
}

/// Sizes for which curves are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// GPUs of one node.
    pub node_gpus: u32,
    /// GPUs of the kind in all.
    pub gpus: u32,
}

/// Stretches of the work left that are looked at with a noise of their own.
const STRETCHES: usize = 6;

impl Family {
    /// A family of which nothing is known but its declared limits on every GPU kind.
    #[must_use]
    pub fn new(limits: Vec<BatchLimits>) -> Self {
        Self {
            throughputs: vec![Throughput::default(); limits.len()],
            limits,
            noises: Noises::default(),
            version: 0,
        }
    }

    /// Changes whenever something new is learned: curves of an older version are out of date.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes the measured time of a step.
    pub fn observe_step(&mut self, kind: u16, shape: Shape, local_batch: u32, time: StepTime) {
        let throughput = &mut self.throughputs[usize::from(kind)];
        if throughput.observe(shape, local_batch, time) {
            self.version += 1;
        }
    }

    /// Takes the noise scale at a share (0 to 1) of the work.
    pub fn observe_noise(&mut self, share_done: f64, noise: NoiseScale) {
        if self.noises.observe(share_done, noise) {
            self.version += 1;
        }
    }

    /// The largest number of GPUs, of any kind, that was measured.
    #[must_use]
    pub fn largest_gpus(&self) -> u32 {
        let largest = self.throughputs.iter().map(Throughput::largest_gpus);
        largest.max().unwrap_or(0)
    }

    /// The batch with the best goodput on a shape at this share of the work; the declared first one before anything was measured.
    #[must_use]
    pub fn batch(&self, kind: u16, shape: Shape, share_done: f64, batching: Batching) -> Batch {
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
        let goodput = |batch: &Batch| goodput(limits, throughput, shape, *batch, noise);
        limits
            .candidates(shape.gpus)
            .map(|batch| (goodput(&batch), batch))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(first, |(_, batch)| batch)
    }

    /// Mean speed over the work left, in steps of the initial batch size per second, at every size. Empty when nothing was measured
    /// on any kind.
    #[must_use]
    pub fn curve(&self, kind: u16, sizes: Sizes, share_done: f64, batching: Batching) -> Curve {
        let Some(throughput) = self.throughput(kind) else {
            return Curve::default();
        };
        let stretches = self.noises.stretches::<STRETCHES>(share_done);
        let limits = self.limits[usize::from(kind)];
        let speed = |gpus: u32, nodes: u32| {
            let shape = Shape { nodes, gpus };
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
        Curve {
            local: local.collect(),
            spread: spread.collect(),
        }
    }

    /// The model of a kind, if need be that of another kind that was measured: its shape is better than none.
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

/// Speed over stretches of work, each with the batch that is best there.
fn mean_speed(
    limits: BatchLimits,
    throughput: &Throughput,
    shape: Shape,
    stretches: &[(f64, NoiseScale)],
    batching: Batching,
) -> f64 {
    let batches: Vec<Batch> = match batching {
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
    shape: Shape,
    batch: Batch,
    noise: NoiseScale,
) -> f64 {
    let scale = f64::from(batch.total(shape.gpus)) / f64::from(limits.init);
    noise.gain(scale) / throughput.iteration_s(shape, batch)
}
