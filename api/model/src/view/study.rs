//! Studies and their trials, as answered.

use crate::checkpoint::Written;
use crate::id::{JobId, StudyId};
use crate::job::JobPhase;
use crate::study::{Parameters, StudyPhase, StudySpec, ToldState, TrialPhase};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use time::OffsetDateTime;

/// A study as its users see it.
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
    /// The best trial, or with several objectives the first 10 of the Pareto front, without their curves; `best` lists all.
    pub best: Vec<TrialView>,
    /// Facts that the search has taken in.
    pub events: u64,
    /// Name of the user who created it.
    pub created_by: String,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub finished_at: Option<OffsetDateTime>,
    /// The document as submitted, defaults filled in.
    pub document: StudySpec,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TrialCounts {
    /// May be created in all, extensions included.
    pub limit: u32,
    pub created: u32,
    pub running: u32,
    pub waiting: u32,
    pub stopping: u32,
    pub completed: u32,
    pub stopped: u32,
    pub failed: u32,
    /// None better: 1 once a trial has completed a rung, or the size of the Pareto front.
    pub best: u32,
}

/// One trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TrialView {
    /// From 0, in the order of creation.
    pub number: u32,
    pub state: TrialPhase,
    /// By name. A parameter whose condition does not hold is missing.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub parameters: Parameters,
    pub seed: u64,
    /// How far it was told to train, in all, in units of the document's budget.
    pub budget: u64,
    /// How often its budget was raised.
    pub rung: u32,
    /// The checkpoint from which it began; null when it began fresh.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub from: Option<TrialSource>,
    /// The job that trains it; null in a study whose trials are trained outside.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub job_id: Option<JobId>,
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub job_phase: Option<JobPhase>,
    /// By which it is compared with others: what it had at the end of its last completed rung.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub outcome: Option<TrialPoint>,
    /// What it had at the end of each rung.
    pub rungs: Vec<TrialPoint>,
    /// Its learning curve, by ascending step, of at most 2048 points; empty where it was not asked for.
    pub curve: Vec<TrialPoint>,
    /// No other trial betters it.
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

/// What a trial measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TrialPoint {
    /// In units of the budget.
    pub step: u64,
    /// One an objective, in their order; null for what is no finite number.
    pub values: Vec<Option<f64>>,
}

/// A best trial and the model that it has trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BestTrialView {
    pub trial: TrialView,
    /// The checkpoint of its outcome, or the newest before; null when there is none.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub checkpoint: Option<Written>,
    /// The trained model, relative to the checkpoint root; null unless its job has succeeded.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub model_path: Option<String>,
}

/// How many more trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StudyExtension {
    /// 1 to 100,000.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 100_000))]
    pub trials: u32,
}

/// Asks for trials to train outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Ask {
    /// At most so many; 1 to 1000.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1000))]
    pub count: u32,
    /// Wait so long for the first of them; 0 to 20.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(maximum = 20))]
    pub wait_s: u32,
}

/// What was given out; nobody else gets these trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Asked {
    pub trials: Vec<TrialView>,
    /// When it is over, there will be no other trial.
    pub phase: StudyPhase,
}

/// Results of trials that were trained outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Tell {
    /// 1 to 1000 of them, taken in in this order.
    pub results: Vec<TrialResult>,
    /// Asks at the same time, and waits for the disk once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TrialResult {
    pub trial: u32,
    /// How far the trial has come, in units of the budget. Of a trial that is `finished` at least its budget; only one that failed
    /// needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// One value for each objective's metric; none of a trial that failed.
    #[serde(default)]
    pub values: BTreeMap<String, f64>,
    #[serde(default)]
    pub state: ToldState,
    /// Of one that has finished short of what it was told to train: it cannot train any further, and so has completed.
    #[serde(default)]
    pub exhausted: bool,
}

/// Trials that a searcher outside has chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Proposal {
    /// 1 to 1000 of them, created in this order.
    pub trials: Vec<ProposedTrial>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProposedTrial {
    /// A value for each parameter of the space whose condition holds.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub parameters: Parameters,
}

/// Which of the study's trials should not be trained on, and those that were asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TellAnswer {
    /// Of the trials that were told of, those that the study has stopped by now.
    pub stopped: Vec<u32>,
    /// If any were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
}

fn one() -> u32 {
    1
}
