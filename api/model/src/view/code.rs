//! Responses about code archives.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// A stored code archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CodeView {
    pub sha256: String,
    /// Size of the archive.
    pub bytes: u64,
    /// When it was uploaded.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}
