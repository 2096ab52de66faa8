//! Reads documents: YAML, which includes JSON, as the JSON that REST accepts.

use crate::command::UsageError;
use anyhow::Context as _;
use muster_document::DocumentError;
use serde_json::{Map, Value};
use std::io::Read as _;
use std::path::Path;

/// Note of `muster submit` and `muster plan` for a command that may restart from its beginning.
const MAY_START_OVER: &str = "this program may start over when a job of higher priority or a drained node stops it, until it reports a checkpoint or Muster has \
    seen it continue from one; `exclusive: true` keeps it out of time slicing and off shared GPUs, `preemption: { allowed: never }` also protects it from \
    jobs of higher priority";

/// Writes the note to stderr for the document of a command that is not exclusive and may be stopped
/// for other jobs.
pub fn note_start_over(document: &Value) {
    if may_start_over(document) {
        eprintln!("muster: note: {MAY_START_OVER}");
    }
}

fn may_start_over(document: &Value) -> bool {
    document
        .get("command")
        .is_some_and(|command| !command.is_null())
        && document.get("exclusive") != Some(&Value::Bool(true))
        && document.pointer("/preemption/allowed") != Some(&Value::from("never"))
}

/// Reads a document from a file; `-` is standard input.
///
/// # Errors
/// If the file cannot be read or is not a document.
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
    if text
        .lines()
        .all(|line: &str| line.trim().is_empty() || line.trim_start().starts_with('#'))
    {
        anyhow::bail!(UsageError(format!("{file} is empty; expected a document")));
    }
    parse(&text).map_err(|error| {
        UsageError(format!("{file} cannot be read as YAML or JSON: {error}")).into()
    })
}

/// Returns the map in a field of the document, which is made if it is left out. `None` if the field
/// is no map; the server refuses it.
pub fn map_in<'d>(document: &'d mut Value, field: &str) -> Option<&'d mut Map<String, Value>> {
    let fields = document.as_object_mut()?;
    let map = fields.entry(field).or_insert_with(|| Map::new().into());
    map.as_object_mut()
}

/// # Errors
/// [`DocumentError`].
pub fn parse(text: &str) -> Result<Value, DocumentError> {
    muster_document::yaml(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    fn document(text: &str) -> Value {
        serde_json::from_str(text).expect("JSON")
    }

    #[test]
    fn command_that_is_not_exclusive_may_start_over() {
        let shared = document(r#"{ "command": { "argv": ["sh"] } }"#);
        assert!(super::may_start_over(&shared));
        let own = document(r#"{ "command": { "argv": ["sh"] }, "exclusive": true }"#);
        assert!(!super::may_start_over(&own));
        let never = r#"{ "command": { "argv": ["sh"] }, "preemption": { "allowed": "never" } }"#;
        assert!(!super::may_start_over(&document(never)));
        assert!(!super::may_start_over(&document(r#"{ "engine": {} }"#)));
    }
}
