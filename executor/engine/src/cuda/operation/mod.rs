//! What a device does with each operation. The CPU's in [`crate::layer`] is the definition; tests hold these to it.

mod attention;
mod convolution;
mod dense;
mod elementwise;
mod normalise;
mod pass;
mod pooling;
mod recurrent;

pub(super) use pass::{Pass, areas_len, pack_blocks};

use super::product::Kind;
use super::queue::Queue;
use crate::layer::Op;

/// A row of an output.
pub(super) struct Row {
    pub(super) numbers: usize,
    /// Of the weight, if it has a row for each of them: its place, and numbers of a row. Zeros then follow it, as many as make up whole rows
    /// for [`Pass::output_stride`].
    pub(super) by_rows: Option<(usize, usize)>,
}

/// One operation on a device.
pub(super) trait DeviceKernel {
    /// Bytes between the forward and the backward pass of so many examples, of values of `size` bytes.
    fn kept(&self, _examples: usize, _size: usize) -> usize {
        0
    }

    /// Bytes that a pass needs while it runs.
    fn scratch(&self, _examples: usize, _size: usize) -> usize {
        0
    }

    /// The same on this queue, where it may do by itself what others need room for.
    fn scratch_on(&self, _queue: &mut dyn Queue, examples: usize, kind: Kind) -> usize {
        self.scratch(examples, kind.size())
    }

    /// What a row of the output is, where rows may lie further apart than that ([`Pass::output_stride`]).
    fn row(&self) -> Option<Row> {
        None
    }

    /// Writes the whole output, and what is kept.
    fn forward(&self, pass: &mut Pass<'_>);

    /// Writes the gradients with respect to the inputs that want one, and writes or adds those of the parameters.
    fn backward(&self, pass: &mut Pass<'_>);
}

impl Op {
    /// What a device does.
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
