//! Reasons for the decisions of a round, for users and for the record. No decision reads them.

use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::plan::{PredictedBatch, PreemptionCost};
use muster_model::wait::Waiting;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// State that one round saw, and the reasons for its decisions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundReport {
    pub round: u64,
    pub totals: Totals,
    /// Job that would have received the next GPU.
    pub runner_up: Option<RunnerUp>,
    pub jobs: Vec<JobReport>,
    /// Running jobs that migrate to make room for a waiting job, or to gather their own tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveReport>,
    /// Running jobs that stop for other jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preemptions: Vec<PreemptionReport>,
}

/// A stop for another job, with its cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreemptionReport {
    pub job: JobId,
    pub cost: PreemptionCost,
    /// Seconds of work that the job had lost to other jobs before.
    pub lost_before_s: f64,
}

/// A migration of a running job, with its costs and savings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveReport {
    pub job: JobId,
    /// Names of the present nodes.
    pub from: Vec<String>,
    pub to: Vec<String>,
    /// Waiting job that gets room; `None` if the moved job itself is gathered.
    pub makes_room_for: Option<JobId>,
    /// GPU-seconds that all moves of this kind cost in this round.
    pub costs_gpu_s: f64,
    /// GPU-seconds that they save.
    pub saves_gpu_s: f64,
    /// Whether this job's part of the cost was measured; otherwise it is assumed.
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

/// State and estimates of one job in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobReport {
    pub job: JobId,
    pub name: String,
    /// Phase after the round.
    pub phase: JobPhase,
    /// Workers that the job has, or will have once room is made.
    pub workers: u32,
    pub ps_shards: u32,
    /// Text: reason for this size, or for the wait.
    pub why: String,
    /// Gain per GPU of the last step to this size, in the policy's own objective; `None` if the
    /// policy weighed no step.
    pub last_worker_gain: Option<f64>,
    /// Gain of the next step; `None` if it is not allowed or gains nothing.
    pub next_worker_gain: Option<f64>,
    pub speed: SpeedReport,
    /// Predicted batch at this size; `None` if the coordinator does not choose the batch, before a
    /// measured update, and in older reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<PredictedBatch>,
    /// Remaining steps, by the bound of the document or by convergence.
    pub steps_left: f64,
    /// The 80 % confidence interval of `steps_left`; `None` in older reports.
    #[serde(default)]
    pub steps_left_between: Option<(f64, f64)>,
    /// Remaining seconds at this size.
    pub time_left_s: f64,
    /// Basis of the remaining steps.
    #[serde(default, skip_serializing_if = "Length::is_said")]
    pub length: Length,
    /// Step of the job in this round; `None` in older reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    pub waiting: Option<Waiting>,
}

/// Basis of the estimated length of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// A number of steps, the job's losses, or the steps of earlier jobs of the same document.
    #[default]
    Said,
    /// Seconds: the durations of similar jobs, or a limit.
    Past,
    /// No basis: the remaining steps are a guess, because policies need a number.
    Unknown,
    /// No basis any more: the job has run longer than similar jobs.
    Outlived,
}

impl Length {
    #[must_use]
    pub fn is_said(&self) -> bool {
        *self == Self::Said
    }

    /// Whether an end can be estimated.
    #[must_use]
    pub fn is_known(self) -> bool {
        matches!(self, Self::Said | Self::Past)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunnerUp {
    pub job: JobId,
    /// Gain per GPU, in the policy's own objective.
    pub gain: f64,
}

/// Estimate of the job's speed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedReport {
    /// Coefficients in the order of the terms of the speed model; empty before a measurement.
    pub coefficients: Vec<f64>,
    /// Number of measured sizes.
    pub points: u32,
    /// Mean relative error of the fit at those sizes; `None` before a measurement.
    pub mean_relative_error: Option<f64>,
    /// Predicted speed at the job's size.
    pub steps_per_s: f64,
    /// Standard error as a share of the predicted speed; `None` in older reports.
    #[serde(default)]
    pub standard_error: Option<f64>,
    /// Only in reports of earlier releases (record 0172).
    #[serde(default, skip_serializing)]
    pub next_probe: Option<(u32, u32)>,
    /// Predicted speed on one node of each GPU kind, at the job's size, relative to `steps_per_s`.
    /// Empty if all kinds count as equal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_kind: BTreeMap<String, f64>,
}
