//! One trial: its point, its budget and its results.

use muster_model::study::Point;
use serde::{Deserialize, Serialize};

/// Maximum number of points of a curve. A longer curve is thinned to about half of them, evenly
/// over its steps, and its newest point.
pub const MAX_POINTS: usize = 2048;

/// Number of a trial, from 0 in order of creation.
pub type TrialNumber = u32;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchTrial {
    pub number: TrialNumber,
    pub point: Point,
    pub seed: u64,
    pub state: TrialState,
    /// Budget in total.
    pub budget: u64,
    /// Number of times the budget was raised.
    pub rung: u32,
    /// Hyperband's cohort of the trial.
    pub bracket: u32,
    /// Checkpoint from which the trial started.
    pub from: Option<TrialCheckpoint>,
    /// Measured losses by ascending step; smaller is better. At most [`MAX_POINTS`].
    pub reports: Vec<TrialMeasurement>,
    /// Minimum distance in steps between two reports, except for the newest; 0 while all are
    /// stored.
    #[serde(default)]
    pub stride: u64,
    /// Losses for comparisons with other trials: those of the last completed rung.
    pub outcome: Option<TrialMeasurement>,
    /// Outcomes of all rungs in order.
    pub rungs: Vec<TrialMeasurement>,
}

/// Checkpoint of another trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialCheckpoint {
    pub trial: TrialNumber,
    pub step: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialMeasurement {
    pub step: u64,
    /// One number per objective, smaller is better. A value that is not finite is `f64::MAX`.
    pub losses: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    /// Holds a slot.
    Running,
    /// Has completed its rung and can be continued.
    Waiting,
    /// Is being stopped and still holds its slot.
    Stopping,
    /// Trained to its end.
    Completed,
    Stopped,
    Failed,
}

impl SearchTrial {
    #[must_use]
    pub fn holds_slot(&self) -> bool {
        matches!(self.state, TrialState::Running | TrialState::Stopping)
    }

    /// Loss of the first objective at the last completed rung.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        self.outcome.as_ref().map(|o| o.losses[0])
    }

    /// Step of the last completed rung; 0 before the first.
    pub(crate) fn outcome_step(&self) -> u64 {
        self.outcome.as_ref().map_or(0, |o| o.step)
    }

    /// Stores losses at a step and returns whether they are new. Has no effect if the step is
    /// stored or was thinned out.
    pub(crate) fn record(&mut self, step: u64, losses: Vec<f64>) -> bool {
        let Err(at) = self.reports.binary_search_by_key(&step, |r| r.step) else {
            return false;
        };
        let (before, after) = self.reports.split_at(at);
        if let Some(next) = after.first() {
            let mut neighbours = before.last().into_iter().chain([next]);
            if neighbours.any(|one| one.step.abs_diff(step) < self.stride) {
                return false;
            }
        }
        if let ([.., second, newest], []) = (before, after)
            && newest.step - second.step < self.stride
        {
            // It was stored only as the newest point.
            self.reports.pop();
        }
        let at = at.min(self.reports.len());
        self.reports.insert(at, TrialMeasurement { step, losses });
        if self.reports.len() > MAX_POINTS {
            self.thin();
        }
        true
    }

    /// Stores the losses at the end of a rung. They replace an earlier measurement of this step,
    /// because a program may measure several times within one unit of the budget. Measurements
    /// beyond the rung are removed: other trials have none there.
    pub(crate) fn conclude(&mut self, step: u64, losses: Vec<f64>) {
        self.reports.retain(|one| one.step <= step);
        match self.reports.binary_search_by_key(&step, |one| one.step) {
            Ok(at) => self.reports[at].losses = losses,
            Err(_) => {
                self.record(step, losses);
            }
        }
    }

    fn thin(&mut self) {
        let Some(newest) = self.reports.pop() else {
            return;
        };
        let first = self.reports.first().map_or(newest.step, |one| one.step);
        self.stride = (newest.step - first) / (MAX_POINTS as u64 / 2);
        let (stride, mut kept) = (self.stride, None);
        self.reports.retain(|one| {
            let keeps = kept.is_none_or(|step| one.step - step >= stride);
            if keeps {
                kept = Some(one.step);
            }
            keeps
        });
        self.reports.push(newest);
    }
}
