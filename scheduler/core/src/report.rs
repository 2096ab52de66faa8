//! Why a round decided as it did, for people and for the record; no decision reads it.

use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::wait::Waiting;
use serde::{Deserialize, Serialize};

/// What one round saw and why it decided so.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundReport {
    pub round: u64,
    pub totals: Totals,
    /// Whoever would have got the next GPU.
    pub runner_up: Option<RunnerUp>,
    pub jobs: Vec<JobReport>,
    /// Running jobs that are moved to let another one start, or to come together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveReport>,
}

/// A running job that goes on elsewhere, and why that is worth it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveReport {
    pub job: JobId,
    /// Names of nodes.
    pub from: Vec<String>,
    pub to: Vec<String>,
    /// The waiting job that gets room by it; `None` where the moved job itself comes together.
    pub makes_room_for: Option<JobId>,
    /// GPU-seconds that all moves of this kind in this round cost.
    pub costs_gpu_s: f64,
    /// GPU-seconds that they save.
    pub saves_gpu_s: f64,
    /// Whether this job's part of the cost was measured of it, or is what is assumed of all.
    pub measured: bool,
}

/// GPUs of the nodes that are up, after the round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    pub gpus: u32,
    pub held_gpus: u32,
    pub free_gpus: u32,
    pub waiting_jobs: u32,
}

/// One job in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobReport {
    pub job: JobId,
    pub name: String,
    /// After the round.
    pub phase: JobPhase,
    /// What it has, or will have once room is made.
    pub workers: u32,
    pub ps_shards: u32,
    /// In words: why it has this size, or why it waits.
    pub why: String,
    /// What the last step to its size gained per GPU, in the policy's own objective; `None` where it weighed none.
    pub last_worker_gain: Option<f64>,
    /// What the next step would gain; `None` when it may have no more, or gains nothing.
    pub next_worker_gain: Option<f64>,
    pub speed: SpeedReport,
    /// Steps until it ends, by its bound or by convergence.
    pub steps_left: f64,
    /// The 80 % confidence interval of `steps_left`; `None` in reports from before it was kept.
    #[serde(default)]
    pub steps_left_between: Option<(f64, f64)>,
    /// Seconds until it ends at this size.
    pub time_left_s: f64,
    /// What tells how many steps are left.
    #[serde(default, skip_serializing_if = "Length::is_said")]
    pub length: Length,
    /// Its step in this round; `None` in reports from before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    pub waiting: Option<Waiting>,
}

/// What tells how long a job is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// A number of steps, its losses, or the steps of earlier jobs of the same document.
    #[default]
    Said,
    /// Seconds: those that jobs like it took, or a limit.
    Past,
    /// Nothing; the steps left are a guess that policies need.
    Unknown,
    /// Nothing any more: it has run longer than jobs like it.
    Outlived,
}

impl Length {
    #[must_use]
    pub fn is_said(&self) -> bool {
        *self == Self::Said
    }

    /// Whether an end can be told.
    #[must_use]
    pub fn is_known(self) -> bool {
        matches!(self, Self::Said | Self::Past)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunnerUp {
    pub job: JobId,
    /// Per GPU, in the policy's own objective.
    pub gain: f64,
}

/// How the job's speed was estimated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedReport {
    /// Of the terms in the order of the speed model's formula; empty while nothing is measured.
    pub coefficients: Vec<f64>,
    /// Sizes that were measured.
    pub points: u32,
    /// Mean relative error of the fit at those sizes; `None` while nothing is measured.
    pub mean_relative_error: Option<f64>,
    /// Predicted speed at the job's size.
    pub steps_per_s: f64,
    /// Its standard error as a share of it; `None` in reports from before it was kept.
    #[serde(default)]
    pub standard_error: Option<f64>,
    /// The (workers, shards) whose measurement would tell most of the job's speed; `None` when nothing is measured or enough is.
    #[serde(default)]
    pub next_probe: Option<(u32, u32)>,
}
