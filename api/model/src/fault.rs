//! Faults that are charged to a node: after those of several jobs it takes no new tasks.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What happened on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum NodeFault {
    /// A task was killed by a signal that nobody of ours sent.
    Killed { signal: i32 },
    /// A rank was found to be a straggler.
    Straggler,
    /// A rank was found to hang.
    Hang {
        /// The node has not started it in time.
        #[serde(default, skip_serializing_if = "is_false")]
        at_start: bool,
    },
    /// The driver reported an error of the GPU by its number (NVIDIA's XID), of those that mean hardware.
    Xid { gpu: u32, xid: u64 },
    /// The GPU's memory has had errors that could not be corrected.
    UncorrectedMemory { gpu: u32, errors: u64 },
    /// The driver had taken a program off this GPU, and did not give it back.
    DriverLost { gpu: u32 },
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl NodeFault {
    /// The GPU that it is of, of one that is a GPU's.
    #[must_use]
    pub fn gpu(self) -> Option<u32> {
        match self {
            Self::Xid { gpu, .. }
            | Self::UncorrectedMemory { gpu, .. }
            | Self::DriverLost { gpu } => Some(gpu),
            Self::Killed { .. } | Self::Straggler | Self::Hang { .. } => None,
        }
    }
}

impl fmt::Display for NodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed { signal } => write!(f, "a task was killed by signal {signal}"),
            Self::Straggler => f.write_str("a rank was a straggler"),
            Self::Hang { at_start: false } => f.write_str("a rank hung"),
            Self::Hang { at_start: true } => f.write_str("a task was not started in time"),
            Self::Xid { gpu, xid } => write!(f, "GPU {gpu} had the error XID {xid}"),
            Self::UncorrectedMemory { gpu, errors } => {
                write!(f, "GPU {gpu} had {errors} uncorrected errors of its memory")
            }
            Self::DriverLost { gpu } => {
                write!(f, "the driver did not give a program back to GPU {gpu}")
            }
        }
    }
}
