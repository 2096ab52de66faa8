//! True speed of a job whose coordinator chooses its batch.

use super::{TaskPlacement, nth_or_last};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Time of an update by placement and batch, and the gradient noise over the course of the job.
///
/// The coordinator always has the batch with the best goodput. The live one finds it after some
/// updates at each size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoodputTable {
    /// First and smallest batch in examples. A step is an update with it.
    pub init: u32,
    /// Largest batch in examples.
    pub max: u32,
    /// Possible batches: `by_kind[kind][nodes - 1][workers - 1]`. Beyond the table the last row and
    /// the last element hold.
    pub by_kind: BTreeMap<String, Vec<Vec<Vec<TimedBatch>>>>,
    /// Stretches of the course, in order.
    pub course: Vec<CourseStretch>,
}

/// Batch on a placement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedBatch {
    /// Examples of an update over all workers.
    pub examples: u32,
    pub update_s: f64,
    /// Part of `update_s` that waits for the exchange.
    pub exchange_s: f64,
}

/// Part of the course with constant gradient noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CourseStretch {
    /// Step at which it ends.
    pub until_step: f64,
    /// By batch in examples, ascending; linear between them.
    pub noise: Vec<(u32, GradientStatistics)>,
}

/// Squared norm of the mean gradient, and variance of the gradient of one batch of
/// [`GoodputTable::init`] examples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GradientStatistics {
    pub square: f64,
    pub variance: f64,
}

/// Batch that the coordinator has chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChosenBatch {
    pub batch: TimedBatch,
    /// Steps per second.
    pub steps_per_s: f64,
    /// Noise scale in batches of [`GoodputTable::init`] examples.
    pub noise: f64,
}

impl GoodputTable {
    /// Returns the batch with the best goodput at a step; `None` on a GPU kind that the table does
    /// not contain.
    #[must_use]
    pub fn chosen(&self, at: TaskPlacement<'_>, step: f64) -> Option<ChosenBatch> {
        let row = nth_or_last(self.by_kind.get(at.kind)?, at.nodes)?;
        let batches = nth_or_last(row, at.workers)?;
        let stretch = self.stretch(step)?;
        let choices = batches.iter().map(|&batch| {
            let noise = stretch.at(batch.examples);
            let scale = f64::from(batch.examples) / f64::from(self.init.max(1));
            ChosenBatch {
                batch,
                steps_per_s: noise.gain(scale) / batch.update_s,
                noise: noise.scale(),
            }
        });
        choices.max_by(|a, b| a.steps_per_s.total_cmp(&b.steps_per_s))
    }

    /// Returns the step up to which the speed on a placement does not change.
    pub(super) fn constant_until(&self, step: f64) -> f64 {
        let stretch = self.course.get(self.place(step));
        stretch.map_or(f64::INFINITY, |stretch| stretch.until_step)
    }

    /// The last stretch holds beyond its end.
    fn stretch(&self, step: f64) -> Option<&CourseStretch> {
        let stretch = self.course.get(self.place(step));
        stretch.or_else(|| self.course.last())
    }

    /// Index of the stretch of a step; the number of stretches after the last one.
    fn place(&self, step: f64) -> usize {
        let ended = |stretch: &CourseStretch| stretch.until_step <= step;
        self.course.partition_point(ended)
    }
}

impl CourseStretch {
    fn at(&self, examples: u32) -> GradientStatistics {
        let place = self.noise.partition_point(|(batch, _)| *batch < examples);
        let (below, above) = self.noise.split_at(place);
        match (below.last(), above.first()) {
            (Some(&(low, left)), Some(&(high, right))) => {
                let share = f64::from(examples - low) / f64::from(high - low);
                let between = |left: f64, right: f64| left + (right - left) * share;
                GradientStatistics {
                    square: between(left.square, right.square),
                    variance: between(left.variance, right.variance),
                }
            }
            (Some(&(_, only)), None) | (None, Some(&(_, only))) => only,
            (None, None) => GradientStatistics {
                square: 1.0,
                variance: 0.0,
            },
        }
    }
}

impl GradientStatistics {
    /// Returns the noise scale in first batches.
    #[must_use]
    pub fn scale(self) -> f64 {
        self.variance / self.square.max(1e-12)
    }

    /// Returns the steps of an update with `scale` times the first batch (Pollux, OSDI 2021,
    /// section 3.1).
    #[must_use]
    pub fn gain(self, scale: f64) -> f64 {
        (self.variance + self.square) / (self.variance / scale + self.square)
    }
}
