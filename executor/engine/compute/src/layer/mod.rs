//! Operations: forward and backward passes over flat slices, with examples one after another and
//! images in NHWC order.
//!
//! An operation is a description: it has a shape and the ranges of its parameters in the flat
//! arena, and owns no data. [`Op`] lists all operations, so that each back end must handle them
//! all. [`CpuKernel`] is the CPU's implementation. All memory of a pass is held by
//! [`crate::model::Workspace`], so that a step allocates nothing.
//!
//! Every sum has a fixed order that depends on shapes alone, so the bits do not depend on the
//! number of threads. They may differ between processors, because products depend on vector width
//! and cache sizes ([`matrix`]). Operations are independent of optimizers, workers and files.

pub(crate) mod activate;
pub(crate) mod attention;
pub(crate) mod average_pool;
pub(crate) mod batch_norm;
pub(crate) mod concat;
pub(crate) mod conv;
pub(crate) mod conv_pool;
pub(crate) mod dense;
pub(crate) mod depthwise;
pub(crate) mod dropout;
pub(crate) mod embedding;
pub(crate) mod gru;
pub(crate) mod layer_norm;
pub(crate) mod lstm;
pub(crate) mod math;
pub(crate) mod matrix;
pub(crate) mod max_pool;
pub(crate) mod operands;
pub(crate) mod parallel;
pub(crate) mod patches;
pub(crate) mod pool;
pub(crate) mod positions;
pub(crate) mod recurrent;
pub(crate) mod reshape;
pub(crate) mod residual;
pub(crate) mod sweep;
pub(crate) mod upsample;
pub(crate) mod window;

pub use activate::ActivationFunction;
pub(crate) use conv_pool::ConvPool;
pub(crate) use dense::Dense;
pub(crate) use operands::{
    BackwardOperands, CpuKernel, ForwardOperands, InputGradients, OperationInputs, PassContext,
    PassMode, ThreadScratch,
};

/// All operations of which a network can consist.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Activate(activate::ActivationLayer),
    AveragePool(average_pool::AveragePool),
    BatchNorm(batch_norm::BatchNorm),
    Concat(concat::Concat),
    Conv(conv::Conv2d),
    MaxPool(max_pool::MaxPool),
    Reshape(reshape::Reshape),
    Residual(residual::Residual),
    Upsample(upsample::Upsample),
    Attention(attention::Attention),
    Dropout(dropout::Dropout),
    Embedding(embedding::Embedding),
    Gru(gru::Gru),
    LayerNorm(layer_norm::LayerNorm),
    Lstm(lstm::Lstm),
    Positions(positions::PositionTable),
    ConvPool(ConvPool),
    Dense(Dense),
}

impl Op {
    /// Returns the CPU's implementation.
    pub(crate) fn kernel(&self) -> &dyn CpuKernel {
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
