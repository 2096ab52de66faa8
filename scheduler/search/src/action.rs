//! What a study asks for. Whoever carries an action out has no choices left, and may carry it out twice.

use crate::trial::{Source, TrialNumber};
use muster_model::study::Parameters;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// A new trial, which trains until `budget`.
    Create {
        trial: TrialNumber,
        parameters: Parameters,
        seed: u64,
        budget: u64,
        /// Begin from a copy of that trial's checkpoint (population-based training) and not from the start.
        from: Option<Source>,
    },
    /// A trial that waits trains on until `budget` in all.
    Continue { trial: TrialNumber, budget: u64 },
    /// A trial trains no further. One that runs answers with `Stopped`; one that waits has ended with this.
    Stop { trial: TrialNumber },
    /// All trials have ended and none will follow, unless the study is extended.
    Finish,
}
