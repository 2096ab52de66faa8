//! Examples in memory. Bytes are kept as in the files and normalised when a batch is filled.
//!
//! As bytes, a set of images takes a quarter of its size as floats, and filling a batch costs less
//! than reading the floats.

use super::augment::{ImageAugmentation, augment};
use crate::model::{ImageShape, RandomKey};
use std::sync::Arc;

/// Inputs and targets, example after example. Clones share them.
#[derive(Debug, Clone)]
pub struct Examples {
    len: usize,
    inputs: Arc<ExampleInputs>,
    targets: Arc<ExampleTargets>,
    /// Augmentations of training images, and the shape of the images.
    augment: Option<Arc<(Vec<ImageAugmentation>, ImageShape)>>,
}

#[derive(Debug)]
enum ExampleInputs {
    Bytes {
        bytes: Vec<u8>,
        /// Normalised value of each byte, by channel; the channels of a pixel are adjacent.
        tables: Vec<[f32; 256]>,
    },
    Numbers(Vec<f32>),
    /// The input of example `i` is the `length` bytes from `i · length` on; its target is the same
    /// range, shifted by one byte.
    Text {
        bytes: Vec<u8>,
        length: usize,
    },
}

/// Targets of the examples.
#[derive(Debug, Clone)]
pub enum ExampleTargets {
    /// One class per example.
    Classes(Vec<u32>),
    /// The same number of values for each example.
    Values(Vec<f32>),
    /// Next token at every position of a text.
    Next,
}

/// Kind of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LearningTask {
    /// One of `classes` classes.
    Classify { classes: usize },
    /// `values` real numbers.
    Regress { values: usize },
}

/// Destination of the targets of a batch.
#[derive(Debug)]
pub enum BatchTargetsMut<'a> {
    Classes(&'a mut [u32]),
    Values(&'a mut [f32]),
}

/// Mean and standard deviation of the training set's pixels, after division by 255.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PixelNormalisation {
    pub mean: f32,
    pub std: f32,
}

impl<'a> From<&'a mut [u32]> for BatchTargetsMut<'a> {
    fn from(classes: &'a mut [u32]) -> Self {
        Self::Classes(classes)
    }
}

impl<'a> From<&'a mut Vec<u32>> for BatchTargetsMut<'a> {
    fn from(classes: &'a mut Vec<u32>) -> Self {
        Self::Classes(classes)
    }
}

impl PixelNormalisation {
    /// Measures each channel of `bytes`; the channels of a pixel are adjacent. A channel without
    /// variation is only centred.
    #[must_use]
    pub fn measured(bytes: &[u8], channels: usize) -> Vec<Self> {
        let channels = (0..channels).map(|channel| {
            let mut counts = [0_u64; 256];
            for byte in bytes.iter().skip(channel).step_by(channels) {
                counts[usize::from(*byte)] += 1;
            }
            let total = counts.iter().sum::<u64>().max(1) as f64;
            let [mean, second_moment] = [1, 2].map(|power| {
                let terms = counts.iter().enumerate();
                let sum: f64 = terms
                    .map(|(byte, n)| *n as f64 * (byte as f64 / 255.0).powi(power))
                    .sum();
                sum / total
            });
            let variance = (second_moment - mean * mean).max(0.0);
            let std = if variance > 1e-12 {
                variance.sqrt()
            } else {
                1.0
            };
            Self {
                mean: mean as f32,
                std: std as f32,
            }
        });
        channels.collect()
    }

    fn table(self) -> [f32; 256] {
        std::array::from_fn(|byte| (byte as f32 / 255.0 - self.mean) / self.std)
    }
}

impl ExampleTargets {
    /// Returns the targets of the examples at `indices`; there are `len` examples in total.
    pub(super) fn at(&self, indices: &[u32], len: usize) -> Self {
        match self {
            Self::Classes(classes) => Self::Classes(gathered(classes, indices, 1)),
            Self::Values(values) => {
                Self::Values(gathered(values, indices, values.len() / len.max(1)))
            }
            Self::Next => Self::Next,
        }
    }
}

impl Examples {
    /// Returns the class of each example, if the examples have classes.
    #[must_use]
    pub fn classes(&self) -> Option<&[u32]> {
        match &*self.targets {
            ExampleTargets::Classes(classes) => Some(classes),
            ExampleTargets::Values(_) | ExampleTargets::Next => None,
        }
    }

    /// Examples from bytes, with one normalisation per channel.
    ///
    /// # Panics
    /// If bytes and targets are not of the same number of examples, or the targets are not classes.
    #[must_use]
    pub fn bytes(bytes: Vec<u8>, channels: &[PixelNormalisation], targets: ExampleTargets) -> Self {
        let tables = channels.iter().map(|channel| channel.table()).collect();
        let ExampleTargets::Classes(classes) = &targets else {
            panic!("bytes are images, and images have classes");
        };
        let len = classes.len();
        assert!(
            len == 0 || bytes.len().is_multiple_of(len),
            "one image per label"
        );
        let inputs = ExampleInputs::Bytes { bytes, tables };
        Self::of(len, inputs, targets)
    }

    /// Examples from `f32` inputs.
    ///
    /// # Panics
    /// If inputs or targets are not of `len` examples.
    #[must_use]
    pub fn numbers(len: usize, inputs: Vec<f32>, targets: ExampleTargets) -> Self {
        let count = match &targets {
            ExampleTargets::Classes(classes) => classes.len(),
            ExampleTargets::Values(values) => values.len(),
            ExampleTargets::Next => panic!("only a text has a next token"),
        };
        let mut lens = [inputs.len(), count].into_iter();
        assert!(
            len == 0 || lens.all(|numbers| numbers.is_multiple_of(len) && numbers > 0),
            "inputs and targets of {len} examples"
        );
        let inputs = ExampleInputs::Numbers(inputs);
        Self::of(len, inputs, targets)
    }

    /// Examples from a text, in pieces of `length` bytes. The last byte is only a target.
    #[must_use]
    pub fn text(bytes: Vec<u8>, length: usize) -> Self {
        let len = bytes.len().saturating_sub(1) / length;
        Self::of(
            len,
            ExampleInputs::Text { bytes, length },
            ExampleTargets::Next,
        )
    }

    fn of(len: usize, inputs: ExampleInputs, targets: ExampleTargets) -> Self {
        Self {
            len,
            inputs: Arc::new(inputs),
            targets: Arc::new(targets),
            augment: None,
        }
    }

    /// Returns the same images with random augmentation, which [`Self::augment`] applies.
    #[must_use]
    pub fn augmented(self, kinds: Vec<ImageAugmentation>, shape: ImageShape) -> Self {
        let augment = (!kinds.is_empty()).then(|| Arc::new((kinds, shape)));
        Self { augment, ..self }
    }

    /// Augments the inputs of a part of a batch, with random numbers from `draw`. Has no effect on
    /// a test split.
    pub fn augment(&self, inputs: &mut [f32], draw: RandomKey) {
        if let Some(by) = &self.augment {
            augment(&by.0, by.1, inputs, draw);
        }
    }

    #[must_use]
    pub fn is_augmented(&self) -> bool {
        self.augment.is_some()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes the normalised inputs and the targets of the examples at `indices`, in this order.
    ///
    /// # Panics
    /// If a buffer has the wrong length or kind, or an index is not below [`Self::len`].
    pub fn fill<'a>(
        &self,
        indices: &[u32],
        inputs: &mut [f32],
        targets: impl Into<BatchTargetsMut<'a>>,
    ) {
        if !indices.is_empty() {
            self.fill_inputs(indices, inputs);
            self.fill_targets(indices, targets.into());
        }
    }

    /// Writes only the inputs, for a network whose targets are its inputs.
    ///
    /// # Panics
    /// See [`Self::fill`].
    pub fn fill_inputs(&self, indices: &[u32], inputs: &mut [f32]) {
        let each = inputs.len() / indices.len().max(1);
        assert_eq!(each * indices.len(), inputs.len(), "one input per index");
        for (index, input) in indices.iter().zip(inputs.chunks_exact_mut(each.max(1))) {
            assert!((*index as usize) < self.len, "an index of an example");
            self.fill_input(*index as usize, input);
        }
    }

    fn fill_input(&self, index: usize, input: &mut [f32]) {
        let each = input.len();
        match &*self.inputs {
            ExampleInputs::Bytes { bytes, tables } => {
                assert_eq!(bytes.len(), self.len * each, "numbers per image");
                let bytes = &bytes[index * each..][..each];
                if let [table] = tables.as_slice() {
                    for (value, byte) in input.iter_mut().zip(bytes) {
                        *value = table[usize::from(*byte)];
                    }
                    return;
                }
                let pixels = bytes.chunks_exact(tables.len());
                for (values, bytes) in input.chunks_exact_mut(tables.len()).zip(pixels) {
                    for ((value, byte), table) in values.iter_mut().zip(bytes).zip(tables) {
                        *value = table[usize::from(*byte)];
                    }
                }
            }
            ExampleInputs::Numbers(numbers) => {
                assert_eq!(numbers.len(), self.len * each, "numbers per example");
                input.copy_from_slice(&numbers[index * each..][..each]);
            }
            ExampleInputs::Text { bytes, length } => {
                assert_eq!(each, *length, "tokens per example");
                for (value, byte) in input.iter_mut().zip(&bytes[index * length..]) {
                    *value = f32::from(*byte);
                }
            }
        }
    }

    fn fill_targets(&self, indices: &[u32], targets: BatchTargetsMut<'_>) {
        match (&*self.targets, &*self.inputs, targets) {
            (ExampleTargets::Classes(classes), _, BatchTargetsMut::Classes(out)) => {
                assert_eq!(out.len(), indices.len(), "one label per index");
                for (label, index) in out.iter_mut().zip(indices) {
                    *label = classes[*index as usize];
                }
            }
            (ExampleTargets::Values(values), _, BatchTargetsMut::Values(out)) => {
                let each = targets_per_index(out.len(), indices);
                assert_eq!(values.len(), self.len * each, "values per example");
                for (out, index) in out.chunks_exact_mut(each).zip(indices) {
                    out.copy_from_slice(&values[*index as usize * each..][..each]);
                }
            }
            (
                ExampleTargets::Next,
                ExampleInputs::Text { bytes, length },
                BatchTargetsMut::Classes(out),
            ) => {
                assert_eq!(
                    targets_per_index(out.len(), indices),
                    *length,
                    "a target per position"
                );
                for (out, index) in out.chunks_exact_mut(*length).zip(indices) {
                    for (target, byte) in out.iter_mut().zip(&bytes[*index as usize * length + 1..])
                    {
                        *target = u32::from(*byte);
                    }
                }
            }
            (kept, _, asked) => panic!("targets of {kept:?} were asked for as {asked:?}"),
        }
    }
}

/// Divides `len` targets among the indices.
fn targets_per_index(len: usize, indices: &[u32]) -> usize {
    let each = len / indices.len();
    assert_eq!(each * indices.len(), len, "targets of each index");
    each
}

/// Returns the rows at `indices`, of `each` elements.
pub(super) fn gathered<T: Copy>(numbers: &[T], indices: &[u32], each: usize) -> Vec<T> {
    indices
        .iter()
        .flat_map(|index: &u32| numbers[*index as usize * each..][..each].iter().copied())
        .collect()
}
