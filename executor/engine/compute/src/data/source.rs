//! Source of a data set, its declaration in the job document, and the check of its files.
//!
//! The job document declares shapes, classes and numbers of examples. PS shards lay out networks
//! and the scheduler counts epochs without opening a file. The content of the files is checked
//! against the declaration.

use super::error::DatasetError;
use super::examples::{Examples, LearningTask};
use super::named::{self, NamedDataset};
use super::scaling::FeatureScaling;
use super::split::{SplitLimits, dealt};
use super::{arrays, folder, table, text};
use crate::model::{ExampleShape, ImageShape};
use std::path::{Path, PathBuf};

/// Data set by its files, which are below the data-set root.
#[derive(Debug, Clone, PartialEq)]
pub enum DatasetSource {
    /// Data set with a name.
    Known(NamedDataset),
    /// CSV file with a header: one column is the target, all others are inputs.
    Table {
        path: PathBuf,
        target: String,
        columns: usize,
        task: LearningTask,
        scaling: FeatureScaling,
    },
    /// Two arrays of one file (`.npz`, `.safetensors`) or of two files in one folder
    /// (`<name>.npy`). The first dimension counts the examples.
    Arrays {
        path: PathBuf,
        inputs: String,
        targets: String,
        input: ExampleShape,
        task: LearningTask,
        /// `None` selects the default: measured for image bytes with class targets, else no
        /// scaling.
        scaling: Option<FeatureScaling>,
    },
    /// Text, read as bytes, in pieces of `length`; the network predicts each next byte.
    Text { path: PathBuf, length: usize },
    /// JPEG and PNG files in one folder per class; classes are numbered in the order of the
    /// folders' names. Images are resized to `shape`, which has 1 or 3 channels.
    Images {
        path: PathBuf,
        shape: ImageShape,
        classes: usize,
        scaling: FeatureScaling,
    },
}

/// Training and test split of the same shape.
#[derive(Debug, Clone)]
pub struct DatasetSplits {
    pub input: ExampleShape,
    pub task: LearningTask,
    pub train: Examples,
    pub test: Examples,
}

impl DatasetSource {
    /// Returns the input shape of a network for this source.
    #[must_use]
    pub fn input(&self) -> ExampleShape {
        match *self {
            Self::Known(kind) => ExampleShape::Image(kind.shape()),
            Self::Table { columns, .. } => ExampleShape::Row { columns },
            Self::Arrays { input, .. } => input,
            Self::Text { length, .. } => ExampleShape::Tokens {
                length,
                vocabulary: text::VOCABULARY,
            },
            Self::Images { shape, .. } => ExampleShape::Image(shape),
        }
    }

    /// Returns the kind of the targets.
    #[must_use]
    pub fn task(&self) -> LearningTask {
        match *self {
            Self::Known(kind) => LearningTask::Classify {
                classes: kind.classes(),
            },
            Self::Table { task, .. } | Self::Arrays { task, .. } => task,
            Self::Text { .. } => LearningTask::Classify {
                classes: text::VOCABULARY,
            },
            Self::Images { classes, .. } => LearningTask::Classify { classes },
        }
    }
}

impl DatasetSplits {
    /// Reads the files below `root`. For sources without a name, `limits` are the numbers of
    /// training and test examples. Rows are distributed to the splits in an order that is the same
    /// for every job; the test split of a text is its last pieces.
    ///
    /// # Errors
    /// If a file is missing, damaged or does not match the declaration; see [`DatasetError`].
    pub fn load(
        source: &DatasetSource,
        root: &Path,
        limits: SplitLimits,
    ) -> Result<Self, DatasetError> {
        for (split, limit) in [("train", limits.train), ("test", limits.test)] {
            if limit == Some(0) {
                return Err(DatasetError::EmptyLimit { split });
            }
        }
        let (train, test) = match source {
            DatasetSource::Known(kind) => named::load(*kind, root, limits)?,
            DatasetSource::Table {
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
            DatasetSource::Arrays {
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
            DatasetSource::Text { path, length } => text::load(&root.join(path), *length, limits)?,
            DatasetSource::Images {
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

    /// Returns the number of classes, or the number of target values.
    #[must_use]
    pub fn outputs(&self) -> usize {
        match self.task {
            LearningTask::Classify { classes } => classes,
            LearningTask::Regress { values } => values,
        }
    }
}
