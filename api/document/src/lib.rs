//! Strict reader of JSON and YAML documents into JSON values. The length of the text bounds memory
//! and time.
//!
//! An error names its field. Refused are duplicate keys, texts with a NUL byte (Postgres cannot
//! store it) and numbers that JSON lacks. So is a YAML document that expands to far more than its
//! text. A byte order mark at the beginning is skipped.

mod bounds;
mod events;
mod strict;

pub use bounds::{Excess, MAX_DEPTH, MAX_EXPANDED_BYTES, MAX_NODES};
pub use strict::NO_NUL;

use muster_model::spec::FieldError;
use serde_json::Value;

/// Byte order mark of UTF-8, which editors on Windows write.
const BYTE_ORDER_MARK: &[u8] = &[0xEF, 0xBB, 0xBF];

/// Why a text is not a document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("the text is not UTF-8 from byte {offset} on")]
    NotUtf8 { offset: usize },
    #[error("{0}")]
    Json(serde_json::Error),
    #[error("{0}")]
    Yaml(serde_norway::Error),
    #[error(transparent)]
    Excess(#[from] Excess),
    /// The text is well-formed, but a field has a value that no document can have.
    #[error("{error} (line {line})")]
    Field { error: FieldError, line: usize },
}

/// Reads one JSON value.
///
/// # Errors
/// [`DocumentError`].
pub fn json(text: &[u8]) -> Result<Value, DocumentError> {
    let text = utf8(text)?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = strict::read(&mut reader).map_err(|failure| match failure {
        strict::StrictReadError::Field(error, source) => DocumentError::Field {
            error,
            line: source.line(),
        },
        strict::StrictReadError::Syntax(error) => DocumentError::Json(error),
    })?;
    reader.end().map_err(DocumentError::Json)?;
    Ok(value)
}

/// Reads one YAML document.
///
/// # Errors
/// [`DocumentError`].
pub fn yaml(text: &[u8]) -> Result<Value, DocumentError> {
    let text = utf8(text)?;
    bounds::check(text)?;
    let reader = serde_norway::Deserializer::from_str(text);
    strict::read(reader).map_err(|failure| match failure {
        strict::StrictReadError::Field(error, source) => DocumentError::Field {
            error,
            line: source.location().map_or(1, |location| location.line()),
        },
        strict::StrictReadError::Syntax(error) => DocumentError::Yaml(error),
    })
}

/// Skips a byte order mark, and decodes the rest.
fn utf8(text: &[u8]) -> Result<&str, DocumentError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    std::str::from_utf8(text).map_err(|error| DocumentError::NotUtf8 {
        offset: error.valid_up_to(),
    })
}

#[cfg(test)]
mod tests;
