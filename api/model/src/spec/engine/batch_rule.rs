//! Rule by which the batch of an update changes during a job.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Rule by which the batch of an update changes during a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum BatchRule {
    /// The batch stays; each worker's part of it changes.
    #[default]
    Constant,
    /// Each worker's part stays and the batch grows with the workers: it is `batch` with
    /// `scale.workers.min` workers. The learning rate of an update is multiplied by its gain
    /// (AdaScale, Johnson et al., ICML 2020). The gain is the number of steps with `batch` examples
    /// that the update is worth by the measured gradient noise. It lies between 1 and the growth of
    /// the batch. Steps count gains, so schedules and `stop` keep their meaning. Only with
    /// `all_reduce` without averaging and compression, and with `sgd`.
    #[serde(rename = "adascale")]
    AdaScale,
    /// The batch lies between `batch` and `max_batch`, with any number of workers. The coordinator
    /// (rank 0 worker) chooses the batch with the best goodput: updates per second times their gain
    /// (Pollux, Qiao et al., OSDI 2021). Learning rate and steps follow the gain as with
    /// `adascale`, under the same conditions.
    Goodput,
}

impl BatchRule {
    pub(super) fn is_constant(&self) -> bool {
        *self == Self::Constant
    }

    /// Whether an update counts for its gain in steps, which is also the factor on its learning
    /// rate.
    #[must_use]
    pub fn counts_gains(self) -> bool {
        match self {
            Self::Constant => false,
            Self::AdaScale | Self::Goodput => true,
        }
    }

    /// Returns the examples of the first update of `workers` workers; `batch` is that of `least`
    /// workers.
    #[must_use]
    pub fn examples(self, batch: u32, least: u32, workers: u32) -> u32 {
        let (least, workers) = (u64::from(least.max(1)), u64::from(workers));
        match self {
            Self::Constant | Self::Goodput => batch,
            Self::AdaScale => {
                let grown = u64::from(batch) * workers.max(least) / least;
                u32::try_from(grown).unwrap_or(u32::MAX)
            }
        }
    }
}

impl fmt::Display for BatchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Constant => "constant",
            Self::AdaScale => "adascale",
            Self::Goodput => "goodput",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_grows_with_workers_under_adascale() {
        assert_eq!(BatchRule::Constant.examples(128, 2, 5), 128);
        assert_eq!(BatchRule::Goodput.examples(128, 2, 5), 128);
        let grown = [1, 2, 3, 4, 5].map(|workers| BatchRule::AdaScale.examples(128, 2, workers));
        assert_eq!(grown, [128, 128, 192, 256, 320]);
        assert_eq!(BatchRule::AdaScale.examples(100, 3, 4), 133);
        assert_eq!(BatchRule::AdaScale.examples(u32::MAX, 1, 9), u32::MAX);
    }
}
