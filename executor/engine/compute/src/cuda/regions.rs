//! One allocation of device memory for the passes of a network, so that it can be released and
//! allocated again in one step.

use super::arenas::DeviceArenas;
use super::operation::areas_len;
use super::product::ElementType;
use super::queue::{DeviceAddress, DeviceQueue, THREADS};
use super::update;
use crate::model::gradient_buffers::GradientBuffers;
use crate::model::network::Network;

/// Bytes between two regions. They keep regions aligned and let tests detect writes beyond the end
/// of a region.
const GAP: usize = 256;

/// Region of the allocation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MemoryRegion {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// All regions of a network for a number of examples.
#[derive(Debug)]
pub(crate) struct MemoryLayout {
    /// Parameters and optimizer state, which must survive a release of the memory.
    pub(crate) parameters: MemoryRegion,
    pub(crate) state: MemoryRegion,
    pub(crate) weights: MemoryRegion,
    pub(crate) gradients: MemoryRegion,
    /// Gradients in the order of the table, to be downloaded.
    pub(crate) gradient_download: MemoryRegion,
    /// Uploaded inputs as f32, and their conversion to the kind of values.
    pub(crate) input_upload: MemoryRegion,
    pub(crate) input: MemoryRegion,
    pub(crate) targets: MemoryRegion,
    pub(crate) draw: MemoryRegion,
    /// One per operation.
    pub(crate) values: Vec<MemoryRegion>,
    pub(crate) saved: Vec<MemoryRegion>,
    /// One per slot.
    pub(crate) slots: Vec<MemoryRegion>,
    pub(crate) scratch: MemoryRegion,
    /// Loss and number of correct targets of each row or block, and their sums.
    pub(crate) losses: MemoryRegion,
    pub(crate) rights: MemoryRegion,
    pub(crate) totals: MemoryRegion,
    /// Factors of a step for the update kernels, their partial sums, and those of clipping.
    pub(crate) factors: MemoryRegion,
    pub(crate) norms: MemoryRegion,
    pub(crate) squares: MemoryRegion,
    pub(crate) bytes: usize,
}

impl MemoryRegion {
    pub(crate) fn at(self, base: DeviceAddress) -> DeviceAddress {
        base + self.offset as u64
    }
}

/// Bytes of the random key of one pass.
pub(super) const DRAW: usize = 16;

impl MemoryLayout {
    /// Lays out the regions. `lens` are the numbers of elements per example of each value; the
    /// network's input is first. `state` is the number of optimizer state elements per parameter.
    /// `queue` is the queue of the later passes.
    pub(crate) fn plan(
        queue: &mut dyn DeviceQueue,
        network: &Network,
        (slots, lens): (&GradientBuffers, &[usize]),
        arenas: &DeviceArenas,
        (kind, max_batch): (ElementType, usize),
        state: usize,
    ) -> Self {
        let mut end = 0;
        let mut place = |bytes: usize| {
            let offset = end;
            end += areas_len(&[bytes]) + GAP;
            MemoryRegion { offset, bytes }
        };
        let (size, params) = (kind.size(), network.parameter_count());
        let (aligned, input) = (arenas.aligned_len(), max_batch * network.input().len());
        let targets = max_batch * network.targets();
        let losses = 8 * targets.max((max_batch * network.outputs()).div_ceil(THREADS));
        let operations = network.nodes.iter().map(|node| node.op.on_device());
        let scratch = operations
            .clone()
            .map(|op| op.scratch_on(queue, max_batch, kind));
        let scratch = scratch.max();
        let is_cast = kind != ElementType::F32;
        let mut regions = Self {
            parameters: place(4 * params),
            state: place(4 * params * state),
            weights: place(size * aligned),
            gradients: place(4 * aligned),
            gradient_download: place(4 * params),
            input_upload: place(4 * input),
            input: place(if is_cast { size * input } else { 0 }),
            targets: place(4 * targets),
            draw: place(DRAW),
            values: Vec::new(),
            saved: Vec::new(),
            slots: Vec::new(),
            scratch: place(scratch.unwrap_or(0)),
            losses: place(losses),
            rights: place(losses),
            totals: place(16),
            factors: place(4 * update::FACTORS),
            norms: place(update::NORMS_LEN),
            squares: place(update::squares_len(arenas, network.blocks())),
            bytes: 0,
        };
        let values = lens[1..].iter();
        regions.values = values.map(|len| place(size * max_batch * len)).collect();
        regions.saved = operations
            .map(|op| place(op.saved_bytes(max_batch, size)))
            .collect();
        let sizes = slots.sizes.iter();
        regions.slots = sizes.map(|len| place(size * max_batch * len)).collect();
        regions.bytes = end;
        regions
    }

    /// Gaps of the allocation that belong to no region.
    #[cfg(test)]
    pub(crate) fn gaps(&self) -> Vec<MemoryRegion> {
        let alone = [
            self.parameters,
            self.state,
            self.weights,
            self.gradients,
            self.gradient_download,
            self.input_upload,
            self.input,
            self.targets,
            self.draw,
            self.scratch,
            self.losses,
            self.rights,
            self.totals,
            self.factors,
            self.norms,
            self.squares,
        ];
        let many = [&self.values, &self.saved, &self.slots];
        let mut used: Vec<MemoryRegion> = alone.into_iter().collect();
        used.extend(many.into_iter().flatten());
        used.sort_by_key(|region| region.offset);
        let ends = used.iter().skip(1).map(|region| region.offset);
        let ends = ends.chain([self.bytes]);
        used.iter()
            .zip(ends)
            .map(|(region, end)| {
                let offset = region.offset + region.bytes;
                let bytes = end - offset;
                MemoryRegion { offset, bytes }
            })
            .collect()
    }
}
