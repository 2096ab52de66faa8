//! Passes over a network on a device: the counterpart of the CPU's [`crate::model::Workspace`].

use super::arenas::DeviceArenas;
use super::error::DeviceError;
use super::nccl::{NcclCommunicator, PollCallback};
use super::operation::{DevicePass, pack_blocks};
use super::pinned_batch::PinnedBatch;
use super::product::ElementType;
use super::queue::{DeviceAddress, DeviceQueue, THREADS, int};
use super::regions::{MemoryLayout, MemoryRegion};
use crate::layer::matrix::WriteMode;
use crate::loss::{LossFunction, StepLoss};
use crate::model::gradient_buffers::{BackwardBuffers, GradientBuffers, GradientTarget};
use crate::model::network::Network;
use crate::model::{Batch, ParameterBlock};
use std::ops::Range;

/// Alignment of the rows of scores, in elements.
const ALIGNMENT: usize = 8;

/// Callback that receives a range whose gradients are final, and all gradients.
pub(crate) type GradientCallback<'a> = &'a mut (dyn FnMut(Range<usize>, &[f32]) + Send);

/// Device memory of a network, and pinned host memory for uploads and downloads.
pub(crate) struct DeviceSession {
    pub(super) queue: Box<dyn DeviceQueue>,
    pub(super) kind: ElementType,
    pub(super) max_batch: usize,
    /// Maximum number of examples of a step; more than `max_batch` are processed in parts.
    pub(super) max_step: usize,
    pub(super) arenas: DeviceArenas,
    pub(super) regions: MemoryLayout,
    slots: GradientBuffers,
    padded: Option<ScorePadding>,
    /// `None` while the memory is released.
    pub(super) base: Option<DeviceAddress>,
    pub(super) host: PinnedMemory,
}

/// Pinned memory, which the queue keeps for its own lifetime.
pub(super) struct PinnedMemory {
    pub(super) parameters: &'static mut [u8],
    pub(super) gradients: &'static mut [u8],
    /// One, or several that are used alternately.
    pub(super) batches: Vec<PinnedBatch>,
    totals: &'static mut [u8],
    pub(super) factors: &'static mut [u8],
}

impl std::fmt::Debug for DeviceSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSession")
            .field("kind", &self.kind)
            .field("max_batch", &self.max_batch)
            .field("bytes", &self.regions.bytes)
            .finish_non_exhaustive()
    }
}

impl DeviceSession {
    /// Allocates memory for passes of up to `max_batch` examples and steps of up to `max_step`.
    /// `state` is the number of optimizer state elements per parameter, 0 if updates are made
    /// elsewhere.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub(crate) fn new(
        network: &Network,
        mut queue: Box<dyn DeviceQueue>,
        kind: ElementType,
        (max_batch, max_step): (usize, usize),
        state: usize,
    ) -> Result<Self, DeviceError> {
        assert!(max_batch > 0, "a session holds at least one example");
        let max_step = max_step.max(max_batch);
        let (padded, mut lens) = (ScorePadding::of(network), network.lens.clone());
        if let (Some(padded), Some(len)) = (padded, lens.last_mut()) {
            *len = network.targets() * padded.stride;
        }
        let slots = GradientBuffers::plan(&network.nodes, &lens);
        let zeros = padded.and_then(|padded| padded.zeros);
        let arenas = DeviceArenas::new(network.blocks(), kind, zeros);
        let places = (&slots, lens.as_slice());
        let regions = MemoryLayout::plan(
            &mut *queue,
            network,
            places,
            &arenas,
            (kind, max_batch),
            state,
        );
        let host = PinnedMemory {
            parameters: queue.pin(regions.parameters.bytes)?,
            gradients: queue.pin(regions.gradient_download.bytes)?,
            batches: vec![PinnedBatch::pin(
                &mut *queue,
                &regions,
                (max_batch, max_step),
            )?],
            totals: queue.pin(regions.totals.bytes)?,
            factors: queue.pin(regions.factors.bytes)?,
        };
        let mut session = Self {
            queue,
            kind,
            max_batch,
            max_step,
            arenas,
            regions,
            slots,
            padded,
            base: None,
            host,
        };
        session.take_memory()?;
        Ok(session)
    }

    /// Forward and backward pass over the parts of a batch, the counterpart of
    /// [`Network::loss_and_grad_telling`] on the CPU.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn loss_and_grad<'a>(
        &mut self,
        network: &Network,
        params: &[f32],
        parts: impl Iterator<Item = Batch<'a>>,
        grads: &mut [f32],
        ready: GradientCallback<'_>,
    ) -> Result<StepLoss, DeviceError> {
        self.send_parameters(network, params);
        let (mut total, mut write) = (StepLoss::default(), WriteMode::Overwrite);
        let mut parts = parts.peekable();
        while let Some(part) = parts.next() {
            // Only the gradients of the last part are complete; until then they stay on the device.
            let is_last = parts.peek().is_none();
            let mut ranges = Vec::new();
            self.send_batch(network, &part);
            let examples = part.inputs.len() / network.input().len();
            self.pass(network, examples, write, &mut |session, range| {
                if is_last {
                    session.collect(network, range.clone());
                    ranges.push(range);
                }
            });
            for (number, range) in ranges.into_iter().enumerate() {
                self.queue.wait(number);
                let bytes = &self.host.gradients[4 * range.start..4 * range.end];
                grads[range.clone()].copy_from_slice(bytemuck::cast_slice(bytes));
                ready(range, grads);
            }
            // The sum over all parts so far.
            total = self.receive_loss()?;
            write = WriteMode::Add;
        }
        Ok(total)
    }

    /// Forward pass.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn evaluate<'a>(
        &mut self,
        network: &Network,
        params: &[f32],
        parts: impl Iterator<Item = Batch<'a>>,
    ) -> Result<StepLoss, DeviceError> {
        self.send_parameters(network, params);
        self.evaluate_here(network, parts)
    }

    /// Forward pass with the parameters that are on the device.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn evaluate_here<'a>(
        &mut self,
        network: &Network,
        parts: impl Iterator<Item = Batch<'a>>,
    ) -> Result<StepLoss, DeviceError> {
        let mut total = StepLoss::default();
        for part in parts {
            self.send_batch(network, &part);
            let examples = part.inputs.len() / network.input().len();
            self.forward(network, examples, false);
            self.loss(network, examples, None);
            total += self.receive_loss()?;
        }
        Ok(total)
    }

    /// Releases all device memory. Has no effect if it is already released.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn give_memory(&mut self) -> Result<(), DeviceError> {
        if let Some(base) = self.base {
            self.queue.finish()?;
            self.queue.forget();
            self.queue.free(base);
            self.base = None;
        }
        Ok(())
    }

    /// Allocates the device memory of all regions; their content is undefined.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub(crate) fn take_memory(&mut self) -> Result<(), DeviceError> {
        if self.base.is_none() {
            let base = self.queue.allocate(self.regions.bytes)?;
            self.arenas.parameters = self.regions.parameters.at(base);
            self.arenas.weights = self.regions.weights.at(base);
            self.arenas.gradients = self.regions.gradients.at(base);
            self.base = Some(base);
            if self.padded.is_some_and(|padded| padded.zeros.is_some()) {
                // Zeros after the weight that has one row per class.
                let weights = self.regions.weights;
                self.queue.zero(weights.at(base), weights.bytes);
            }
        }
        Ok(())
    }

    pub(super) fn at(&self, region: MemoryRegion) -> DeviceAddress {
        region.at(self.base.expect("the session's memory is on the device"))
    }

    pub(super) fn send_parameters(&mut self, network: &Network, params: &[f32]) {
        self.host
            .parameters
            .copy_from_slice(bytemuck::cast_slice(params));
        let to = self.at(self.regions.parameters);
        self.queue.upload(self.host.parameters, to);
        self.lay_out(network);
    }

    /// Updates the copies of parameters that products read.
    pub(super) fn lay_out(&mut self, network: &Network) {
        let blocks = network.blocks().iter();
        let runs = self.arenas.runs(blocks, ParameterBlock::is_statistic);
        for (run, is_statistic) in runs {
            if is_statistic {
                continue;
            }
            let arguments = [
                self.arenas.parameter(run.start).into(),
                self.arenas.weight(run.start).into(),
                int(run.len()),
            ];
            let blocks = pack_blocks(run.len());
            self.queue.launch("cast_in", blocks, THREADS, &arguments);
        }
    }

    /// Forward pass, loss and backward pass. `done` is called with each operation's range of
    /// parameters once their gradients are enqueued. Loss and gradients are written, or added to
    /// those of the previous parts.
    pub(super) fn pass(
        &mut self,
        network: &Network,
        examples: usize,
        write: WriteMode,
        done: &mut dyn FnMut(&mut Self, Range<usize>),
    ) {
        self.forward(network, examples, true);
        self.loss(network, examples, Some(write));
        for (index, node) in network.nodes.iter().enumerate().rev() {
            let slots = std::mem::take(&mut self.slots);
            if let Some(step) = &slots.steps[index] {
                self.backward(network, examples, index, step, write);
                let range = node.op.kernel().parameters();
                if !range.is_empty() {
                    done(self, range);
                }
            }
            self.slots = slots;
        }
    }

    fn value(&self, network: &Network, value: usize) -> DeviceAddress {
        match value.checked_sub(1) {
            None if self.is_cast(network) => self.at(self.regions.input),
            None => self.at(self.regions.input_upload),
            Some(node) => self.at(self.regions.values[node]),
        }
    }

    fn slot(&self, slot: usize) -> DeviceAddress {
        self.at(self.regions.slots[slot])
    }

    fn output_stride(&self, network: &Network, index: usize) -> Option<usize> {
        let is_last = index + 1 == network.nodes.len();
        self.padded.filter(|_| is_last).map(|padded| padded.stride)
    }

    fn forward(&mut self, network: &Network, examples: usize, is_training: bool) {
        for (index, node) in network.nodes.iter().enumerate() {
            let inputs: Vec<DeviceAddress> = node
                .inputs
                .iter()
                .map(|&value: &usize| self.value(network, value))
                .collect();
            let lens: Vec<usize> = node.inputs.iter().map(|&v| network.lens[v]).collect();
            node.op.on_device().forward(&mut DevicePass {
                examples,
                is_training,
                kind: self.kind,
                draw: self.at(self.regions.draw),
                inputs: &inputs,
                input_lens: &lens,
                output: self.at(self.regions.values[index]),
                output_stride: self.output_stride(network, index),
                d_output: 0,
                d_inputs: &[],
                write: WriteMode::Overwrite,
                write_shared: WriteMode::Overwrite,
                saved: self.at(self.regions.saved[index]),
                scratch: self.at(self.regions.scratch),
                arenas: &self.arenas,
                queue: &mut *self.queue,
            });
        }
    }

    fn backward(
        &mut self,
        network: &Network,
        examples: usize,
        index: usize,
        step: &BackwardBuffers,
        write: WriteMode,
    ) {
        let node = &network.nodes[index];
        let inputs: Vec<DeviceAddress> = node
            .inputs
            .iter()
            .map(|&value: &usize| self.value(network, value))
            .collect();
        let lens: Vec<usize> = node.inputs.iter().map(|&v| network.lens[v]).collect();
        let targets = step.d_inputs.iter().map(|target| match *target {
            GradientTarget::None => None,
            GradientTarget::First(place) | GradientTarget::More { aside: place, .. } => {
                Some(self.slot(place))
            }
        });
        let d_inputs: Vec<Option<DeviceAddress>> = targets.collect();
        let kernel = node.op.kernel();
        node.op.on_device().backward(&mut DevicePass {
            examples,
            is_training: true,
            kind: self.kind,
            draw: self.at(self.regions.draw),
            inputs: &inputs,
            input_lens: &lens,
            output: self.at(self.regions.values[index]),
            output_stride: self.output_stride(network, index),
            d_output: self.slot(step.d_output),
            d_inputs: &d_inputs,
            write: network.write(index, kernel.parameters(), write),
            write_shared: network.write(index, kernel.shared(), write),
            saved: self.at(self.regions.saved[index]),
            scratch: self.at(self.regions.scratch),
            arenas: &self.arenas,
            queue: &mut *self.queue,
        });
        for (target, len) in step.d_inputs.iter().zip(lens) {
            if let GradientTarget::More { aside, sum } = *target {
                let (sum, part) = (self.slot(sum), self.slot(aside));
                let count = examples * len;
                let arguments = [sum.into(), part.into(), int(count)];
                let blocks = pack_blocks(count);
                self.queue.launch("add_to", blocks, THREADS, &arguments);
            }
        }
    }

    /// Computes the loss of the last value. `training` states how the loss is written. In training,
    /// the gradient of the value is stored for the backward pass.
    fn loss(&mut self, network: &Network, examples: usize, training: Option<WriteMode>) {
        let count = examples * network.outputs();
        let last = network.nodes.len() - 1;
        let step = self.slots.steps[last].as_ref();
        let step = step.filter(|_| training.is_some());
        let d = step.map_or(0, |step| self.slot(step.d_output));
        let [losses, rights] = [self.regions.losses, self.regions.rights].map(|r| self.at(r));
        let output = self.at(self.regions.values[last]);
        let targets = self.at(self.regions.targets);
        let parts = match network.loss {
            LossFunction::CrossEntropy { classes } => {
                let threads = match classes {
                    ..=64 => 32,
                    65..=4096 => 256,
                    _ => 512,
                };
                let stride = self.padded.map_or(classes, |padded| padded.stride);
                let rows = count / classes;
                let arguments = [
                    output.into(),
                    targets.into(),
                    int(classes),
                    int(stride),
                    d.into(),
                    losses.into(),
                    rights.into(),
                ];
                self.queue
                    .launch("cross_entropy", rows, threads, &arguments);
                rows
            }
            LossFunction::Squared { outputs } | LossFunction::Binary { outputs } => {
                let kernel = match network.loss {
                    LossFunction::Squared { .. } => "squared",
                    _ => "binary",
                };
                let arguments = [
                    output.into(),
                    targets.into(),
                    int(count),
                    (outputs as f64).into(),
                    d.into(),
                    losses.into(),
                    rights.into(),
                ];
                let blocks = count.div_ceil(THREADS);
                self.queue.launch(kernel, blocks, THREADS, &arguments);
                blocks
            }
        };
        let sums = self.at(self.regions.totals);
        let adds = training == Some(WriteMode::Add);
        let arguments = [
            losses.into(),
            rights.into(),
            int(parts),
            sums.into(),
            adds.into(),
        ];
        self.queue.launch("total", 1, THREADS, &arguments);
    }

    /// Copies a range's gradients into the order of the table and starts their download.
    fn collect(&mut self, network: &Network, range: Range<usize>) {
        let gradient_download = self.at(self.regions.gradient_download);
        let blocks = network.blocks().iter();
        let blocks = blocks.filter(|block| range.contains(&block.offset));
        for (run, ()) in self.arenas.runs(blocks, |_| ()) {
            let arguments = [
                self.arenas.gradient(run.start).into(),
                (gradient_download + 4 * run.start as u64).into(),
                int(run.len()),
            ];
            let blocks = pack_blocks(run.len());
            self.queue
                .launch("copy_numbers", blocks, THREADS, &arguments);
        }
        let to = &mut self.host.gradients[4 * range.start..4 * range.end];
        self.queue
            .download(gradient_download + 4 * range.start as u64, to);
    }

    /// Starts the in-place sum of a range's gradients over all ranks.
    pub(super) fn sum(
        &mut self,
        ranks: &mut NcclCommunicator,
        range: &Range<usize>,
        poll: PollCallback<'_>,
    ) {
        let at = self.arenas.gradient(range.start);
        let numbers = self.arenas.span(range);
        self.queue.sum(ranks, at, numbers, poll);
    }

    pub(super) fn receive_loss(&mut self) -> Result<StepLoss, DeviceError> {
        self.download_loss();
        self.await_loss()
    }

    /// Starts the download of the loss.
    pub(super) fn download_loss(&mut self) {
        let from = self.at(self.regions.totals);
        self.queue.download(from, self.host.totals);
    }

    /// Waits for all work and returns the loss.
    pub(super) fn await_loss(&mut self) -> Result<StepLoss, DeviceError> {
        self.queue.finish()?;
        let [loss_sum, correct]: [f64; 2] = bytemuck::pod_read_unaligned(self.host.totals);
        Ok(StepLoss {
            loss_sum,
            correct: correct as usize,
        })
    }
}

impl Drop for DeviceSession {
    fn drop(&mut self) {
        if let Some(base) = self.base.take() {
            self.queue.free(base);
        }
    }
}

/// Padding of score rows. Products need rows that are aligned to 16 bytes and have a multiple of
/// eight elements, which numbers of classes such as 50,257 are not.
#[derive(Debug, Clone, Copy)]
struct ScorePadding {
    /// Number of elements from one row to the next.
    stride: usize,
    /// Place of the weight, if it has one row per class, and the number of zeros after it that
    /// complete the padding.
    zeros: Option<(usize, usize)>,
}

impl ScorePadding {
    fn of(network: &Network) -> Option<Self> {
        let LossFunction::CrossEntropy { classes } = network.loss else {
            return None;
        };
        let row = network.nodes.last()?.op.on_device().row()?;
        let stride = classes.next_multiple_of(ALIGNMENT);
        let zeros = row
            .by_rows
            .map(|(place, width)| (place, (stride - classes) * width));
        (row.numbers == classes && stride > classes).then_some(Self { stride, zeros })
    }
}
