//! Requests of a study. An action leaves no choice to the caller and can be carried out twice.

use crate::trial::{TrialCheckpoint, TrialNumber};
use muster_model::study::Parameters;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SearchAction {
    /// Creates a trial, which trains until `budget`.
    Create {
        trial: TrialNumber,
        parameters: Parameters,
        seed: u64,
        budget: u64,
        /// Start from a copy of that trial's checkpoint (population-based training).
        from: Option<TrialCheckpoint>,
    },
    /// A waiting trial trains on until `budget` in total.
    Continue { trial: TrialNumber, budget: u64 },
    /// A trial ends. A running trial answers with `Stopped`; a waiting trial has ended at once.
    Stop { trial: TrialNumber },
    /// All trials have ended. None will follow unless the study is extended.
    Finish,
}
