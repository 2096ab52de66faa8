//! How rows are divided between training and test.

use super::error::DatasetError;
use super::examples::Examples;
use super::order::deal;
use super::scaling::Scaling;
use std::path::PathBuf;

/// Use only the first so many examples of each split; more than there are means all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    pub train: Option<usize>,
    pub test: Option<usize>,
}

/// Rows of a whole data set, before they are dealt to the splits.
pub(super) trait Rows {
    fn len(&self) -> usize;

    /// The examples at `train` and at `test`; what is measured for their scaling is measured on the first.
    ///
    /// # Errors
    /// What can only be found out when they are read.
    fn split(
        self,
        train: &[u32],
        test: &[u32],
        scaling: &Scaling,
    ) -> Result<(Examples, Examples), DatasetError>;
}

/// The splits of `rows`: files are often sorted by class, so their order says nothing.
pub(super) fn dealt(
    rows: impl Rows,
    scaling: &Scaling,
    path: PathBuf,
    limits: Limits,
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

/// Numbers of training and test examples out of `found`; without a limit a tenth is for the test. None when there are too few.
pub(super) fn counts(found: usize, limits: Limits) -> Option<(usize, usize)> {
    let test = limits.test.unwrap_or(found / 10);
    let train = limits.train.unwrap_or(found.saturating_sub(test));
    (train > 0 && test > 0 && train + test <= found).then_some((train, test))
}
