//! A data set in memory: bytes as they are in the files, normalised only into the batch at hand.
//!
//! As bytes the whole set is a quarter of its size as floats, and filling a batch costs less than reading the floats would.

use super::idx::{IdxError, Images, read_images, read_labels};
use crate::model::InputShape;
use std::path::{Path, PathBuf};

/// The data sets that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Xiao, Rasul and Vollgraf, 2017: 28×28 grey pixels, 10 classes.
    FashionMnist,
    /// LeCun, Cortes and Burges: the same shape, handwritten digits.
    Mnist,
}

/// Use only the first so many examples of each split; more than there are means all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    pub train: Option<usize>,
    pub test: Option<usize>,
}

/// Mean and standard deviation of the training set's pixels, after division by 255.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalisation {
    pub mean: f32,
    pub std: f32,
}

/// A training and a test split of the same shape.
#[derive(Debug, Clone)]
pub struct Dataset {
    pub shape: InputShape,
    pub classes: usize,
    pub train: Examples,
    pub test: Examples,
}

/// Labelled images.
#[derive(Debug, Clone)]
pub struct Examples {
    pixels: Vec<u8>,
    labels: Vec<u8>,
    example_len: usize,
    /// Normalised value of each byte.
    table: [f32; 256],
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
}

impl Kind {
    /// Height and width of each image.
    const SIDE: usize = 28;

    /// Its folder under the root of all data sets.
    #[must_use]
    pub fn folder(self) -> &'static str {
        match self {
            Self::FashionMnist => "fashion-mnist",
            Self::Mnist => "mnist",
        }
    }

    #[must_use]
    pub fn classes(self) -> usize {
        10
    }

    #[must_use]
    pub fn shape(self) -> InputShape {
        InputShape {
            height: Self::SIDE,
            width: Self::SIDE,
            channels: 1,
        }
    }

    /// Fixed, not computed from what is loaded: a limit must not change how an image is seen.
    #[must_use]
    pub fn normalisation(self) -> Normalisation {
        let (mean, std) = match self {
            Self::FashionMnist => (0.2860, 0.3530),
            Self::Mnist => (0.1307, 0.3081),
        };
        Normalisation { mean, std }
    }
}

impl Dataset {
    /// Reads `<root>/<folder>/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]`.
    ///
    /// # Errors
    /// When a file is missing, damaged or does not fit the others; see [`DatasetError`].
    pub fn load(kind: Kind, root: &Path, limits: Limits) -> Result<Self, DatasetError> {
        let directory = root.join(kind.folder());
        Ok(Self {
            shape: kind.shape(),
            classes: kind.classes(),
            train: split(kind, &directory, "train", "train", limits.train)?,
            test: split(kind, &directory, "test", "t10k", limits.test)?,
        })
    }
}

fn split(
    kind: Kind,
    directory: &Path,
    split: &'static str,
    prefix: &str,
    limit: Option<usize>,
) -> Result<Examples, DatasetError> {
    if limit == Some(0) {
        return Err(DatasetError::EmptyLimit { split });
    }
    let images_path = find(directory, format!("{prefix}-images-idx3-ubyte"))?;
    let labels_path = find(directory, format!("{prefix}-labels-idx1-ubyte"))?;
    let images = read_images(&images_path).map_err(DatasetError::Read)?;
    let labels = read_labels(&labels_path, kind.classes()).map_err(DatasetError::Read)?;
    let Images {
        count,
        height,
        width,
        ..
    } = images;
    if (height, width) != (Kind::SIDE, Kind::SIDE) {
        let expected = Kind::SIDE;
        return Err(DatasetError::Size {
            split,
            height,
            width,
            expected,
        });
    }
    if count != labels.len() {
        return Err(DatasetError::Counts {
            images: images_path,
            image_count: count,
            labels: labels_path,
            label_count: labels.len(),
        });
    }
    let mut examples = Examples::new(images.pixels, labels, kind.shape(), kind.normalisation());
    examples.truncate(limit.unwrap_or(count));
    Ok(examples)
}

/// The compressed file comes first: it is the one that distributions ship.
fn find(directory: &Path, name: String) -> Result<PathBuf, DatasetError> {
    let candidates = [directory.join(format!("{name}.gz")), directory.join(&name)];
    candidates
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| DatasetError::Missing {
            directory: directory.to_owned(),
            name,
        })
}

impl Examples {
    /// # Panics
    /// When there is not one image of `shape` per label.
    #[must_use]
    pub fn new(
        pixels: Vec<u8>,
        labels: Vec<u8>,
        shape: InputShape,
        normalisation: Normalisation,
    ) -> Self {
        assert_eq!(
            pixels.len(),
            labels.len() * shape.len(),
            "one image per label"
        );
        let value = |byte: usize| (byte as f32 / 255.0 - normalisation.mean) / normalisation.std;
        Self {
            pixels,
            labels,
            example_len: shape.len(),
            table: std::array::from_fn(value),
        }
    }

    fn truncate(&mut self, count: usize) {
        self.labels.truncate(count);
        self.labels.shrink_to_fit();
        self.pixels.truncate(count * self.example_len);
        self.pixels.shrink_to_fit();
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Writes the normalised images and the labels of the examples at `indices`, in this order.
    ///
    /// # Panics
    /// When a buffer has the wrong length or an index is not below [`Self::len`].
    pub fn fill(&self, indices: &[u32], images: &mut [f32], labels: &mut [u32]) {
        assert_eq!(labels.len(), indices.len(), "one label per index");
        assert_eq!(
            images.len(),
            indices.len() * self.example_len,
            "one image per index"
        );
        let targets = images.chunks_exact_mut(self.example_len).zip(labels);
        for (&index, (image, label)) in indices.iter().zip(targets) {
            let index = index as usize;
            *label = u32::from(self.labels[index]);
            let pixels = &self.pixels[index * self.example_len..][..self.example_len];
            for (value, pixel) in image.iter_mut().zip(pixels) {
                *value = self.table[usize::from(*pixel)];
            }
        }
    }
}
