//! Layers: forward and backward passes over plain slices, single examples after one another in NHWC order.
//!
//! A layer knows its shape and where its parameters lie in the flat arena; it owns no data. What a pass needs besides its inputs
//! and outputs lies in a scratch area that [`crate::model::Workspace`] holds, so that a step allocates nothing of its own.
//!
//! Every sum has one fixed order, which depends on shapes alone: same input, same bits, on any number of threads. Only between
//! kinds of processor do last bits differ, since `gemm` fits its blocks to caches and vector width. No layer knows of optimizers, workers
//! or files.

pub(crate) mod conv;
pub(crate) mod dense;
pub(crate) mod matrix;
pub(crate) mod patches;
pub(crate) mod pool;
pub(crate) mod simd;

pub(crate) use conv::Conv;
pub(crate) use dense::Dense;
