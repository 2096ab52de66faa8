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
    /// Seconds of computation by examples per GPU.
    grad_s: BTreeMap<u32, f64>,
    /// Seconds of a step by shape and examples per GPU.
    steps: BTreeMap<PlacementShape, BTreeMap<u32, f64>>,
    fit: ThroughputFit,
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

/// Assumed slowdown of an exchange between nodes until it is measured (Pollux).
const SPREAD_PRIOR: f64 = 1.1;

/// Overlap exponents that are tried in the fit.
const GAMMAS: [f64; 8] = [1.0, 1.3, 1.6, 2.0, 2.5, 3.5, 5.0, 10.0];

impl Throughput {
    /// Records a measured step. Returns whether it is news.
    pub(super) fn observe(
        &mut self,
        shape: PlacementShape,
        local_batch: u32,
        time: StepTime,
    ) -> bool {
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
        let mean = self.grad_s.entry(local_batch).or_insert(grad_s);
        *mean = (*mean + grad_s) / 2.0;
        self.fit = self.fitted();
        true
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

    /// Returns the seconds of one optimizer step: the accumulated passes without exchange, then one
    /// with it.
    #[must_use]
    pub fn iteration_s(&self, shape: PlacementShape, batch: BatchSplit) -> f64 {
        let accumulated = f64::from(batch.accumulated);
        let grad_s = if accumulated > 0.0 {
            self.computing_s(batch.local) * accumulated
        } else {
            0.0
        };
        self.step_s(shape, batch.local) + grad_s
    }

    /// Returns the seconds of a step with exchange: measured, else by the exchange measured on this
    /// shape, else by the fitted one.
    fn step_s(&self, shape: PlacementShape, local_batch: u32) -> f64 {
        let measured = self.steps.get(&shape);
        if let Some(&step_s) = measured.and_then(|steps| steps.get(&local_batch)) {
            return step_s;
        }
        let grad_s = self.computing_s(local_batch);
        let Some(steps) = measured else {
            return overlapped(grad_s, self.fit.sync_s(shape), self.fit.gamma);
        };
        let below = steps.range(..local_batch).next_back();
        let above = steps.range(local_batch..).next();

        match (below, above) {
            (Some(low), Some(high)) => {
                let share = f64::from(local_batch - low.0) / f64::from(high.0 - low.0);
                self.step_like_s(grad_s, low) * (1.0 - share)
                    + self.step_like_s(grad_s, high) * share
            }
            (Some(only), None) | (None, Some(only)) => self.step_like_s(grad_s, only),
            (None, None) => overlapped(grad_s, self.fit.sync_s(shape), self.fit.gamma),
        }
    }

    /// Returns the seconds of a step with this computation and the exchange of a measured step.
    fn step_like_s(&self, grad_s: f64, (&batch, &step_s): (&u32, &f64)) -> f64 {
        let sync_s = exchange_s(step_s, self.computing_s(batch), self.fit.gamma);
        overlapped(grad_s, sync_s, self.fit.gamma)
    }

    /// Returns the seconds of computation: interpolated between measurements, along the fitted line
    /// beyond.
    fn computing_s(&self, local_batch: u32) -> f64 {
        let below = self.grad_s.range(..=local_batch).next_back();
        let above = self.grad_s.range(local_batch..).next();

        match (below, above) {
            (Some((&low, &left)), Some((&high, &right))) if low < high => {
                left + (right - left) * f64::from(local_batch - low) / f64::from(high - low)
            }
            (Some((&batch, &grad_s)), _) | (None, Some((&batch, &grad_s))) => {
                let slope = self.slope(batch, grad_s);
                (grad_s + slope * (f64::from(local_batch) - f64::from(batch))).max(0.1 * grad_s)
            }
            (None, None) => f64::INFINITY,
        }
    }

    /// Returns the seconds per further example beyond a measured end.
    fn slope(&self, batch: u32, grad_s: f64) -> f64 {
        let first = self.grad_s.first_key_value();
        let last = self.grad_s.last_key_value();
        match (first, last) {
            (Some((&low, &left)), Some((&high, &right))) if low < high => {
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
    if sync_s <= 0.0 {
        return grad_s;
    }
    (grad_s.powf(gamma) + sync_s.powf(gamma)).powf(1.0 / gamma)
}

/// Returns the exchange with which a step of this computation takes `step_s`.
fn exchange_s(step_s: f64, grad_s: f64, gamma: f64) -> f64 {
    (step_s.powf(gamma) - grad_s.powf(gamma))
        .max(0.0)
        .powf(1.0 / gamma)
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
