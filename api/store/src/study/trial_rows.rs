//! Rows of trials as the scheduler's steps write them.

use muster_model::id::JobId;
use muster_model::study::{Parameters, TrialPhase};
use muster_model::view::{TrialPoint, TrialSource};
use serde::Serialize;

/// A trial's row after a step. `super::save` reads its fields by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialWrite {
    pub number: u32,
    /// Job of the trial; never changed once set.
    pub job_id: Option<JobId>,
    pub state: TrialPhase,
    pub parameters: Parameters,
    pub seed: u64,
    pub budget: u64,
    pub rung: u32,
    #[serde(rename = "origin")]
    pub from: Option<TrialSource>,
    pub reports: Vec<TrialPoint>,
    pub rungs: Vec<TrialPoint>,
    pub outcome: Option<TrialPoint>,
    /// Whether no other trial is better.
    pub best: bool,
    /// Optimizer step of the newest evaluation that the search knows.
    pub fed_step: Option<u64>,
    /// Whether the search knows that the job has ended; `None` leaves it unchanged.
    pub end_fed: Option<bool>,
    pub failure: Option<String>,
    /// Whether the trial is to be handed out (again).
    pub open: bool,
}
