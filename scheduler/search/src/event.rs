//! What may happen to a study.

use crate::trial::TrialNumber;
use muster_model::study::Point;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A fact. Facts about a trial that has ended already, and reports that came twice, change nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The study may begin. Any later one only asks whether there is something to do.
    Started,
    /// A trial measured its objectives, in their order and units, after so many units of its budget.
    Reported {
        trial: TrialNumber,
        step: u64,
        values: Vec<f64>,
    },
    /// A trial has trained as far as it was told to, or as far as it ever will (`exhausted`), and holds no slot any more. Of a trial that
    /// runs, one short of its budget and not `exhausted` is about a rung that ended before, and changes nothing.
    Finished {
        trial: TrialNumber,
        step: u64,
        /// Measured at `step`; empty when a report said it already, or when the trial was to stop, which it then has.
        values: Vec<f64>,
        exhausted: bool,
    },
    /// A trial ended without a result and holds no slot any more.
    Failed {
        trial: TrialNumber,
    },
    /// A trial that was to stop, or that a user stopped, is gone.
    Stopped {
        trial: TrialNumber,
    },
    /// Nothing new is to start; what runs, runs on.
    Paused,
    Resumed,
    /// So many more trials may be created.
    Extended {
        trials: u32,
    },
    /// A searcher outside has chosen these points; each becomes a trial in its turn.
    Proposed {
        points: Vec<Point>,
    },
    /// The study is to end: all trials stop, and none will be created.
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

impl Event {
    /// The trial that the fact is about.
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
