//! Recorded training that the program `muster-played-task` plays: the number of steps, and the
//! seconds of a step on each placement.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Environment variable of the executor that names the GPU kind of its slots.
pub const KIND: &str = "MUSTER_PLAYED_KIND";

/// File of this name in the checkpoint folder contains the number of done steps.
pub const CHECKPOINT: &str = "step";

/// Recorded training. All times are seconds of the workload, not real ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlayedTraining {
    pub steps: u64,
    /// Seconds from the placement of the tasks to the first step.
    pub start_s: f64,
    /// Minimum seconds between two progress lines.
    pub line_s: f64,
    /// Seconds of a step: by GPU kind, by nodes less one, then by workers less one.
    pub step_s: BTreeMap<String, Vec<Vec<f64>>>,
}

impl PlayedTraining {
    /// Returns the seconds of a step; `None` for a placement outside the record.
    #[must_use]
    pub fn step_s(&self, kind: &str, nodes: usize, workers: usize) -> Option<f64> {
        let row = self.step_s.get(kind)?.get(nodes.checked_sub(1)?)?;
        row.get(workers.checked_sub(1)?).copied()
    }

    /// Returns the next step to log after `step`, for steps of `step_s` seconds.
    #[must_use]
    pub fn next_line(&self, step: u64, step_s: f64) -> u64 {
        // Steps between two lines are far inside a u64.
        let apart = (self.line_s / step_s).ceil().max(1.0) as u64;
        self.steps.min(step + apart)
    }
}

#[cfg(test)]
mod tests {
    use super::{BTreeMap, PlayedTraining};

    fn training() -> PlayedTraining {
        PlayedTraining {
            steps: 100,
            start_s: 30.0,
            line_s: 30.0,
            step_s: BTreeMap::from([("t4".to_owned(), vec![vec![8.0, 4.0], vec![9.0, 5.0]])]),
        }
    }

    #[test]
    fn step_time_is_that_of_kind_nodes_and_workers() {
        let training = training();
        assert_eq!(training.step_s("t4", 1, 1), Some(8.0));
        assert_eq!(training.step_s("t4", 2, 2), Some(5.0));
        assert_eq!(training.step_s("a100", 1, 1), None);
        assert_eq!(training.step_s("t4", 3, 1), None);
        assert_eq!(training.step_s("t4", 1, 3), None);
        assert_eq!(training.step_s("t4", 0, 1), None);
    }

    #[test]
    fn lines_are_at_steps_and_the_last_step_is_logged() {
        let training = training();
        assert_eq!(training.next_line(0, 8.0), 4);
        assert_eq!(training.next_line(4, 100.0), 5);
        assert_eq!(training.next_line(98, 8.0), 100);
    }
}
