//! Folders of image files. Files are decoded after the split into training and test, each directly
//! to its place. Memory never exceeds what training needs.

use super::error::DatasetError;
use super::examples::{ExampleTargets, Examples};
use super::scaling::FeatureScaling;
use super::split::DatasetRows;
use crate::model::ImageShape;
use image::imageops::FilterType;
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum size of all images in bytes, after resizing.
const MAX_BYTES: usize = 1 << 34;

/// Image files, and the class of each.
pub(super) struct ImageFolder {
    shape: ImageShape,
    files: Vec<(PathBuf, u32)>,
}

pub(super) fn read(
    path: &Path,
    shape: ImageShape,
    classes: usize,
) -> Result<ImageFolder, DatasetError> {
    let folders: Vec<PathBuf> = sorted(path)?
        .into_iter()
        .filter(|entry| entry.is_dir())
        .collect();
    DatasetError::promised(path, "folders of a class each", folders.len(), classes)?;
    let mut files = Vec::new();
    for (class, folder) in folders.iter().enumerate() {
        let images = sorted(folder)?.into_iter().filter(|file| is_image(file));
        files.extend(images.map(|file| (file, class as u32)));
    }
    if files.len().saturating_mul(shape.len()) > MAX_BYTES {
        let problem = format!(
            "{} images of {} bytes are more than {MAX_BYTES}",
            files.len(),
            shape.len()
        );
        return Err(DatasetError::content(path, problem));
    }
    Ok(ImageFolder { shape, files })
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    let entries = fs::read_dir(folder).map_err(DatasetError::open(folder))?;
    let entries: Result<Vec<PathBuf>, _> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect();
    let mut entries = entries.map_err(DatasetError::open(folder))?;
    entries.sort();
    Ok(entries)
}

fn is_image(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| {
        ["jpg", "jpeg", "png"]
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    })
}

/// Returns the pixels as height × width × channels.
fn pixels(file: &Path, shape: ImageShape) -> Result<Vec<u8>, DatasetError> {
    let image = image::open(file).map_err(|error| DatasetError::content(file, error))?;
    let (width, height) = (shape.width as u32, shape.height as u32);
    let image = if (image.width(), image.height()) == (width, height) {
        image
    } else {
        image.resize_exact(width, height, FilterType::Triangle)
    };
    Ok(match shape.channels {
        1 => image.into_luma8().into_raw(),
        _ => image.into_rgb8().into_raw(),
    })
}

impl ImageFolder {
    /// Returns the images at `indices`, decoded and resized, one after another.
    fn decoded(&self, indices: &[u32]) -> Result<Vec<u8>, DatasetError> {
        let each = self.shape.len();
        let mut out = vec![0; indices.len() * each];
        let places = out.par_chunks_mut(each).zip(indices);
        places.try_for_each(|(place, &index)| {
            let (file, _) = &self.files[index as usize];
            place.copy_from_slice(&pixels(file, self.shape)?);
            Ok(())
        })?;
        Ok(out)
    }

    fn targets_at(&self, indices: &[u32]) -> ExampleTargets {
        let classes = indices.iter().map(|&index| self.files[index as usize].1);
        ExampleTargets::Classes(classes.collect())
    }
}

impl DatasetRows for ImageFolder {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn split(
        self,
        train: &[u32],
        test: &[u32],
        scaling: &FeatureScaling,
    ) -> Result<(Examples, Examples), DatasetError> {
        let train_pixels = self.decoded(train)?;
        let channels = scaling.of_bytes(&train_pixels, self.shape.channels);
        let test_pixels = self.decoded(test)?;
        Ok((
            Examples::bytes(train_pixels, &channels, self.targets_at(train)),
            Examples::bytes(test_pixels, &channels, self.targets_at(test)),
        ))
    }
}
