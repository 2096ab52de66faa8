//! How exact a GPU computes.

use serde::{Deserialize, Serialize};

/// How exact products are on a GPU, and what values between layers are stored as. Parameters, gradients, statistics and updates are f32 always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Precision {
    /// f32 throughout.
    F32,
    /// f32 values; products look at 10 bits of each factor.
    Tf32,
    /// bf16 values and products; sums are f32.
    Bf16,
}
