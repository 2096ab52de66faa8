//! Computation of the training engine: models and their layers on the CPU and on CUDA devices,
//! losses, optimizers, datasets and the ONNX export.
//!
//! It knows arrays and examples. It must not depend on another crate of Muster, use the network or
//! start threads that its caller did not request. Results do not depend on the clock.

pub mod clock;
pub mod cuda;
pub mod data;
pub mod loss;
pub mod model;
pub mod onnx;
pub mod optimizer;
pub mod pages;
pub mod prefetch;
pub mod simd;

mod layer;
