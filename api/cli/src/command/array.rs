//! `muster run --array`: one job per index, with equal code.

use super::{CliSession, UsageError};
use crate::document::map_in;
use crate::output::{counted, line};
use anyhow::Context as _;
use serde_json::{Map, Value, json};

/// Maximum number of jobs of one array.
const MAX_JOBS: usize = 1_000;
/// Placeholder of the index in arguments and variables.
const INDEX: &str = "{index}";
/// Variable with the index.
const VARIABLE: &str = "ARRAY_INDEX";
/// Label that the jobs of one array have in common.
pub const LABEL: &str = "array";

/// Indices of an array, and the number of its jobs that run at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayIndices {
    /// Ascending.
    pub indices: Vec<u32>,
    /// `None` without a limit.
    pub parallel: Option<u32>,
}

/// Reads indices such as `0-9`, `1,4,8-12` or `0-99%8`, as Slurm does.
///
/// # Errors
/// What is expected, for clap.
pub fn indices(text: &str) -> Result<ArrayIndices, String> {
    const EXPECTED: &str = "expected indices such as 0-9, 1,4,8-12 or 0-99%8";
    let (text, parallel) = match text.split_once('%') {
        Some((text, limit)) => (text, Some(parallel(limit)?)),
        None => (text, None),
    };
    let mut indices = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
            return Err(EXPECTED.to_owned());
        };
        if last < first || (last - first) as usize >= MAX_JOBS {
            return Err(format!("{EXPECTED}; at most {MAX_JOBS} of them"));
        }
        indices.extend(first..=last);
    }
    indices.sort_unstable();
    indices.dedup();
    if indices.len() > MAX_JOBS {
        return Err(format!(
            "{} indices; at most {MAX_JOBS} are allowed",
            indices.len()
        ));
    }
    Ok(ArrayIndices { indices, parallel })
}

/// Reads the number of jobs that run at the same time.
fn parallel(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(limit @ 1..=10_000) => Ok(limit),
        _ => Err("expected 1 to 10000 jobs at the same time after %".to_owned()),
    }
}

/// Returns the document of one job: `{index}` in arguments and variables is replaced, and the
/// variable `ARRAY_INDEX` holds the index.
#[must_use]
pub fn element(document: &Value, array: &str, index: u32) -> Value {
    let mut element = document.clone();
    let name = document["name"].as_str().unwrap_or_default();
    element["name"] = json!(format!("{name}-{index}"));
    entry(&mut element, "labels", LABEL, json!(array));
    let command = &mut element["command"];
    for field in ["argv", "env"] {
        replace(&mut command[field], index);
    }
    if command["env"].is_null() {
        command["env"] = Value::Object(Map::new());
    }
    entry(command, "env", VARIABLE, json!(index.to_string()));
    element
}

/// Enters a value into a map of the document.
fn entry(document: &mut Value, field: &str, name: &str, value: Value) {
    if let Some(map) = map_in(document, field) {
        map.insert(name.to_owned(), value);
    }
}

fn replace(value: &mut Value, index: u32) {
    match value {
        Value::String(text) => *text = text.replace(INDEX, &index.to_string()),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, index)),
        Value::Object(fields) => fields.values_mut().for_each(|item| replace(item, index)),
        _ => {}
    }
}

/// Submits a job per index.
///
/// # Errors
/// The first refusal, after the jobs before it were submitted.
pub async fn submit(
    session: &CliSession,
    document: &Value,
    given: &ArrayIndices,
) -> anyhow::Result<()> {
    let name = document["name"].as_str().unwrap_or_default();
    let mut random = [0; 4];
    getrandom::fill(&mut random)
        .map_err(|error| UsageError(format!("the system gives no randomness: {error}")))?;
    let array = format!("{name}-{:08x}", u32::from_le_bytes(random));
    let mut jobs = Vec::new();
    for (done, index) in given.indices.iter().enumerate() {
        let mut element = element(document, &array, *index);
        if let Some(parallel) = given.parallel {
            element["array"] = json!({ "name": array, "parallel": parallel });
        }
        let submitted = session.client.submit(&element, None).await;
        let submitted = submitted.with_context(|| {
            format!("index {index} was not submitted; {done} jobs before it were ({LABEL}={array})")
        });
        jobs.push(submitted?);
    }
    if session.output.is_whole() {
        return session.output.print(&jobs, |_| String::new());
    }
    let number = counted(u32::try_from(jobs.len()).unwrap_or(u32::MAX), "job");
    line(&format!(
        "{number} submitted; muster list --label {LABEL}={array}, or muster cancel --label {LABEL}={array}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<u32>, Option<u32>) {
        let given = indices(text).expect(text);
        (given.indices, given.parallel)
    }

    #[test]
    fn indices_are_numbers_and_ranges() {
        assert_eq!(read("0-3"), (vec![0, 1, 2, 3], None));
        assert_eq!(read("7,1-2,2"), (vec![1, 2, 7], None));
        assert_eq!(read("0-1%8"), (vec![0, 1], Some(8)));
        for wrong in [
            "", "a", "3-1", "1-", "-1", "0-1000", "1,,2", "0-3%0", "0-3%", "0%1%2", "%2",
        ] {
            assert!(indices(wrong).is_err(), "{wrong}");
        }
        let many = "0-599,600-1200";
        assert!(indices(many).is_err());
    }

    #[test]
    fn index_is_in_arguments_variables_and_name() {
        let document = json!({ "name": "fold", "labels": { "team": "x" },
            "command": { "argv": ["python3", "fit.py", "--fold={index}"], "env": { "OUT": "run-{index}" } } });
        let element = element(&document, "fold-1a2b", 7);
        assert_eq!(
            element,
            json!({ "name": "fold-7", "labels": { "team": "x", "array": "fold-1a2b" },
                "command": { "argv": ["python3", "fit.py", "--fold=7"], "env": { "OUT": "run-7", "ARRAY_INDEX": "7" } } })
        );
    }
}
