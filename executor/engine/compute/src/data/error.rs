//! Errors of data sets.

use super::idx::IdxError;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// Reason why a data set cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    #[error("neither {name}.gz nor {name} is in {directory}", directory = .directory.display())]
    Missing { directory: PathBuf, name: String },
    #[error("cannot read a file of the data set")]
    Read(#[source] IdxError),
    #[error("{images} has {image_count} images, but {labels} has {label_count} labels", images = .images.display(), labels = .labels.display())]
    Counts {
        images: PathBuf,
        image_count: usize,
        labels: PathBuf,
        label_count: usize,
    },
    #[error(
        "the {split} images are {height}×{width} pixels; this data set has {expected}×{expected}"
    )]
    Size {
        split: &'static str,
        height: usize,
        width: usize,
        expected: usize,
    },
    #[error("the limit of {split} examples is 0")]
    EmptyLimit { split: &'static str },
    #[error("cannot read {path}", path = .path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path}: {problem}", path = .path.display())]
    Content { path: PathBuf, problem: String },
    #[error("{path} has {found} {what}; the document says {expected}", path = .path.display())]
    Promise {
        path: PathBuf,
        what: &'static str,
        found: usize,
        expected: usize,
    },
    #[error("{path} has {found} examples; {train} for training and {test} for the test are wanted", path = .path.display())]
    TooFew {
        path: PathBuf,
        found: usize,
        train: usize,
        test: usize,
    },
}

impl DatasetError {
    pub(super) fn open(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Open { path, source }
    }

    /// Converts the error of a file's reader.
    pub(super) fn unreadable<E: Display>(path: &Path) -> impl Fn(E) -> Self {
        move |error| Self::content(path, error)
    }

    pub(super) fn content(path: &Path, problem: impl ToString) -> Self {
        Self::Content {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }

    /// # Errors
    /// If `found` differs from the document's `expected`.
    pub(super) fn promised(
        path: &Path,
        what: &'static str,
        found: usize,
        expected: usize,
    ) -> Result<(), Self> {
        if found == expected {
            return Ok(());
        }
        Err(Self::Promise {
            path: path.to_owned(),
            what,
            found,
            expected,
        })
    }
}
