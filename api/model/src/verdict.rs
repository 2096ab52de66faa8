//! Verdicts on the ranks of a job, with their evidence, for the history.

use crate::id::{NodeId, TaskId};
use crate::idle::Idleness;
use crate::task::Role;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Finding that a rank held up the others, and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Verdict {
    pub task_id: TaskId,
    pub role: Role,
    pub node_id: NodeId,
    /// Name of the node.
    pub node: String,
    pub finding: Finding,
    /// Milliseconds for which every round made this finding.
    pub for_ms: u64,
    pub remedy: Remedy,
}

/// Evidence of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Finding {
    /// The rank had less than half of the median rate of all ranks, by own time per step (Optimus,
    /// Peng et al., EuroSys 2018).
    Straggler {
        /// Microseconds of the rank's own time per step, without waiting.
        own_us: u64,
        /// Microseconds per step at the median rate.
        median_us: u64,
    },
    /// All ranks of a program were idle: no output, no metric, and no use of CPU or GPU.
    Idle {
        /// That of the rank that became idle last.
        idle: Idleness,
        /// Milliseconds for which all were idle.
        idle_ms: u64,
    },
    /// The rank was silent, or stuck in a step, while others waited for it.
    Hang {
        /// Last step of the rank.
        step: u64,
        /// Milliseconds since its last report or since the last change of its step.
        silent_ms: u64,
    },
}

/// Remedy of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Remedy {
    /// Another process on another node replaces the rank, and the others continue.
    Replaced,
    /// The others continue without the rank, because no other place was free.
    LeftOut,
    /// The job restarts from its newest checkpoint.
    Restarted,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            role,
            node,
            finding,
            for_ms,
            remedy,
            ..
        } = self;
        let for_s = for_ms / 1_000;
        write!(f, "{role} on {node} {finding} (for {for_s} s): {remedy}")
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Straggler { own_us, median_us } => write!(
                f,
                "is a straggler: its own part of a step takes {:.1} ms, the median is {:.1} ms",
                *own_us as f64 / 1e3,
                *median_us as f64 / 1e3
            ),
            Self::Idle { idle, idle_ms } => {
                let for_ms = i64::try_from(*idle_ms).unwrap_or(i64::MAX);
                let evidence = idle.evidence(idle.since_ms.saturating_add(for_ms));
                write!(f, "is idle: {evidence}")
            }
            Self::Hang { step, silent_ms } => {
                let silent_s = silent_ms / 1_000;
                write!(f, "hangs: nothing since step {step}, {silent_s} s ago")
            }
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replaced => "replaced by another worker on another node",
            Self::LeftOut => "the others continue without it",
            Self::Restarted => "the job starts again",
        })
    }
}
