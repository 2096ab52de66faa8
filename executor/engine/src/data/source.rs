//! Where a data set comes from, what is promised of it, and whether its files keep the promise.
//!
//! Shapes, classes and the numbers of examples are promised by the job's document: PS shards lay networks out and the scheduler
//! counts epochs without ever opening a file. What the files hold is checked against it.

use super::error::DatasetError;
use super::examples::{Examples, Task};
use super::known::{self, Kind};
use super::scaling::Scaling;
use super::split::{Limits, dealt};
use super::{arrays, folder, table, text};
use crate::model::{Input, InputShape};
use std::path::{Path, PathBuf};

/// A data set by its files, which lie below the root of all data sets.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Known by name.
    Known(Kind),
    /// A CSV file with a header: one column is the target, all others are numbers.
    Table {
        path: PathBuf,
        target: String,
        columns: usize,
        task: Task,
        scaling: Scaling,
    },
    /// Two arrays of one file (`.npz`, `.safetensors`) or of two files in one folder (`<name>.npy`), the examples along the first
    /// dimension.
    Arrays {
        path: PathBuf,
        inputs: String,
        targets: String,
        input: Input,
        task: Task,
        /// `None` is as their type says: of images that are bytes measured, else none.
        scaling: Option<Scaling>,
    },
    /// A text, read as bytes, in pieces of `length`; the network says each next byte.
    Text { path: PathBuf, length: usize },
    /// A folder of JPEG and PNG files in one folder per class, which are numbered in the order of their names. Images are resized to
    /// `shape`, which has 1 or 3 channels.
    Images {
        path: PathBuf,
        shape: InputShape,
        classes: usize,
        scaling: Scaling,
    },
}

/// A training and a test split of the same shape.
#[derive(Debug, Clone)]
pub struct Dataset {
    pub input: Input,
    pub task: Task,
    pub train: Examples,
    pub test: Examples,
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
                scaling,
            } => {
                let path = root.join(path);
                let table = table::read(&path, target, *columns, *task)?;
                dealt(table, scaling, path, limits)?
            }
            Source::Arrays {
                path,
                inputs,
                targets,
                input,
                task,
                scaling,
            } => {
                let path = root.join(path);
                let arrays = arrays::read(&path, inputs, targets, *input, *task)?;
                let scaling = scaling.clone().unwrap_or(arrays.usual_scaling());
                dealt(arrays, &scaling, path, limits)?
            }
            Source::Text { path, length } => text::load(&root.join(path), *length, limits)?,
            Source::Images {
                path,
                shape,
                classes,
                scaling,
            } => {
                let path = root.join(path);
                let images = folder::read(&path, *shape, *classes)?;
                dealt(images, scaling, path, limits)?
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
