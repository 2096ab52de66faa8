//! The `verdicts` part of the job document: when a straggling or hung rank is replaced, or the job
//! restarts.

use super::JobSpec;
use serde::{Deserialize, Serialize};

/// How long a rank may hold up the others, and how long a program may be idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Verdicts {
    /// Seconds for which a rank may stay below half of the median rate; 0: unlimited. Default: 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straggler_s: Option<u32>,
    /// Seconds, after its detection, for which a rank may be silent or stuck while the others wait
    /// for it; 0: unlimited. Default: 120 with `engine`, 1800 with `command`. Also the seconds
    /// for which all workers of a `command` may be idle, with any number of workers: without
    /// output, metric, and use of CPU or GPU. The job is then flagged; it restarts only if the
    /// document sets this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hang_s: Option<u32>,
}

const STRAGGLER_S: u32 = 60;
const ENGINE_HANG_S: u32 = 120;
/// A program reports nothing while it evaluates or writes checkpoints.
const COMMAND_HANG_S: u32 = 1_800;

impl Verdicts {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl JobSpec {
    /// Returns the milliseconds after which a straggler is replaced; 0: never.
    #[must_use]
    pub fn straggler_ms(&self) -> u64 {
        u64::from(self.verdicts.straggler_s.unwrap_or(STRAGGLER_S)) * 1_000
    }

    /// Returns the milliseconds after which a hung rank is replaced; 0: never.
    #[must_use]
    pub fn hang_ms(&self) -> u64 {
        let default_s = match &self.command {
            Some(_) => COMMAND_HANG_S,
            None => ENGINE_HANG_S,
        };
        u64::from(self.verdicts.hang_s.unwrap_or(default_s)) * 1_000
    }

    /// Whether the job restarts because its program is idle.
    #[must_use]
    pub fn restarts_idle(&self) -> bool {
        self.command.is_some() && self.verdicts.hang_s.is_some()
    }
}
