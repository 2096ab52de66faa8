//! Predicted effect of the batch that a job's coordinator chooses.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Factor from which one decimal of it suffices.
const COARSE: f64 = 1.1;

/// Batch with the most progress at the size and place of a job, as a round predicted it for the
/// beginning of the remaining work. The coordinator may choose another one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PredictedBatch {
    /// Batch in examples over all workers.
    pub batch: u32,
    /// Smallest batch of the job (`engine.batch`). A step is an update with it.
    pub smallest_batch: u32,
    /// Progress in steps per second with `batch`.
    pub steps_per_s: f64,
    /// Progress in steps per second with `smallest_batch`.
    pub smallest_steps_per_s: f64,
}

impl PredictedBatch {
    /// Returns the progress with the batch over that with the smallest one; at least 1.
    #[must_use]
    pub fn speedup(&self) -> f64 {
        self.steps_per_s / self.smallest_steps_per_s
    }
}

impl fmt::Display for PredictedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (batch, smallest, times) = (self.batch, self.smallest_batch, self.speedup());
        if batch <= smallest {
            return write!(
                f,
                "batch {smallest}: no larger one makes more progress (predicted)"
            );
        }
        let decimals = if times < COARSE { 2 } else { 1 };
        write!(
            f,
            "batch {batch} instead of {smallest}: {times:.decimals$} times the progress (predicted)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(batch: u32, steps_per_s: f64) -> String {
        let predicted = PredictedBatch {
            batch,
            smallest_batch: 128,
            steps_per_s,
            smallest_steps_per_s: 10.0,
        };
        predicted.to_string()
    }

    #[test]
    fn predicted_batch_is_one_sentence() {
        let expected = [
            "batch 512 instead of 128: 1.8 times the progress (predicted)",
            "batch 140 instead of 128: 1.04 times the progress (predicted)",
            "batch 128: no larger one makes more progress (predicted)",
        ];
        assert_eq!(
            [text(512, 18.0), text(140, 10.4), text(128, 10.0)],
            expected
        );
    }
}
