//! Precision on GPUs.

use serde::{Deserialize, Serialize};

/// Precision of products on a GPU and storage type of values between layers. Parameters, gradients,
/// statistics and updates are always f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Precision {
    /// f32 throughout.
    F32,
    /// f32 values; products use 10 mantissa bits of each factor.
    Tf32,
    /// bf16 values and products; sums are f32.
    Bf16,
}
