//! Templates of a tenant.

use crate::actor::Actor;
use crate::template::{TemplateDocument, Values};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// Template of a tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TemplateView {
    pub name: String,
    pub document: TemplateDocument,
    /// 1, and one more with each replacement.
    pub version: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// Time of the present version.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
    /// Author of the present version.
    pub updated_by: Actor,
}

/// Body of `POST /templates/{name}/submit`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TemplateValues {
    /// Values of parameters by name; those with a default may be left out.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub parameters: Values,
}
