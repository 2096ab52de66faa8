//! Texts for language models. Tokens are bytes, so that every text has the same vocabulary of 256.

use super::error::DatasetError;
use super::examples::Examples;
use super::split::{SplitLimits, counts};
use std::fs;
use std::path::Path;

/// Number of different tokens.
pub(super) const VOCABULARY: usize = 256;

/// Reads the training and the test pieces. The test pieces are the last ones and not shuffled,
/// because adjacent pieces in the training split would reveal targets of the test split.
pub(super) fn load(
    path: &Path,
    length: usize,
    limits: SplitLimits,
) -> Result<(Examples, Examples), DatasetError> {
    let mut bytes = fs::read(path).map_err(DatasetError::open(path))?;
    let found = bytes.len().saturating_sub(1) / length.max(1);
    let (train, test) = counts(found, limits).ok_or_else(|| DatasetError::TooFew {
        path: path.to_owned(),
        found,
        train: limits.train.unwrap_or(0),
        test: limits.test.unwrap_or(0),
    })?;
    let tail = bytes[(found - test) * length..found * length + 1].to_vec();
    bytes.truncate(train * length + 1);
    Ok((Examples::text(bytes, length), Examples::text(tail, length)))
}
