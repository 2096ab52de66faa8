//! `verdicts` of the job document: when a rank that holds the others up is replaced, or the job restarted.

use super::JobSpec;
use serde::{Deserialize, Serialize};

/// How long a rank may hold the others up. A job of one worker holds nobody up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Verdicts {
    /// Seconds that a rank may stay under half of the median rate; 0: for ever. 60 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straggler_s: Option<u32>,
    /// Seconds that a rank may be silent or stuck while the others wait for it, once that is seen; 0: for ever. When left out, 120 for
    /// `engine`, 1800 for `command`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hang_s: Option<u32>,
}

const STRAGGLER_S: u32 = 60;
const ENGINE_HANG_S: u32 = 120;
/// A program says nothing while it evaluates or writes checkpoints.
const COMMAND_HANG_S: u32 = 1_800;

impl Verdicts {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl JobSpec {
    /// Milliseconds after which a straggler is replaced; 0: never.
    #[must_use]
    pub fn straggler_ms(&self) -> u64 {
        u64::from(self.verdicts.straggler_s.unwrap_or(STRAGGLER_S)) * 1_000
    }

    /// Milliseconds after which whoever hangs is; 0: never.
    #[must_use]
    pub fn hang_ms(&self) -> u64 {
        let default_s = match &self.command {
            Some(_) => COMMAND_HANG_S,
            None => ENGINE_HANG_S,
        };
        u64::from(self.verdicts.hang_s.unwrap_or(default_s)) * 1_000
    }
}
