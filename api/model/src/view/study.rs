//! Requests and responses of studies and their trials.

use crate::checkpoint::Written;
use crate::id::{JobId, StudyId};
use crate::job::JobPhase;
use crate::study::{Parameters, StudyPhase, StudySpec, ToldState, TrialPhase};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use time::OffsetDateTime;

/// A study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StudyView {
    pub id: StudyId,
    /// Name of the tenant that owns it.
    pub tenant: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub phase: StudyPhase,
    pub trials: TrialCounts,
    /// The best trial, or with several objectives the first 10 of the Pareto front, without their
    /// curves. `GET /studies/{id}/best` lists all.
    pub best: Vec<TrialView>,
    /// Number of facts that the search has read.
    pub events: u64,
    /// Name of the user that created it.
    pub created_by: String,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub finished_at: Option<OffsetDateTime>,
    /// The document as submitted, with defaults filled in.
    pub document: StudySpec,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TrialCounts {
    /// Maximum number of trials, including extensions.
    pub limit: u32,
    pub created: u32,
    pub running: u32,
    pub waiting: u32,
    pub stopping: u32,
    pub completed: u32,
    pub stopped: u32,
    pub failed: u32,
    /// Number of trials that no other one improves on: 1 once a trial has completed a rung, or the
    /// size of the Pareto front.
    pub best: u32,
}

/// One trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TrialView {
    /// From 0, in the order of creation.
    pub number: u32,
    pub state: TrialPhase,
    /// By name. A parameter whose condition does not hold is absent.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub parameters: Parameters,
    pub seed: u64,
    /// Total budget of the trial so far, in units of the document's budget.
    pub budget: u64,
    /// Number of times that its budget was raised.
    pub rung: u32,
    /// Checkpoint from which it started; null if it started from fresh parameters.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub from: Option<TrialSource>,
    /// Job that trains it; null in a study whose trials are trained outside.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub job_id: Option<JobId>,
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub job_phase: Option<JobPhase>,
    /// Result by which it is compared: the values at the end of its last completed rung.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub outcome: Option<TrialPoint>,
    /// Values at the end of each rung.
    pub rungs: Vec<TrialPoint>,
    /// Its learning curve by ascending step, at most 2048 points; empty if it was not requested.
    pub curve: Vec<TrialPoint>,
    /// Whether no other trial improves on it.
    pub best: bool,
    /// Why it failed; null unless it did.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub failure: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub ended_at: Option<OffsetDateTime>,
}

/// A checkpoint of another trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TrialSource {
    pub trial: u32,
    /// In units of the budget.
    pub step: u64,
}

/// Measured values of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TrialPoint {
    /// In units of the budget.
    pub step: u64,
    /// One value per objective, in the order of the objectives; null for a number that is not
    /// finite.
    pub values: Vec<Option<f64>>,
}

/// A best trial and its trained model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BestTrialView {
    pub trial: TrialView,
    /// Checkpoint of its outcome, or the newest one before it; null if there is none.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub checkpoint: Option<Written>,
    /// Path of the trained model, relative to the checkpoint root; null unless its job has
    /// succeeded.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub model_path: Option<String>,
}

/// Number of additional trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StudyExtension {
    /// 1 to 100,000.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 100_000))]
    pub trials: u32,
}

/// Request for trials to train outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Ask {
    /// Maximum number of trials; 1 to 1000.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1000))]
    pub count: u32,
    /// Seconds to wait for the first trial; 0 to 20.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(maximum = 20))]
    pub wait_s: u32,
}

/// Trials that were handed out; no other caller gets them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Asked {
    pub trials: Vec<TrialView>,
    /// State of the study. Once it has ended, no further trials follow.
    pub phase: StudyPhase,
}

/// Results of trials that were trained outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Tell {
    /// 1 to 1000 results, read in this order.
    pub results: Vec<TrialResult>,
    /// Request for further trials in the same request, which waits for the disk only once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TrialResult {
    pub trial: u32,
    /// Progress of the trial in units of the budget; at least its budget if `finished`. Optional
    /// only for a failed trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// One value for each objective's metric; none for a failed trial.
    #[serde(default)]
    pub values: BTreeMap<String, f64>,
    #[serde(default)]
    pub state: ToldState,
    /// For a finished trial that did not reach its budget: it cannot train further and is complete.
    #[serde(default)]
    pub exhausted: bool,
}

/// Trials that a searcher outside has chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Proposal {
    /// 1 to 1000 trials, created in this order.
    pub trials: Vec<ProposedTrial>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProposedTrial {
    /// One value for each parameter of the space whose condition holds.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub parameters: Parameters,
}

/// Trials that should stop, and the requested trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TellAnswer {
    /// Reported trials that the study has stopped by now.
    pub stopped: Vec<u32>,
    /// Present if trials were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
}

fn one() -> u32 {
    1
}
