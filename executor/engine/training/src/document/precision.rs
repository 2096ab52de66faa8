//! Conversion of the numeric precision of a GPU.

use muster_compute::cuda::ComputePrecision;
use muster_model::spec::{self, Engine};

/// The precision of the document, or the node's default.
#[must_use]
pub fn precision(engine: &Engine, of_node: ComputePrecision) -> ComputePrecision {
    match engine.precision {
        None => of_node,
        Some(spec::Precision::F32) => ComputePrecision::F32,
        Some(spec::Precision::Tf32) => ComputePrecision::Tf32,
        Some(spec::Precision::Bf16) => ComputePrecision::Bf16,
    }
}
