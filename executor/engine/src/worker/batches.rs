//! A worker's own examples of each step.

use crate::data::{Examples, GlobalBatches, OrderError, slice};
use std::ops::Range;

/// Fills the buffers of one worker's part of a batch.
#[derive(Debug)]
pub struct Batches {
    global: GlobalBatches,
    part: Range<usize>,
    /// Examples of the part × numbers of an image.
    pub images: Vec<f32>,
    pub labels: Vec<u8>,
}

impl Batches {
    /// For worker `rank` of `workers`; `image_len` in numbers.
    pub fn new(
        global: GlobalBatches,
        batch: usize,
        rank: usize,
        workers: usize,
        image_len: usize,
    ) -> Self {
        let part = slice(batch, rank, workers);
        Self {
            images: vec![0.0; part.len() * image_len],
            labels: vec![0; part.len()],
            part,
            global,
        }
    }

    /// Loads the part of `step`.
    pub fn load(&mut self, examples: &Examples, step: u64) {
        let indices = &self.global.indices(step)[self.part.clone()];
        examples.fill(indices, &mut self.images, &mut self.labels);
    }

    /// Whole batches in an epoch.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        self.global.steps_per_epoch()
    }
}

/// The batches of a run over `examples` training examples.
///
/// # Errors
/// When not even one whole batch fits.
pub fn global(seed: u64, examples: usize, batch: usize) -> Result<GlobalBatches, OrderError> {
    GlobalBatches::new(seed, examples, batch)
}
