//! Orders and results for a study, on their way from the API server to the scheduler.

use super::Point;
use serde::{Deserialize, Serialize};

/// Order that is stored until the scheduler has read it. A repeated order has no further effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StudyOrder {
    /// Start nothing new.
    Pause,
    Resume,
    /// Create up to this number of additional trials.
    Extend {
        trials: u32,
    },
    /// Stop all trials and create no more.
    Cancel,
    /// Trials chosen by a program outside, for a study whose searcher is `external`. They are
    /// created in this order.
    Propose {
        points: Vec<Point>,
    },
    /// Result of a trial that is trained outside.
    Tell {
        told: Told,
    },
}

impl StudyOrder {
    /// Returns the number of trials that it proposes.
    #[must_use]
    pub fn proposed(&self) -> u64 {
        match self {
            Self::Propose { points } => points.len() as u64,
            Self::Pause | Self::Resume | Self::Extend { .. } | Self::Cancel | Self::Tell { .. } => {
                0
            }
        }
    }
}

/// Result of a trial that is trained outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    pub trial: u32,
    /// In units of the budget.
    pub step: u64,
    /// One value per objective, in the order of the objectives; none if the trial failed.
    pub values: Vec<f64>,
    pub state: ToldState,
    /// The trial cannot train further, even if its budget is larger.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exhausted: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_false(value: &bool) -> bool {
    !value
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum ToldState {
    /// The trial continues; this is a point of its curve.
    Running,
    /// The trial has trained to its budget.
    #[default]
    Finished,
    /// The trial ended without a result.
    Failed,
}

/// State of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum StudyPhase {
    /// The scheduler has not read it yet.
    Created,
    Running,
    /// Nothing new starts; running trials continue.
    Paused,
    /// No more trials are created; running ones finish.
    Closing,
    Finished,
    /// Ended by a user, with all its trials.
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum TrialPhase {
    /// Has one of the study's slots: its job trains or waits for GPUs.
    Running,
    /// Has completed its rung and may be continued.
    Waiting,
    /// Is stopping, and still has its slot.
    Stopping,
    /// Trained to its end.
    Completed,
    Stopped,
    Failed,
}

impl StudyPhase {
    pub const ALL: [Self; 6] = [
        Self::Created,
        Self::Running,
        Self::Paused,
        Self::Closing,
        Self::Finished,
        Self::Cancelled,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Closing => "closing",
            Self::Finished => "finished",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the study has ended.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Finished | Self::Cancelled)
    }
}

impl TrialPhase {
    pub const ALL: [Self; 6] = [
        Self::Running,
        Self::Waiting,
        Self::Stopping,
        Self::Completed,
        Self::Stopped,
        Self::Failed,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Stopping => "stopping",
            Self::Completed => "completed",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}
