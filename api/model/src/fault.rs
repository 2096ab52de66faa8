//! Faults that are charged to a node. A node with faults of several jobs takes no new tasks.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Fault on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum NodeFault {
    /// A task was killed by a signal that Muster did not send.
    Killed { signal: i32 },
    /// A rank was a straggler.
    Straggler,
    /// A rank hung.
    Hang {
        /// Whether the node failed to start the task in time.
        #[serde(default, skip_serializing_if = "is_false")]
        at_start: bool,
    },
    /// The GPU driver reported a hardware error by this number (NVIDIA's XID).
    Xid { gpu: u32, xid: u64 },
    /// The GPU's memory had errors that could not be corrected.
    UncorrectedMemory { gpu: u32, errors: u64 },
    /// The driver had moved a program off this GPU and did not restore it.
    DriverLost { gpu: u32 },
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl NodeFault {
    /// Returns the GPU of a fault that concerns one GPU.
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
