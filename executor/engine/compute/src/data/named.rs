//! Data sets with a name, in the IDX files of their publishers.

use super::error::DatasetError;
use super::examples::{ExampleTargets, Examples, PixelNormalisation};
use super::idx::{IdxImages, read_images, read_labels};
use super::split::SplitLimits;
use crate::model::ImageShape;
use std::path::{Path, PathBuf};

/// Data sets with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedDataset {
    /// Xiao, Rasul and Vollgraf, 2017: 28×28 grey pixels, 10 classes.
    FashionMnist,
    /// LeCun, Cortes and Burges: handwritten digits of the same shape.
    Mnist,
}

impl NamedDataset {
    /// Height and width of each image.
    const SIDE: usize = 28;

    /// Folder below the data-set root.
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
    pub fn shape(self) -> ImageShape {
        ImageShape {
            height: Self::SIDE,
            width: Self::SIDE,
            channels: 1,
        }
    }

    /// Returns a fixed normalisation. It is not measured on the loaded images, because a limit on
    /// their number must not change it.
    #[must_use]
    pub fn normalisation(self) -> PixelNormalisation {
        let (mean, std) = match self {
            Self::FashionMnist => (0.2860, 0.3530),
            Self::Mnist => (0.1307, 0.3081),
        };
        PixelNormalisation { mean, std }
    }
}

/// Reads the training and the test split from
/// `<root>/<folder>/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]`.
pub(super) fn load(
    kind: NamedDataset,
    root: &Path,
    limits: SplitLimits,
) -> Result<(Examples, Examples), DatasetError> {
    let directory = root.join(kind.folder());
    Ok((
        split(kind, &directory, "train", "train", limits.train)?,
        split(kind, &directory, "test", "t10k", limits.test)?,
    ))
}

fn split(
    kind: NamedDataset,
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
    let IdxImages {
        count,
        height,
        width,
        ..
    } = images;
    if (height, width) != (NamedDataset::SIDE, NamedDataset::SIDE) {
        let expected = NamedDataset::SIDE;
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
    let kept = limit.unwrap_or(count).min(count);
    let (mut pixels, mut labels) = (images.pixels, labels);
    pixels.truncate(kept * kind.shape().len());
    labels.truncate(kept);
    let labels = labels.into_iter().map(u32::from).collect();
    Ok(Examples::bytes(
        pixels,
        &[kind.normalisation()],
        ExampleTargets::Classes(labels),
    ))
}

/// Finds a file. The compressed file has precedence, because distributions contain it.
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
