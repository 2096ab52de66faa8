//! The `interactive` part of the job document: a program that a user works in, such as a notebook.

use super::JobSpec;
use super::validate::Errors;
use serde::{Deserialize, Serialize};

/// Longest time without use: a week.
const LONGEST_IDLE_MINUTES: f64 = 10_080.0;
/// Shortest time without use. The executor measures every few seconds.
const SHORTEST_IDLE_MINUTES: f64 = 0.1;

/// A program that a user works in, such as a notebook. The job ends as succeeded after a time
/// without use. It is `exclusive`. Only with `command`, and with one worker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Interactive {
    /// Minutes without output, metric, use of CPU or GPU, and data of a remote session, after
    /// which the job ends; 0.1 to 10080.
    #[cfg_attr(feature = "schema", schema(minimum = 0.1, maximum = 10_080))]
    pub idle_minutes: f64,
}

impl Default for Interactive {
    fn default() -> Self {
        Self { idle_minutes: 60.0 }
    }
}

impl Interactive {
    /// Returns the milliseconds without use after which the job ends.
    #[must_use]
    pub fn idle_ms(&self) -> u64 {
        // The cast of a float saturates.
        (self.idle_minutes * 60_000.0) as u64
    }

    pub(super) fn check(&self, errors: &mut Errors, spec: &JobSpec) {
        let range = SHORTEST_IDLE_MINUTES..=LONGEST_IDLE_MINUTES;
        errors.check(
            "interactive.idle_minutes",
            &self.idle_minutes,
            range.contains(&self.idle_minutes),
            "0.1 to 10080 minutes (a week)",
        );
        errors.check(
            "interactive",
            &"given without command",
            spec.command.is_some(),
            "left out with engine: only a program of your own can be interactive",
        );
        let (workers, shards) = (spec.scale.workers, spec.ps_shards().max);
        errors.check(
            "scale.workers",
            &format!(
                "{} to {}, with {shards} PS shards",
                workers.min, workers.max
            ),
            (workers.min, workers.max) == (1, 1) && (spec.command.is_none() || shards == 0),
            "1 to 1 and no parameter servers with interactive",
        );
        errors.check(
            "verdicts.hang_s",
            &spec.verdicts.hang_s.unwrap_or_default(),
            spec.verdicts.hang_s.is_none(),
            "left out with interactive: the job ends without use and never restarts for it",
        );
    }
}

impl JobSpec {
    /// Whether the job is kept out of time slicing, packing and defragmentation: its document says
    /// so, or a user works in its program.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.exclusive || self.interactive.is_some()
    }

    /// Returns the milliseconds without use after which the job ends; `None` unless it is
    /// interactive.
    #[must_use]
    pub fn idle_limit_ms(&self) -> Option<u64> {
        self.interactive.map(|interactive| interactive.idle_ms())
    }
}
