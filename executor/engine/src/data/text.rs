//! Texts for language models: bytes, so that every text has the same 256 tokens and none is foreign.

use super::error::DatasetError;
use super::examples::Examples;
use super::split::{Limits, counts};
use std::fs;
use std::path::Path;

/// Tokens there are.
pub(super) const VOCABULARY: usize = 256;

/// The test pieces are the last ones: a text's pieces follow from one another, and dealt ones would tell the test's answers in training.
pub(super) fn load(
    path: &Path,
    length: usize,
    limits: Limits,
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
