//! Verdicts on a job's ranks, each with its evidence, as the history keeps them.

use crate::id::{NodeId, TaskId};
use crate::task::Role;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A rank was found to hold up the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Verdict {
    pub task_id: TaskId,
    pub role: Role,
    pub node_id: NodeId,
    /// The node's name.
    pub node: String,
    pub finding: Finding,
    /// For so long it was so in every round.
    pub for_ms: u64,
    pub remedy: Remedy,
}

/// The evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Finding {
    /// Under half of the median rate of all ranks, by their own time per step (Optimus, Peng et al., EuroSys 2018).
    Straggler {
        /// Microseconds of its own that it takes for a step, waiting not counted.
        own_us: u64,
        /// Of a step at the median rate.
        median_us: u64,
    },
    /// Silent, or stuck in a step, while others wait for it.
    Hang {
        /// Its last step.
        step: u64,
        /// Since it was heard, or since its step changed.
        silent_ms: u64,
    },
}

/// What was done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Remedy {
    /// Another process takes its place on another node, and the others train on.
    Replaced,
    /// The others train on without it: there is no other place.
    LeftOut,
    /// The job starts again from its newest checkpoint.
    Restarted,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} {}", self.role, self.node, self.finding)?;
        write!(f, " for {} s: ", self.for_ms / 1_000)?;
        f.write_str(match self.remedy {
            Remedy::Replaced => "replaced by another on another node",
            Remedy::LeftOut => "the others train on without it",
            Remedy::Restarted => "the job starts again",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Straggler { own_us, median_us } => write!(
                f,
                "is a straggler: {:.1} ms of its own for a step, the median is {:.1} ms,",
                *own_us as f64 / 1e3,
                *median_us as f64 / 1e3
            ),
            Self::Hang { step, silent_ms } => write!(
                f,
                "hangs: nothing since step {step}, {} s ago,",
                silent_ms / 1_000
            ),
        }
    }
}
