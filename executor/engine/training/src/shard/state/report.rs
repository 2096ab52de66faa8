//! Figures of completed steps, for the answers to workers.

use muster_comm::wire::metadata::{NoisePart, StepStats};

/// Figures since the last answer to the coordinator.
#[derive(Debug, Default)]
pub struct StepReport {
    /// Counts of completed steps under BSP, of applied pushes otherwise.
    pub stats: StepStats,
    /// Slice number in which all workers suspend after the step that was completed last.
    pub hold: u64,
    /// Newest noise measurement.
    pub noise: NoisePart,
}

impl StepReport {
    /// Returns the slice number; takes the counts if `to_chief`.
    pub fn take_stats(&mut self, to_chief: bool) -> StepStats {
        let stats = if to_chief {
            self.stats.take()
        } else {
            StepStats::default()
        };
        StepStats {
            hold: self.hold,
            ..stats
        }
    }

    /// Takes the noise measurement if `to_chief`.
    pub fn take_noise(&mut self, to_chief: bool) -> NoisePart {
        if to_chief {
            std::mem::take(&mut self.noise)
        } else {
            NoisePart::default()
        }
    }
}
