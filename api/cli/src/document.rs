//! Documents as people write them: YAML, of which JSON is a part, as the JSON that REST takes.

use crate::command::UsageError;
use anyhow::Context as _;
use muster_document::DocumentError;
use serde_json::Value;
use std::io::Read as _;
use std::path::Path;

/// # Errors
/// When the file cannot be read (`-` is standard input), or is no document.
pub fn read(file: &Path) -> anyhow::Result<Value> {
    let mut text = String::new();
    if file.as_os_str() == "-" {
        std::io::stdin()
            .read_to_string(&mut text)
            .context("read the document from standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    }
    let file = file.display();
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        anyhow::bail!(UsageError(format!("{file} is empty; expected a document")));
    }
    parse(&text).map_err(|error| {
        UsageError(format!("{file} cannot be read as YAML or JSON: {error}")).into()
    })
}

/// # Errors
/// [`DocumentError`].
pub fn parse(text: &str) -> Result<Value, DocumentError> {
    muster_document::yaml(text.as_bytes())
}
