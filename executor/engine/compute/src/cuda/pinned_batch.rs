//! Upload of batches to a device. Pinned memory holds all examples of a step, which are uploaded in
//! the parts that passes process.

use super::error::DeviceError;
use super::operation::pack_blocks;
use super::product::ElementType;
use super::queue::{DeviceQueue, THREADS, int};
use super::regions::{DRAW, MemoryLayout};
use super::session::DeviceSession;
use crate::loss::LossFunction;
use crate::model::network::Network;
use crate::model::{Batch, BatchTargets, ExampleShape};
use std::ops::Range;

/// Pinned memory for the examples of a step.
pub(super) struct PinnedBatch {
    inputs: &'static mut [u8],
    targets: &'static mut [u8],
    /// Random key of each part.
    draws: &'static mut [u8],
}

impl PinnedBatch {
    /// Allocates pinned memory for `max_step` examples, of which `max_batch` go through the network
    /// at once.
    pub(super) fn pin(
        queue: &mut dyn DeviceQueue,
        regions: &MemoryLayout,
        (max_batch, max_step): (usize, usize),
    ) -> Result<Self, DeviceError> {
        let [inputs, targets] = [regions.input_upload, regions.targets]
            .map(|region| region.bytes / max_batch * max_step);
        Ok(Self {
            inputs: queue.pin(inputs)?,
            targets: queue.pin(targets)?,
            draws: queue.pin(DRAW * max_step.div_ceil(max_batch))?,
        })
    }
}

impl DeviceSession {
    /// Allocates pinned memory for another step, which [`Self::fill_batch`] can fill.
    ///
    /// # Errors
    /// If the system does not provide the memory.
    pub(super) fn pin_batch(&mut self) -> Result<(), DeviceError> {
        let room = (self.max_batch, self.max_step);
        let batch = PinnedBatch::pin(&mut *self.queue, &self.regions, room)?;
        self.host.batches.push(batch);
        Ok(())
    }

    /// Uploads inputs, targets and the random key of one pass.
    ///
    /// # Panics
    /// If a token is not in the vocabulary, or a target is not a class; data sets are checked when
    /// they are read.
    pub(super) fn send_batch(&mut self, network: &Network, batch: &Batch<'_>) {
        self.fill_batch(network, batch, 0);
        let examples = batch.inputs.len() / network.input().len();
        self.upload_part(network, 0..examples, 0);
        self.cast_batch(network, examples);
    }

    /// Copies the batch into the pinned memory with index `number`.
    pub(super) fn fill_batch(&mut self, network: &Network, batch: &Batch<'_>, number: usize) {
        check(network, batch);
        let batch_memory = &mut self.host.batches[number];
        let inputs = bytemuck::cast_slice(batch.inputs);
        batch_memory.inputs[..inputs.len()].copy_from_slice(inputs);
        let targets: &[u8] = match batch.targets {
            BatchTargets::Classes(classes) => bytemuck::cast_slice(classes),
            BatchTargets::Values(values) => bytemuck::cast_slice(values),
        };
        batch_memory.targets[..targets.len()].copy_from_slice(targets);
        let parts = network.parts_of(self.max_batch, batch);
        for (out, part) in batch_memory.draws.chunks_exact_mut(DRAW).zip(parts) {
            let draw = part.draw;
            let draw = [draw.seed.rotate_left(32) ^ draw.step, draw.first];
            out.copy_from_slice(bytemuck::bytes_of(&draw));
        }
    }

    /// Uploads the examples `part`, which form one part, of the batch that [`Self::fill_batch`] has
    /// copied.
    pub(super) fn upload_part(&mut self, network: &Network, part: Range<usize>, number: usize) {
        let input_upload = self.at(self.regions.input_upload);
        let (to, draw) = (self.at(self.regions.targets), self.at(self.regions.draw));
        let [inputs, targets] = [network.input().len(), network.targets()]
            .map(|each| 4 * each * part.start..4 * each * part.end);
        let draws = DRAW * (part.start / self.max_batch);
        let batch_memory = &self.host.batches[number];
        self.queue
            .upload(&batch_memory.inputs[inputs], input_upload);
        self.queue.upload(&batch_memory.targets[targets], to);
        self.queue
            .upload(&batch_memory.draws[draws..][..DRAW], draw);
    }

    /// Converts uploaded inputs to the kind of values.
    pub(super) fn cast_batch(&mut self, network: &Network, examples: usize) {
        if self.is_cast(network) {
            let numbers = examples * network.input().len();
            let arguments = [
                self.at(self.regions.input_upload).into(),
                self.at(self.regions.input).into(),
                int(numbers),
            ];
            let blocks = pack_blocks(numbers);
            self.queue.launch("cast_in", blocks, THREADS, &arguments);
        }
    }

    /// Whether inputs are converted. Tokens stay f32, because bf16 cannot represent all whole
    /// numbers above 256.
    pub(super) fn is_cast(&self, network: &Network) -> bool {
        self.kind != ElementType::F32 && !matches!(network.input(), ExampleShape::Tokens { .. })
    }
}

fn check(network: &Network, batch: &Batch<'_>) {
    if let ExampleShape::Tokens { vocabulary, .. } = network.input() {
        for &token in batch.inputs {
            let is_known = (token as usize) < vocabulary && token as usize as f32 == token;
            assert!(is_known, "token {token} of a vocabulary of {vocabulary}");
        }
    }
    if let (LossFunction::CrossEntropy { classes }, BatchTargets::Classes(labels)) =
        (network.loss, batch.targets)
    {
        for &label in labels {
            assert!((label as usize) < classes, "class {label} of {classes}");
        }
    }
}
