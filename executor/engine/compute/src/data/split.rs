//! Division of rows between training and test.

use super::error::DatasetError;
use super::examples::Examples;
use super::order::deal;
use super::scaling::FeatureScaling;
use std::path::PathBuf;

/// Maximum number of examples of each split. For a data set with a name, a limit above the size
/// selects all examples; for other sources it is an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SplitLimits {
    pub train: Option<usize>,
    pub test: Option<usize>,
}

/// Rows of a whole data set, before they are distributed to the splits.
pub(super) trait DatasetRows {
    fn len(&self) -> usize;

    /// Returns the examples at `train` and at `test`. Scaling is measured on the training examples.
    ///
    /// # Errors
    /// Errors that appear only when rows are read.
    fn split(
        self,
        train: &[u32],
        test: &[u32],
        scaling: &FeatureScaling,
    ) -> Result<(Examples, Examples), DatasetError>;
}

/// Distributes `rows` to the splits in a shuffled order, because files are often sorted by class.
pub(super) fn dealt(
    rows: impl DatasetRows,
    scaling: &FeatureScaling,
    path: PathBuf,
    limits: SplitLimits,
) -> Result<(Examples, Examples), DatasetError> {
    let found = rows.len();
    let (train, test) = counts(found, limits).ok_or_else(|| DatasetError::TooFew {
        path,
        found,
        train: limits.train.unwrap_or(0),
        test: limits.test.unwrap_or(0),
    })?;
    let order = deal(found);
    rows.split(&order[..train], &order[train..train + test], scaling)
}

/// Returns the numbers of training and test examples out of `found`; without a limit a tenth is for
/// the test. Returns `None` if there are too few rows.
pub(super) fn counts(found: usize, limits: SplitLimits) -> Option<(usize, usize)> {
    let test = limits.test.unwrap_or(found / 10);
    let train = limits.train.unwrap_or(found.saturating_sub(test));
    (train > 0 && test > 0 && train + test <= found).then_some((train, test))
}
