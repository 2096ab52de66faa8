//! Secrets of a tenant. No type here holds a value.

use crate::actor::Actor;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// Secret of a tenant, without its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SecretView {
    pub name: String,
    /// 1, and one more with each replacement.
    pub version: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// Time of the present version.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
    /// Author of the present version.
    pub updated_by: Actor,
    /// Number of open jobs whose document names it.
    pub open_jobs: u64,
    /// Number of open studies whose document names it.
    pub open_studies: u64,
}

/// Answer to `PUT /secrets/{name}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SecretVersion {
    pub name: String,
    /// 1 for a new secret.
    pub version: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}
