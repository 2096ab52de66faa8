//! How exact a GPU computes.

use crate::cuda::Precision;
use muster_model::spec::{self, Engine};

/// The document's, else the node's own.
#[must_use]
pub fn precision(engine: &Engine, of_node: Precision) -> Precision {
    match engine.precision {
        None => of_node,
        Some(spec::Precision::F32) => Precision::F32,
        Some(spec::Precision::Tf32) => Precision::Tf32,
        Some(spec::Precision::Bf16) => Precision::Bf16,
    }
}
