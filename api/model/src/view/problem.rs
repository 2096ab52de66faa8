//! A refusal, as RFC 9457 writes it.

use crate::spec::FieldError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a request was not carried out (`application/problem+json`). Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Stable name of the kind of problem, such as `urn:muster:problem:invalid-job`; programs tell problems apart by it.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What was wrong with this request, and what would be right.
    pub detail: String,
    /// `urn:muster:request:<id>`, by which the daemon's log knows the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Each thing that is wrong, with the field, the value and what would be right.
    #[serde(default)]
    pub errors: Vec<FieldError>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.title, self.detail)?;
        for error in &self.errors {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}
