//! Problem details of RFC 9457.

use crate::spec::FieldError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a request was not carried out (`application/problem+json`). Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Stable name of the kind of problem, such as `urn:muster:problem:invalid-job`. Programs
    /// should use it to distinguish problems.
    #[serde(rename = "type")]
    pub kind: String,
    /// Title of the kind.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// The error of this request, and the expected values.
    pub detail: String,
    /// `urn:muster:request:<id>`, by which the log of the API server identifies the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// One entry per error, with the field, its value and the expected value.
    #[serde(default)]
    pub errors: Vec<FieldError>,
}

impl fmt::Display for Problem {
    /// Writes each error once: most details are the joined errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<String> = self.errors.iter().map(ToString::to_string).collect();
        match errors.as_slice() {
            [] => return write!(f, "{}: {}", self.title, self.detail),
            [only] if self.detail == *only => return write!(f, "{}: {only}", self.title),
            _ if self.detail == errors.join("; ") => write!(f, "{}:", self.title)?,
            _ => write!(f, "{}: {}", self.title, self.detail)?,
        }
        for error in &errors {
            if self.detail == errors.join("; ") || !self.detail.contains(error.as_str()) {
                write!(f, "\n  {error}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Problem;
    use crate::spec::FieldError;

    fn problem(detail: &str, fields: &[&str]) -> Problem {
        let errors = fields.iter().map(|field| FieldError {
            field: (*field).to_owned(),
            value: "0".to_owned(),
            expected: "1".to_owned(),
        });
        Problem {
            kind: "urn:muster:problem:invalid-job".to_owned(),
            title: "Wrong".to_owned(),
            status: 422,
            detail: detail.to_owned(),
            instance: None,
            errors: errors.collect(),
        }
    }

    fn text(detail: &str, fields: &[&str]) -> String {
        problem(detail, fields).to_string()
    }

    #[test]
    fn problem_writes_each_error_once() {
        assert_eq!(text("no such job", &[]), "Wrong: no such job");
        assert_eq!(
            text("a is 0; expected 1", &["a"]),
            "Wrong: a is 0; expected 1"
        );
        assert_eq!(
            text("a is 0; expected 1; b is 0; expected 1", &["a", "b"]),
            "Wrong:\n  a is 0; expected 1\n  b is 0; expected 1"
        );
        assert_eq!(
            text("not with this job", &["a"]),
            "Wrong: not with this job\n  a is 0; expected 1"
        );
    }
}
