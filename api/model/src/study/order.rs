//! What users want of a study and what they tell it, on its way from the api to the scheduler.

use super::Point;
use serde::{Deserialize, Serialize};

/// Kept until the scheduler has taken it in; two of the same change nothing that one does not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StudyOrder {
    /// Start nothing new.
    Pause,
    Resume,
    /// Create up to so many more trials.
    Extend {
        trials: u32,
    },
    /// Stop all trials and create no more.
    Cancel,
    /// Somebody outside has chosen trials, for a study whose searcher is `external`; they are created in this order.
    Propose {
        points: Vec<Point>,
    },
    /// Somebody outside has trained a trial.
    Tell {
        told: Told,
    },
}

impl StudyOrder {
    /// How many trials it proposes.
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

/// What came of a trial that somebody outside trains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    pub trial: u32,
    /// In units of the budget.
    pub step: u64,
    /// One an objective, in their order; none if it failed.
    pub values: Vec<f64>,
    pub state: ToldState,
    /// It cannot train any further, however far it was told to.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exhausted: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !value
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum ToldState {
    /// It trains on; this is a point of its curve.
    Running,
    /// It has trained as far as it was told to.
    #[default]
    Finished,
    /// It ended without a result.
    Failed,
}

/// Where a study stands, as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum StudyPhase {
    /// The scheduler has not seen it yet.
    Created,
    Running,
    /// Nothing new starts; what runs, runs on.
    Paused,
    /// No trial will be created; those that still run are awaited.
    Closing,
    Finished,
    /// Ended by a user, and all its trials with it.
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum TrialPhase {
    /// Holds one of the study's slots: its job trains, or waits for GPUs.
    Running,
    /// Has completed its rung and may be told to go on.
    Waiting,
    /// Was told to stop, and still holds its slot.
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

    /// Whether nothing more happens to it by itself.
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
