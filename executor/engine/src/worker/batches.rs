//! A worker's own examples of each step.

use crate::data::{Dataset, Examples, GlobalBatches, OrderError, TargetsMut, Task, slice};
use crate::model::{Batch, Draw, Network, Targets};
use std::ops::Range;

/// Memory for some examples and what the network should say of them.
#[derive(Debug)]
pub struct Buffers {
    inputs: Vec<f32>,
    answers: Answers,
    /// Numbers per example.
    input_len: usize,
    target_len: usize,
}

#[derive(Debug)]
enum Answers {
    Classes(Vec<u32>),
    Values(Vec<f32>),
    /// The inputs themselves: the network is an autoencoder.
    Inputs,
}

impl Buffers {
    /// For up to `examples` examples of `data`, as `network` reads them.
    #[must_use]
    pub fn new(network: &Network, data: &Dataset, examples: usize) -> Self {
        let (input_len, target_len) = (data.input.len(), network.targets());
        let answers = match data.task {
            _ if network.wants_classes() => Answers::Classes(vec![0; examples * target_len]),
            Task::Classify { .. } => Answers::Inputs,
            Task::Regress { .. } => Answers::Values(vec![0.0; examples * target_len]),
        };
        Self {
            inputs: vec![0.0; examples * input_len],
            answers,
            input_len,
            target_len,
        }
    }

    /// The examples at `indices`, for the network.
    pub fn load(&mut self, examples: &Examples, indices: &[u32], draw: Draw) -> Batch<'_> {
        let count = indices.len();
        let (inputs, len) = (
            &mut self.inputs[..count * self.input_len],
            count * self.target_len,
        );
        let targets = match &mut self.answers {
            Answers::Classes(classes) => {
                examples.fill(indices, inputs, &mut classes[..len]);
                Targets::Classes(&classes[..len])
            }
            Answers::Values(values) => {
                examples.fill(indices, inputs, TargetsMut::Values(&mut values[..len]));
                Targets::Values(&values[..len])
            }
            Answers::Inputs => {
                examples.fill_inputs(indices, inputs);
                Targets::Values(&*inputs)
            }
        };
        Batch {
            inputs: &*inputs,
            targets,
            draw,
        }
    }
}

/// One worker's part of each batch.
#[derive(Debug)]
pub struct Batches {
    global: GlobalBatches,
    part: Range<usize>,
    seed: u64,
    buffers: Buffers,
}

impl Batches {
    /// For worker `rank` of `workers`.
    #[must_use]
    pub fn new(
        global: GlobalBatches,
        seed: u64,
        rank: usize,
        workers: usize,
        buffers: impl FnOnce(usize) -> Buffers,
    ) -> Self {
        let part = slice(global.batch(), rank, workers);
        Self {
            buffers: buffers(part.len()),
            part,
            seed,
            global,
        }
    }

    /// The same batches, as worker `rank` of another number of workers.
    pub fn recut(&mut self, rank: usize, workers: usize, buffers: impl FnOnce(usize) -> Buffers) {
        let part = slice(self.global.batch(), rank, workers);
        if part.len() != self.part.len() {
            self.buffers = buffers(part.len());
        }
        self.part = part;
    }

    /// Examples of each step.
    #[must_use]
    pub fn examples(&self) -> usize {
        self.part.len()
    }

    /// The part of `step`.
    pub fn load(&mut self, examples: &Examples, step: u64) -> Batch<'_> {
        let draw = Draw {
            seed: self.seed,
            step,
            first: self.part.start as u64,
        };
        let indices = &self.global.indices(step)[self.part.clone()];
        self.buffers.load(examples, indices, draw)
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
