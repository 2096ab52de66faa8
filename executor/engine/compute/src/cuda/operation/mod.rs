//! Device implementation of each operation. The CPU's implementation in [`crate::layer`] is the
//! definition, with which tests compare these.

mod attention;
mod convolution;
mod dense;
mod elementwise;
mod normalise;
mod pass;
mod pooling;
mod recurrent;

pub(super) use pass::{DevicePass, areas_len, pack_blocks};

use super::product::ElementType;
use super::queue::DeviceQueue;
use crate::layer::Op;

/// Row of an output.
pub(super) struct OutputRow {
    pub(super) numbers: usize,
    /// Place and row length of the weight, if it has one row per element of the output row. Zeros
    /// that pad the number of rows to [`DevicePass::output_stride`] follow it.
    pub(super) by_rows: Option<(usize, usize)>,
}

/// Operation on a device.
pub(super) trait DeviceKernel {
    /// Bytes to keep from the forward to the backward pass of `examples` examples, for values of
    /// `size` bytes.
    fn saved_bytes(&self, _examples: usize, _size: usize) -> usize {
        0
    }

    /// Bytes of scratch memory during a pass.
    fn scratch(&self, _examples: usize, _size: usize) -> usize {
        0
    }

    /// Bytes of scratch memory on this queue. It may compute itself what needs scratch memory on
    /// other queues.
    fn scratch_on(
        &self,
        _queue: &mut dyn DeviceQueue,
        examples: usize,
        kind: ElementType,
    ) -> usize {
        self.scratch(examples, kind.size())
    }

    /// Returns the row of the output, if rows may be padded ([`DevicePass::output_stride`]).
    fn row(&self) -> Option<OutputRow> {
        None
    }

    /// Writes the whole output and the kept values.
    fn forward(&self, pass: &mut DevicePass<'_>);

    /// Writes the gradients with respect to the inputs that need one, and writes or adds those of
    /// the parameters.
    fn backward(&self, pass: &mut DevicePass<'_>);
}

impl Op {
    /// Returns the device implementation.
    pub(super) fn on_device(&self) -> &dyn DeviceKernel {
        match self {
            Self::Activate(op) => op,
            Self::AveragePool(op) => op,
            Self::BatchNorm(op) => op,
            Self::Concat(op) => op,
            Self::Conv(op) => op,
            Self::MaxPool(op) => op,
            Self::Reshape(op) => op,
            Self::Residual(op) => op,
            Self::Upsample(op) => op,
            Self::Attention(op) => op,
            Self::Dropout(op) => op,
            Self::Embedding(op) => op,
            Self::Gru(op) => op,
            Self::LayerNorm(op) => op,
            Self::Lstm(op) => op,
            Self::Positions(op) => op,
            Self::ConvPool(op) => op,
            Self::Dense(op) => op,
        }
    }
}
