//! What is known of a job's length and restarts from its past and from earlier jobs.

use serde::{Deserialize, Serialize};

/// Length of a job in seconds of training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingLength {
    /// Median of the length.
    pub middle_s: f64,
    /// Standard deviation of the logarithm; 0 if the length is a limit set by the owner.
    pub spread: f64,
    /// Seconds of it that are done and kept by a checkpoint.
    pub done_s: f64,
}

impl TrainingLength {
    /// Length of a job with a limit of `longest_s` seconds set by the owner.
    #[must_use]
    pub fn at_most(longest_s: f64, done_s: f64) -> Self {
        Self {
            middle_s: longest_s,
            spread: 0.0,
            done_s,
        }
    }
}

/// Steps and speed of earlier, succeeded jobs with the same document.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PastDuration {
    /// Median steps of a job.
    pub steps: f64,
    /// Standard deviation of the logarithm of `steps`.
    pub steps_spread: f64,
    /// Median steps per second of training, with start-up and evaluations.
    pub steps_per_s: f64,
    /// Standard deviation of the logarithm of `steps_per_s`.
    pub speed_spread: f64,
    /// Size at which these jobs trained longest.
    pub workers: u32,
    pub ps_shards: u32,
}

/// Sums over the stops and starts of a job, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restarts {
    /// Number of completed stops of the running job.
    pub stops: u32,
    /// Total seconds from the stop order to the end of the last task, including the last
    /// checkpoint.
    pub stop_s: f64,
    /// Number of starts in which all tasks came up.
    pub starts: u32,
    /// Total seconds from the start order until all tasks were up.
    pub start_s: f64,
    /// Number of resumptions from a checkpoint.
    pub resumed: u32,
    /// Steps that were done before a stop and repeated afterwards.
    pub lost_steps: f64,
}

impl Restarts {
    /// Adds further stops and starts.
    pub fn add(&mut self, more: &Self) {
        self.stops = self.stops.saturating_add(more.stops);
        self.stop_s += more.stop_s;
        self.starts = self.starts.saturating_add(more.starts);
        self.start_s += more.start_s;
        self.resumed = self.resumed.saturating_add(more.resumed);
        self.lost_steps += more.lost_steps;
    }
}
