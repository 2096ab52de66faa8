//! Inputs of a study.

use crate::trial::TrialNumber;
use muster_model::study::Point;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Fact about a study. Facts about an ended trial and repeated reports have no effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SearchEvent {
    /// The study starts. Later ones only ask for pending work.
    Started,
    /// A trial measured its objectives, in their order and units, after `step` units of its budget.
    Reported {
        trial: TrialNumber,
        step: u64,
        values: Vec<f64>,
    },
    /// A trial has reached its budget, or cannot train further (`exhausted`), and holds no slot.
    /// For a running trial, a `step` below its budget without `exhausted` is about an earlier rung
    /// and has no effect.
    Finished {
        trial: TrialNumber,
        step: u64,
        /// Values at `step`, which replace a report of that step. Empty if a report contained
        /// them, or if the trial was stopping.
        values: Vec<f64>,
        exhausted: bool,
    },
    /// A trial ended without a result and holds no slot.
    Failed {
        trial: TrialNumber,
    },
    /// A stopping trial, or one that a user stopped, has ended.
    Stopped {
        trial: TrialNumber,
    },
    /// No new work starts; running trials continue.
    Paused,
    Resumed,
    /// Raises the limit of trials by `trials`.
    Extended {
        trials: u32,
    },
    /// Points of an external searcher; each becomes a trial in order.
    Proposed {
        points: Vec<Point>,
    },
    /// The study ends: all trials stop and none is created.
    Closed,
}

#[derive(Debug, Clone, PartialEq, Error)]
pub enum EventError {
    #[error("the study has no trial {trial}; it has created {created}")]
    UnknownTrial { trial: TrialNumber, created: u32 },
    #[error("trial {trial} reported {found} values; the study has {expected} objectives")]
    WrongValues {
        trial: TrialNumber,
        found: usize,
        expected: usize,
    },
    #[error("trial {trial} runs and finished at step {step} without a value at any step")]
    NoValue { trial: TrialNumber, step: u64 },
    #[error("point {place} of those proposed is not in the space")]
    OutsideSpace { place: usize },
    #[error("the study proposes its own trials")]
    NotExternal,
    #[error("{trials} more trials would make more than {most}")]
    TooMany { trials: u32, most: u32 },
}

impl SearchEvent {
    /// Trial of the fact.
    #[must_use]
    pub fn trial(&self) -> Option<TrialNumber> {
        match self {
            Self::Reported { trial, .. }
            | Self::Finished { trial, .. }
            | Self::Failed { trial }
            | Self::Stopped { trial } => Some(*trial),
            Self::Started
            | Self::Paused
            | Self::Resumed
            | Self::Extended { .. }
            | Self::Proposed { .. }
            | Self::Closed => None,
        }
    }
}
