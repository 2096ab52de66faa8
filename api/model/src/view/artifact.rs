//! Responses about artifacts.

use crate::task::Role;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// A file that a program of the job has written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ArtifactView {
    /// Names separated by `/`.
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
    /// According to the ending of the path.
    pub content_type: String,
    /// Task that has written it last.
    pub role: Role,
    /// Revision of the job's task set at that time.
    pub revision: u64,
    /// When it was stored.
    #[serde(with = "time::serde::rfc3339")]
    pub stored_at: OffsetDateTime,
}
