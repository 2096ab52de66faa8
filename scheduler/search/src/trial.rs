//! One trial: its point, how far it may train, and what it has measured.

use muster_model::study::Point;
use serde::{Deserialize, Serialize};

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
    /// What it measured, by ascending step; less is better.
    pub reports: Vec<Outcome>,
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

    /// Takes a measure in; one of a step that is there already changes nothing. Returns whether it was new.
    pub(crate) fn record(&mut self, step: u64, losses: Vec<f64>) -> bool {
        match self.reports.binary_search_by_key(&step, |r| r.step) {
            Ok(_) => false,
            Err(at) => {
                self.reports.insert(at, Outcome { step, losses });
                true
            }
        }
    }
}
