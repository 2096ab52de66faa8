//! A worker's own examples of each step.

use crate::data::{Examples, GlobalBatches, OrderError, slice};
use crate::model::{Batch, Draw, Targets};
use std::ops::Range;

/// Fills the buffers of one worker's part of a batch.
#[derive(Debug)]
pub struct Batches {
    global: GlobalBatches,
    part: Range<usize>,
    seed: u64,
    /// Examples of the part × numbers of an image.
    pub images: Vec<f32>,
    pub labels: Vec<u32>,
}

impl Batches {
    /// For worker `rank` of `workers`; `image_len` in numbers.
    pub fn new(
        global: GlobalBatches,
        seed: u64,
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
            seed,
            global,
        }
    }

    /// Loads the part of `step`.
    pub fn load(&mut self, examples: &Examples, step: u64) {
        let indices = &self.global.indices(step)[self.part.clone()];
        examples.fill(indices, &mut self.images, &mut self.labels);
    }

    /// What was loaded, for the network.
    #[must_use]
    pub fn at(&self, step: u64) -> Batch<'_> {
        let draw = Draw {
            seed: self.seed,
            step,
            first: self.part.start as u64,
        };
        Batch {
            inputs: &self.images,
            targets: Targets::Classes(&self.labels),
            draw,
        }
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
