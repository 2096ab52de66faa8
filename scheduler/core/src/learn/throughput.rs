//! Step times by shape and batch: measured values, and the all-reduce model between them (Pollux,
//! OSDI 2021, section 3.2).
//!
//! Computation and exchange overlap, and a step takes `(T_grad^g + T_sync^g)^(1/g)` with `1 <= g <=
//! 10`. `T_grad` is linear in the examples per GPU. `T_sync = a + b (n - 2)` for `n` GPUs, with one
//! pair of coefficients on one node and another over several.

use super::batch::BatchSplit;
use std::collections::BTreeMap;

/// Number of GPUs, and of the nodes that they are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementShape {
    pub nodes: u32,
    pub gpus: u32,
}

/// Seconds of a step, and the part of it that waits for the exchange.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    pub step_s: f64,
    pub sync_s: f64,
}

/// Step times of a family on one GPU kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Throughput {
    /// Seconds of computation by examples per GPU, in ascending order. Predictions search it often.
    grad_s: Vec<(u32, f64)>,
    /// Seconds of a step by shape and examples per GPU.
    steps: BTreeMap<PlacementShape, BTreeMap<u32, f64>>,
    fit: ThroughputFit,
    /// Least time of a further example beyond the largest measured batch, as a share of the mean
    /// time of an example there.
    least_slope: f64,
    /// Number of measured steps that were news.
    version: u64,
}

/// Step times on one shape. Everything that does not depend on the batch is computed once.
#[derive(Debug)]
pub(super) struct StepTimes<'a> {
    throughput: &'a Throughput,
    /// Measured steps by examples per GPU, in ascending order.
    measured: Vec<MeasuredExchange>,
    /// Exchange of a shape without measurements.
    fitted: Exchange,
}

#[derive(Debug, Clone, Copy)]
struct MeasuredExchange {
    local_batch: u32,
    step_s: f64,
    exchange: Exchange,
}

/// Seconds of an exchange, and their power by the overlap exponent.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    sync_s: f64,
    power: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct ThroughputFit {
    gamma: f64,
    /// Coefficients `(a, b)` of the exchange in seconds, `a + b (n - 2)`: on one node, and over
    /// several.
    local: (f64, f64),
    spread: (f64, f64),
}

impl Default for ThroughputFit {
    fn default() -> Self {
        Self {
            gamma: 1.0,
            local: (0.0, 0.0),
            spread: (0.0, 0.0),
        }
    }
}

/// Measured step: its shape, the seconds of computation and the seconds of the step.
type MeasuredStep = (PlacementShape, f64, f64);

/// Relative change below which an observation is not news.
const NEWS: f64 = 0.01;

/// Share of the time of a measured batch that is assumed constant while only one batch was
/// measured.
const CONSTANT_SHARE: f64 = 0.2;

/// [`Throughput::least_slope`] where the memory of a GPU does not bound the batch.
const LEAST_SLOPE: f64 = 0.5;

/// Assumed slowdown of an exchange between nodes until it is measured (Pollux).
const SPREAD_PRIOR: f64 = 1.1;

/// Overlap exponents that are tried in the fit.
const GAMMAS: [f64; 8] = [1.0, 1.3, 1.6, 2.0, 2.5, 3.5, 5.0, 10.0];

impl Throughput {
    /// Returns the model of measured steps: their shape, examples per GPU and time. Nothing bounds
    /// the examples that a GPU processes at once. So a batch beyond the measured ones is never
    /// assumed to be nearly free.
    pub(super) fn of(steps: impl Iterator<Item = (PlacementShape, u32, StepTime)>) -> Self {
        let mut throughput = Self {
            least_slope: LEAST_SLOPE,
            ..Self::default()
        };
        for (shape, local_batch, time) in steps {
            throughput.add(shape, local_batch, time);
        }
        throughput.fit = throughput.fitted();
        throughput
    }

    /// Records a measured step. Returns whether it is news.
    pub(super) fn observe(
        &mut self,
        shape: PlacementShape,
        local_batch: u32,
        time: StepTime,
    ) -> bool {
        let is_news = self.add(shape, local_batch, time);
        if is_news {
            self.fit = self.fitted();
            self.version += 1;
        }
        is_news
    }

    /// Adds a measured step without a new fit. Returns whether it is news.
    fn add(&mut self, shape: PlacementShape, local_batch: u32, time: StepTime) -> bool {
        let usable = time.step_s.is_finite() && time.step_s > 0.0 && time.sync_s < time.step_s;
        if !usable || shape.gpus == 0 || local_batch == 0 {
            return false;
        }
        let steps = self.steps.entry(shape).or_default();
        let old = steps.get(&local_batch).copied();
        if old.is_some_and(|old| (time.step_s - old).abs() <= NEWS * old) {
            return false;
        }
        steps.insert(
            local_batch,
            old.map_or(time.step_s, |old| (old + time.step_s) / 2.0),
        );
        let grad_s = time.step_s - time.sync_s.max(0.0);
        let place = self.grad_s.partition_point(|point| point.0 < local_batch);
        if self
            .grad_s
            .get(place)
            .is_none_or(|point| point.0 != local_batch)
        {
            self.grad_s.insert(place, (local_batch, grad_s));
        }
        let mean = &mut self.grad_s[place].1;
        *mean = (*mean + grad_s) / 2.0;
        true
    }

    /// Returns the measured shape of `gpus` GPUs on several nodes, on the fewest; on two nodes
    /// without a measurement.
    pub(super) fn spread_shape(&self, gpus: u32) -> PlacementShape {
        let shapes = self.steps.keys();
        let measured = shapes.filter(|shape| shape.nodes > 1 && shape.gpus == gpus);
        measured
            .min()
            .copied()
            .unwrap_or(PlacementShape { nodes: 2, gpus })
    }

    #[must_use]
    pub fn largest_gpus(&self) -> u32 {
        self.steps.keys().map(|shape| shape.gpus).max().unwrap_or(0)
    }

    /// Returns the number of measured pairs of shape and batch.
    #[must_use]
    pub fn points(&self) -> usize {
        self.steps.values().map(BTreeMap::len).sum()
    }

    /// Returns a number that changes with every measured step that is news.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Returns the step times on a shape.
    pub(super) fn on(&self, shape: PlacementShape) -> StepTimes<'_> {
        let gamma = self.fit.gamma;
        let steps = self.steps.get(&shape).into_iter().flatten();
        let measured = steps.map(|(&local_batch, &step_s)| {
            let sync_s = exchange_s(step_s, self.computing_s(local_batch), gamma);
            MeasuredExchange {
                local_batch,
                step_s,
                exchange: Exchange::new(sync_s, gamma),
            }
        });
        StepTimes {
            throughput: self,
            measured: measured.collect(),
            fitted: Exchange::new(self.fit.sync_s(shape), gamma),
        }
    }

    /// Returns the seconds of computation: interpolated between measurements, along the fitted line
    /// beyond.
    fn computing_s(&self, local_batch: u32) -> f64 {
        let place = self.grad_s.partition_point(|point| point.0 < local_batch);
        let (below, above) = (&self.grad_s[..place], &self.grad_s[place..]);

        match (below.last(), above.first()) {
            (_, Some(&(batch, grad_s))) if batch == local_batch => grad_s,
            (Some(&(low, left)), Some(&(high, right))) => {
                left + (right - left) * f64::from(local_batch - low) / f64::from(high - low)
            }
            (Some(&(batch, grad_s)), None) => {
                let least = self.least_slope * grad_s / f64::from(batch);
                let slope = self.slope(batch, grad_s).max(least);
                grad_s + slope * f64::from(local_batch - batch)
            }
            (None, Some(&(batch, grad_s))) => {
                let slope = self.slope(batch, grad_s);
                (grad_s + slope * (f64::from(local_batch) - f64::from(batch))).max(0.1 * grad_s)
            }
            (None, None) => f64::INFINITY,
        }
    }

    /// Returns the seconds per further example beyond a measured end.
    fn slope(&self, batch: u32, grad_s: f64) -> f64 {
        match (self.grad_s.first(), self.grad_s.last()) {
            (Some(&(low, left)), Some(&(high, right))) if low < high => {
                ((right - left) / f64::from(high - low)).max(0.0)
            }
            _ => (1.0 - CONSTANT_SHARE) * grad_s / f64::from(batch.max(1)),
        }
    }

    /// Returns the overlap and exchange with the smallest relative error over the measurements.
    fn fitted(&self) -> ThroughputFit {
        let points: Vec<MeasuredStep> = self
            .steps
            .iter()
            .filter(|(shape, _)| shape.gpus > 1)
            .flat_map(|(&shape, steps)| {
                steps
                    .iter()
                    .map(move |(&batch, &step_s)| (shape, batch, step_s))
            })
            .map(|(shape, batch, step_s)| (shape, self.computing_s(batch), step_s))
            .collect();

        GAMMAS
            .into_iter()
            .map(|gamma| ThroughputFit::with(gamma, &points))
            .min_by(|a, b| a.error(&points).total_cmp(&b.error(&points)))
            .unwrap_or_default()
    }
}

impl StepTimes<'_> {
    /// Returns the seconds of one optimizer step: the accumulated passes without exchange, then one
    /// with it.
    pub(super) fn iteration_s(&self, batch: BatchSplit) -> f64 {
        let accumulated = f64::from(batch.accumulated);
        let grad_s = if accumulated > 0.0 {
            self.throughput.computing_s(batch.local) * accumulated
        } else {
            0.0
        };
        self.step_s(batch.local) + grad_s
    }

    /// Returns the seconds of a step with exchange: measured, else by the exchange measured on this
    /// shape, else by the fitted one.
    fn step_s(&self, local_batch: u32) -> f64 {
        let place = self
            .measured
            .partition_point(|step| step.local_batch < local_batch);
        let (below, above) = (&self.measured[..place], &self.measured[place..]);
        if let Some(step) = above.first().filter(|step| step.local_batch == local_batch) {
            return step.step_s;
        }
        let gamma = self.throughput.fit.gamma;
        let grad_s = self.throughput.computing_s(local_batch);

        match (below.last(), above.first()) {
            (Some(low), Some(high)) => {
                let from_low = f64::from(local_batch - low.local_batch);
                let share = from_low / f64::from(high.local_batch - low.local_batch);
                low.exchange.beside(grad_s, gamma) * (1.0 - share)
                    + high.exchange.beside(grad_s, gamma) * share
            }
            (Some(only), None) | (None, Some(only)) => only.exchange.beside(grad_s, gamma),
            (None, None) => self.fitted.beside(grad_s, gamma),
        }
    }
}

impl Exchange {
    fn new(sync_s: f64, gamma: f64) -> Self {
        let power = power(sync_s, gamma);
        Self { sync_s, power }
    }

    /// Returns the seconds of a step with this exchange and a computation.
    fn beside(self, grad_s: f64, gamma: f64) -> f64 {
        if self.sync_s <= 0.0 {
            return grad_s;
        }
        power(power(grad_s, gamma) + self.power, 1.0 / gamma)
    }
}

impl ThroughputFit {
    fn with(gamma: f64, points: &[MeasuredStep]) -> Self {
        let (over_nodes, on_one): (Vec<MeasuredStep>, Vec<MeasuredStep>) =
            points.iter().partition(|(shape, ..)| shape.nodes > 1);
        let local = exchange_line(gamma, &on_one).unwrap_or((0.0, 0.0));
        let spread = exchange_line(gamma, &over_nodes)
            .unwrap_or((SPREAD_PRIOR * local.0, SPREAD_PRIOR * local.1));
        Self {
            gamma,
            local,
            spread,
        }
    }

    /// Returns the relative error over the measurements. Among equally good fits the one with less
    /// overlap has the smaller error.
    fn error(&self, points: &[MeasuredStep]) -> f64 {
        points
            .iter()
            .map(|&(shape, grad_s, step_s)| {
                (overlapped(grad_s, self.sync_s(shape), self.gamma) / step_s - 1.0).powi(2)
            })
            .sum::<f64>()
            + 1e-3 * (self.gamma - 1.0)
    }

    fn sync_s(&self, shape: PlacementShape) -> f64 {
        if shape.gpus <= 1 {
            return 0.0;
        }
        let (a, b) = if shape.nodes > 1 {
            self.spread
        } else {
            self.local
        };
        a + b * (f64::from(shape.gpus) - 2.0)
    }
}

fn overlapped(grad_s: f64, sync_s: f64, gamma: f64) -> f64 {
    Exchange::new(sync_s, gamma).beside(grad_s, gamma)
}

/// Returns the exchange with which a step of this computation takes `step_s`.
fn exchange_s(step_s: f64, grad_s: f64, gamma: f64) -> f64 {
    power(
        (power(step_s, gamma) - power(grad_s, gamma)).max(0.0),
        1.0 / gamma,
    )
}

/// Returns `base` to the power of `exponent`. The power of 1, the exponent of most fits, is exact
/// without a computation.
fn power(base: f64, exponent: f64) -> f64 {
    if exponent == 1.0 {
        base
    } else {
        base.powf(exponent)
    }
}

/// Returns the coefficients of the exchange by the GPUs beyond two, or `None` without steps.
fn exchange_line(gamma: f64, points: &[MeasuredStep]) -> Option<(f64, f64)> {
    let line: Vec<(f64, f64)> = points
        .iter()
        .map(|&(shape, grad_s, step_s)| {
            let further_gpus = f64::from(shape.gpus) - 2.0;
            (further_gpus, exchange_s(step_s, grad_s, gamma))
        })
        .collect();
    line_through(&line)
}

/// Returns the least squares fit of `a + b x` with `a, b >= 0`, or `None` without points.
fn line_through(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    if points.is_empty() {
        return None;
    }
    let count = points.len() as f64;
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
    let spread: f64 = points.iter().map(|point| (point.0 - mean_x).powi(2)).sum();
    let covariance: f64 = points
        .iter()
        .map(|point| (point.0 - mean_x) * (point.1 - mean_y))
        .sum();
    let slope = if spread > 0.0 {
        (covariance / spread).max(0.0)
    } else {
        0.0
    };
    let start = mean_y - slope * mean_x;
    if start >= 0.0 {
        return Some((start, slope));
    }
    let squares: f64 = points.iter().map(|point| point.0 * point.0).sum();
    let through_zero =
        points.iter().map(|point| point.0 * point.1).sum::<f64>() / squares.max(1e-12);
    Some((0.0, through_zero.max(0.0)))
}
