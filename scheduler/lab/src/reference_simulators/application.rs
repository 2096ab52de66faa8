//! One application of the published profiles: its batch limits, the work of its epochs and its
//! gradient noise.

use super::throughput::ThroughputProfile;
use muster_sim::scenario::GradientStatistics;
use std::collections::BTreeMap;

/// True behaviour of an application. Only the simulator reads it; a policy receives measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct Application {
    pub name: String,
    /// Initial batch size; work is counted in its steps.
    pub init_batch: u32,
    pub max_batch: u32,
    /// Smallest and largest number of examples that a GPU takes at once.
    pub min_local: u32,
    pub max_local: u32,
    pub epochs: u32,
    /// Epochs by batch size, ascending.
    pub validation: BTreeMap<u32, Vec<Epoch>>,
    /// Measurements by GPU kind.
    pub measured: Vec<ThroughputProfile>,
}

/// Measurements at the end of an epoch with one batch size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epoch {
    /// Work done so far, in steps of the initial batch size.
    pub progress: f64,
    /// Steps done so far.
    pub iteration: f64,
    pub noise: GradientStatistics,
}

impl Application {
    /// Work until `epoch` epochs are done: the minimum over the measured batch sizes.
    #[must_use]
    pub fn progress_until(&self, epoch: u32) -> f64 {
        let Some(row) = epoch.checked_sub(1) else {
            return 0.0;
        };
        let rows = self.validation.values();
        rows.filter_map(|epochs| epochs.get(row as usize))
            .map(|epoch| epoch.progress)
            .fold(f64::INFINITY, f64::min)
    }

    /// Work of the whole run as the user declares it: epochs times steps of the initial batch size.
    #[must_use]
    pub fn declared_work(&self) -> f64 {
        let at_init = self.validation.get(&self.init_batch);
        let declared =
            at_init.and_then(|epochs| epochs.get(self.epochs.saturating_sub(1) as usize));
        declared.map_or_else(|| self.progress_until(self.epochs), |epoch| epoch.iteration)
    }

    /// Gradient statistics in an epoch, linear between the measured batch sizes.
    #[must_use]
    pub fn noise(&self, batch: f64, epoch: u32) -> GradientStatistics {
        let (variance, square) = (
            self.between(batch, epoch, |row| row.noise.variance),
            self.between(batch, epoch, |row| row.noise.square),
        );
        GradientStatistics { square, variance }
    }

    /// Steps with a batch size until `epochs` epochs are done.
    #[must_use]
    pub fn iterations(&self, batch: f64, epochs: u32) -> f64 {
        epochs
            .checked_sub(1)
            .map_or(0.0, |row| self.between(batch, row, |epoch| epoch.iteration))
    }

    fn between(&self, batch: f64, row: u32, value: impl Fn(&Epoch) -> f64) -> f64 {
        let below = self
            .validation
            .iter()
            .rfind(|&(&size, _)| f64::from(size) <= batch);
        let above = self
            .validation
            .iter()
            .find(|&(&size, _)| f64::from(size) >= batch);
        match (below, above) {
            (Some((&low, left)), Some((&high, right))) if low < high => {
                let share = (batch - f64::from(low)) / f64::from(high - low);
                let (left, right) = (value_at(left, row, &value), value_at(right, row, &value));
                left + (right - left) * share
            }
            (Some((_, only)), _) | (None, Some((_, only))) => value_at(only, row, &value),
            (None, None) => 0.0,
        }
    }
}

/// Value of an epoch; of the last one if there are fewer.
fn value_at(epochs: &[Epoch], row: u32, value: impl Fn(&Epoch) -> f64) -> f64 {
    let last = epochs.len().saturating_sub(1);
    epochs.get(last.min(row as usize)).map_or(0.0, value)
}
