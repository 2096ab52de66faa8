//! Where a data set comes from, what is promised of it, and whether its files keep the promise.
//!
//! Shapes, classes and the numbers of examples are promised by the job's document: PS shards lay networks out and the scheduler
//! counts epochs without ever opening a file. What the files hold is checked against it.

use super::examples::Examples;
use super::idx::IdxError;
use super::known::{self, Kind};
use super::order::deal;
use super::{arrays, folder, table, text};
use crate::model::{Input, InputShape};
use std::io;
use std::path::{Path, PathBuf};

/// A data set by its files, which lie below the root of all data sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Known by name.
    Known(Kind),
    /// A CSV file with a header: one column is the target, all others are numbers.
    Table {
        path: PathBuf,
        target: String,
        columns: usize,
        task: Task,
    },
    /// Two arrays of one file (`.npz`, `.safetensors`) or of two files in one folder (`<name>.npy`), the examples along the first
    /// dimension.
    Arrays {
        path: PathBuf,
        inputs: String,
        targets: String,
        input: Input,
        task: Task,
    },
    /// A text, read as bytes, in pieces of `length`; the network says each next byte.
    Text { path: PathBuf, length: usize },
    /// A folder of JPEG and PNG files in one folder per class, which are numbered in the order of their names. Images are resized to
    /// `shape`, which has 1 or 3 channels.
    Images {
        path: PathBuf,
        shape: InputShape,
        classes: usize,
    },
}

/// What is to be learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// One of so many classes.
    Classify { classes: usize },
    /// So many numbers.
    Regress { values: usize },
}

/// Use only the first so many examples of each split; more than there are means all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    pub train: Option<usize>,
    pub test: Option<usize>,
}

/// A training and a test split of the same shape.
#[derive(Debug, Clone)]
pub struct Dataset {
    pub input: Input,
    pub task: Task,
    pub train: Examples,
    pub test: Examples,
}

/// Why a data set cannot be used.
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

/// Rows of a whole data set, before they are dealt to the splits.
pub(super) trait Rows {
    fn len(&self) -> usize;

    /// The examples at `train` and at `test`; what is measured for normalisation is measured on the first.
    fn split(self, train: &[u32], test: &[u32]) -> (Examples, Examples);
}

impl Source {
    /// What a network reads of it.
    #[must_use]
    pub fn input(&self) -> Input {
        match *self {
            Self::Known(kind) => Input::Image(kind.shape()),
            Self::Table { columns, .. } => Input::Row { columns },
            Self::Arrays { input, .. } => input,
            Self::Text { length, .. } => Input::Tokens {
                length,
                vocabulary: text::VOCABULARY,
            },
            Self::Images { shape, .. } => Input::Image(shape),
        }
    }

    /// What a network says of it.
    #[must_use]
    pub fn task(&self) -> Task {
        match *self {
            Self::Known(kind) => Task::Classify {
                classes: kind.classes(),
            },
            Self::Table { task, .. } | Self::Arrays { task, .. } => task,
            Self::Text { .. } => Task::Classify {
                classes: text::VOCABULARY,
            },
            Self::Images { classes, .. } => Task::Classify { classes },
        }
    }
}

impl Dataset {
    /// Reads the files below `root`. Of a source that is not known by name, `limits` are the numbers of training and test examples,
    /// dealt from the rows in an order that is the same for every job; a text's test pieces are its last ones.
    ///
    /// # Errors
    /// When a file is missing, damaged or does not hold what is promised; see [`DatasetError`].
    pub fn load(source: &Source, root: &Path, limits: Limits) -> Result<Self, DatasetError> {
        for (split, limit) in [("train", limits.train), ("test", limits.test)] {
            if limit == Some(0) {
                return Err(DatasetError::EmptyLimit { split });
            }
        }
        let (train, test) = match source {
            Source::Known(kind) => known::load(*kind, root, limits)?,
            Source::Table {
                path,
                target,
                columns,
                task,
            } => {
                let path = root.join(path);
                dealt(table::read(&path, target, *columns, *task)?, path, limits)?
            }
            Source::Arrays {
                path,
                inputs,
                targets,
                input,
                task,
            } => {
                let path = root.join(path);
                dealt(
                    arrays::read(&path, inputs, targets, *input, *task)?,
                    path,
                    limits,
                )?
            }
            Source::Text { path, length } => text::load(&root.join(path), *length, limits)?,
            Source::Images {
                path,
                shape,
                classes,
            } => {
                let path = root.join(path);
                dealt(folder::read(&path, *shape, *classes)?, path, limits)?
            }
        };
        Ok(Self {
            input: source.input(),
            task: source.task(),
            train,
            test,
        })
    }

    /// Classes, or numbers to say.
    #[must_use]
    pub fn outputs(&self) -> usize {
        match self.task {
            Task::Classify { classes } => classes,
            Task::Regress { values } => values,
        }
    }
}

/// The splits of `rows`: files are often sorted by class, so their order says nothing.
fn dealt(
    rows: impl Rows,
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
    Ok(rows.split(&order[..train], &order[train..train + test]))
}

/// Numbers of training and test examples out of `found`; without a limit a tenth is for the test. None when there are too few.
pub(super) fn counts(found: usize, limits: Limits) -> Option<(usize, usize)> {
    let test = limits.test.unwrap_or(found / 10);
    let train = limits.train.unwrap_or(found.saturating_sub(test));
    (train > 0 && test > 0 && train + test <= found).then_some((train, test))
}

impl DatasetError {
    pub(super) fn open(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Open { path, source }
    }

    pub(super) fn content(path: &Path, problem: impl ToString) -> Self {
        Self::Content {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }

    /// # Errors
    /// When `found` is not as promised.
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
