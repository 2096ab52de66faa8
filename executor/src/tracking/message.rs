//! MLflow's messages, as far as its client sends and reads them. Integers of 64 bits, and values
//! such as NaN that JSON cannot represent, may be strings.

use muster_model::metric::{self, NAME_RULE};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// One logged value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LoggedMetric {
    pub key: String,
    pub value: f64,
    pub timestamp_ms: i64,
    pub step: u64,
}

/// Content of a `log-batch` request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LogBatch {
    pub metrics: Vec<LoggedMetric>,
    pub params: Vec<(String, String)>,
    pub tags: Vec<(String, String)>,
    pub source: LogSource,
}

/// Interface by which values were logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LogSource {
    #[default]
    Program,
    EventFiles,
}

/// Error for an invalid field of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is missing or is not what it should be: {expected}")]
pub(super) struct Malformed {
    pub field: &'static str,
    pub expected: &'static str,
}

/// MLflow's own limits, in characters.
const LONGEST_KEY: usize = 250;
const LONGEST_VALUE: usize = 8_000;
/// Maximum number of entries of each kind in a batch.
const MOST_ENTRIES: usize = 1_000;

/// # Errors
/// [`Malformed`].
pub(super) fn batch(body: &Value) -> Result<LogBatch, Malformed> {
    Ok(LogBatch {
        metrics: list(body, "metrics", metric)?,
        params: list(body, "params", pair)?,
        tags: list(body, "tags", pair)?,
        source: LogSource::Program,
    })
}

fn list<T>(
    body: &Value,
    field: &'static str,
    read: impl Fn(&Value) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    match body.get(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) if items.len() <= MOST_ENTRIES => {
            items.iter().map(read).collect()
        }
        Some(_) => Err(Malformed {
            field,
            expected: "a list of at most 1000",
        }),
    }
}

/// # Errors
/// [`Malformed`].
pub(super) fn metric(body: &Value) -> Result<LoggedMetric, Malformed> {
    let step = body.get("step").map_or(Some(0), integer);
    let at = body.get("timestamp").map_or(Some(0), integer);
    let wrong = |field, expected| Malformed { field, expected };
    let key = key(body)?;
    if !metric::is_name(&key) {
        return Err(wrong("key", NAME_RULE));
    }
    Ok(LoggedMetric {
        key,
        value: body
            .get("value")
            .and_then(number)
            .ok_or(wrong("value", "a number"))?,
        timestamp_ms: at.ok_or(wrong("timestamp", "milliseconds since 1970"))?,
        // Negative steps count as 0.
        step: u64::try_from(step.ok_or(wrong("step", "a whole number"))?).unwrap_or(0),
    })
}

/// # Errors
/// [`Malformed`].
pub(super) fn pair(body: &Value) -> Result<(String, String), Malformed> {
    Ok((
        key(body)?,
        text(
            body,
            "value",
            LONGEST_VALUE,
            "a text of at most 8000 characters",
        )?,
    ))
}

fn key(body: &Value) -> Result<String, Malformed> {
    text(body, "key", LONGEST_KEY, "a text of at most 250 characters")
}

fn text(
    body: &Value,
    field: &'static str,
    longest: usize,
    expected: &'static str,
) -> Result<String, Malformed> {
    let found = body.get(field).and_then(Value::as_str);
    let right = found.filter(|text| text.chars().count() <= longest);
    right
        .map(str::to_owned)
        .ok_or(Malformed { field, expected })
}

/// Reads an integer, which may be a string.
pub(super) fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some(text) => text.parse().ok(),
        None => value.as_f64(),
    }
}

/// Returns a run in the format of MLflow's clients.
pub(super) fn run(
    info: &Value,
    metrics: &BTreeMap<String, LoggedMetric>,
    params: &BTreeMap<String, String>,
    tags: &BTreeMap<String, String>,
) -> Value {
    let metrics: Vec<Value> = metrics.values().map(written).collect();
    let data = json!({ "metrics": metrics, "params": pairs(params), "tags": pairs(tags) });
    json!({ "info": info, "data": data, "inputs": {} })
}

fn pairs(all: &BTreeMap<String, String>) -> Vec<Value> {
    all.iter()
        .map(|(key, value)| json!({ "key": key, "value": value }))
        .collect()
}

fn written(metric: &LoggedMetric) -> Value {
    let mut out = Map::new();
    out.insert("key".to_owned(), json!(metric.key));
    let value = if metric.value.is_nan() {
        json!("NaN")
    } else if metric.value.is_infinite() {
        json!(if metric.value > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        })
    } else {
        json!(metric.value)
    };
    out.insert("value".to_owned(), value);
    out.insert("timestamp".to_owned(), json!(metric.timestamp_ms));
    out.insert("step".to_owned(), json!(metric.step));
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_be_strings() {
        let body = json!({ "metrics": [{ "key": "loss", "value": "NaN", "timestamp": "5", "step": "7" }] });
        let read = batch(&body).expect("a batch").metrics.remove(0);
        assert_eq!((read.timestamp_ms, read.step), (5, 7));
        assert!(read.value.is_nan());
        assert_eq!(written(&read)["value"], "NaN");
    }

    #[test]
    fn error_names_the_invalid_field() {
        let wrong = batch(&json!({ "metrics": [{ "key": "loss", "value": true }] }));
        assert_eq!(wrong.expect_err("no number").field, "value");
        for key in [&"k".repeat(251), "", "acc@1", "a=b"] {
            let wrong = metric(&json!({ "key": key, "value": 1 }));
            assert_eq!(wrong.expect_err(key).field, "key");
        }
        assert!(metric(&json!({ "key": "val/f1 : macro-2.x_y", "value": 1 })).is_ok());
        let wrong = batch(&json!({ "params": { "a": "b" } }));
        assert_eq!(wrong.expect_err("no list").field, "params");
    }
}
