//! Operations: forward and backward passes over plain slices, examples after one another, images in NHWC order.
//!
//! An operation is a description: it knows its shape and where its parameters lie in the flat arena, and owns no data. [`Op`] lists
//! them, so that every back end can be asked whether it has them all; [`Kernel`] is what the CPU does with each. What a pass needs
//! besides its inputs and outputs lies in memory that [`crate::model::Workspace`] holds, so that a step allocates nothing of its own.
//!
//! Every sum has one fixed order, which depends on shapes alone: same input, same bits, on any number of threads. Only between
//! kinds of processor do last bits differ, since products go by what vectors and caches it has ([`matrix`]). No operation knows of optimizers,
//! workers or files.

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
pub(crate) mod simd;
pub(crate) mod sweep;
pub(crate) mod upsample;
pub(crate) mod window;

pub use activate::Activation;
pub(crate) use conv_pool::ConvPool;
pub(crate) use dense::Dense;
pub(crate) use operands::{At, Backward, Forward, Gradients, Inputs, Kernel, Lane, Mode};

/// Every operation that a network can be made of.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Activate(activate::Activate),
    AveragePool(average_pool::AveragePool),
    BatchNorm(batch_norm::BatchNorm),
    Concat(concat::Concat),
    Conv(conv::Conv),
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
    Positions(positions::Positions),
    ConvPool(ConvPool),
    Dense(Dense),
}

impl Op {
    /// What the CPU does.
    pub(crate) fn kernel(&self) -> &dyn Kernel {
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
