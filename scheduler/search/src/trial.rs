//! One trial: its point, how far it may train, and what it has measured.

use muster_model::study::Point;
use serde::{Deserialize, Serialize};

/// Points of one curve at most. A longer one is thinned to about half of them, evenly over its steps, and its newest.
pub const MAX_POINTS: usize = 2048;

/// Trials count from 0 in the order in which they were created.
pub type TrialNumber = u32;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub number: TrialNumber,
    pub point: Point,
    pub seed: u64,
    pub state: TrialState,
    /// How far it was told to train, in all.
    pub budget: u64,
    /// How often its budget was raised.
    pub rung: u32,
    /// Which of Hyperband's cohorts it belongs to.
    pub bracket: u32,
    /// The checkpoint it began from.
    pub from: Option<Source>,
    /// What it measured, by ascending step; less is better. At most [`MAX_POINTS`] of it.
    pub reports: Vec<Outcome>,
    /// So many steps lie between two reports at least, the newest excepted; 0 while all are kept.
    #[serde(default)]
    pub stride: u64,
    /// The measure by which it is compared with others: that of its last completed rung.
    pub outcome: Option<Outcome>,
    /// The outcomes of all its rungs, in their order.
    pub rungs: Vec<Outcome>,
}

/// A checkpoint of another trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub trial: TrialNumber,
    pub step: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub step: u64,
    /// One number an objective, less is better; what was not finite is `f64::MAX`.
    pub losses: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    /// Holds a slot.
    Running,
    /// Has completed its rung and may be told to go on.
    Waiting,
    /// Was told to stop and still holds its slot.
    Stopping,
    /// Trained to its end.
    Completed,
    Stopped,
    Failed,
}

impl Trial {
    #[must_use]
    pub fn holds_slot(&self) -> bool {
        matches!(self.state, TrialState::Running | TrialState::Stopping)
    }

    /// The first objective's loss of the last completed rung.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        self.outcome.as_ref().map(|o| o.losses[0])
    }

    /// Takes a measure in; one of a step that is there already, or of one that was thinned out, changes nothing. Returns whether it was
    /// new.
    pub(crate) fn record(&mut self, step: u64, losses: Vec<f64>) -> bool {
        let Err(at) = self.reports.binary_search_by_key(&step, |r| r.step) else {
            return false;
        };
        let (before, after) = self.reports.split_at(at);
        let is_near = |one: &Outcome| one.step.abs_diff(step) < self.stride;
        if !after.is_empty() && (before.last().is_some_and(is_near) || is_near(&after[0])) {
            return false;
        }
        if let ([.., second, newest], []) = (before, after)
            && newest.step - second.step < self.stride
        {
            // It was kept only because it was the newest.
            self.reports.pop();
        }
        let at = at.min(self.reports.len());
        self.reports.insert(at, Outcome { step, losses });
        if self.reports.len() > MAX_POINTS {
            self.thin();
        }
        true
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
