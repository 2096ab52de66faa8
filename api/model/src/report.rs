//! Reading a task's report that a user's program may have had a hand in: what Postgres could not keep or add up is found here, before
//! it stands in the way of everything else that its node reports.

use crate::assignment::TaskReport;
use serde_json::Value;

/// Largest number of a report, either side of zero: sums over all of a job's samples stay finite.
pub const LARGEST_NUMBER: f64 = 1e30;
/// Largest fraction of an epoch count that still is a whole number of the store when rounded.
const LARGEST_EPOCH: f64 = 1e15;

/// Why a line is no report that can be kept.
#[derive(Debug, thiserror::Error)]
pub enum UnfitReport {
    #[error("it is no report: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{field} is {value}; expected at most {most:e} either side of zero")]
    Number {
        field: String,
        value: String,
        most: f64,
    },
}

impl TaskReport {
    /// The report in a line of `events.jsonl`. NUL characters of its texts, which Postgres has none of, become U+FFFD.
    ///
    /// # Errors
    /// [`UnfitReport`], naming the number that is out of range.
    pub fn read(line: &str) -> Result<Self, UnfitReport> {
        let mut value: Value = serde_json::from_str(line)?;
        fit("", &mut value)?;
        Ok(serde_json::from_value(value)?)
    }
}

fn fit(path: &str, value: &mut Value) -> Result<(), UnfitReport> {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    };
    match value {
        Value::String(text) => {
            if text.contains('\0') {
                *text = text.replace('\0', "\u{fffd}");
            }
        }
        Value::Number(number) => {
            let is_epoch = path.rsplit('.').next() == Some("epoch");
            let most = if is_epoch {
                LARGEST_EPOCH
            } else if number.is_u64() {
                // Counts are kept in 64 bits with a sign.
                9.2e18
            } else {
                LARGEST_NUMBER
            };
            if number.as_f64().is_none_or(|number| number.abs() > most) {
                return Err(UnfitReport::Number {
                    field: path.to_owned(),
                    value: number.to_string(),
                    most,
                });
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                fit(&below(&index.to_string()), item)?;
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                fit(&below(name), field)?;
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluated(step: &str, epoch: &str, loss: &str) -> String {
        format!(
            r#"{{"kind":"evaluated","evaluation":{{"step":{step},"epoch":{epoch},"loss":{loss},"accuracy":0.5}}}}"#
        )
    }

    #[test]
    fn numbers_that_the_store_cannot_keep_are_named() {
        assert!(TaskReport::read(&evaluated("7", "1.5", "1e29")).is_ok());
        for (line, field) in [
            (
                evaluated("18446744073709551615", "1", "1"),
                "evaluation.step",
            ),
            (evaluated("7", "1e300", "1"), "evaluation.epoch"),
            (evaluated("7", "1", "1.7e308"), "evaluation.loss"),
            (evaluated("7", "1", "-1e31"), "evaluation.loss"),
        ] {
            match TaskReport::read(&line) {
                Err(UnfitReport::Number { field: named, .. }) => assert_eq!(named, field),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_text_loses_its_nuls() {
        let read = TaskReport::read(r#"{"kind":"note","message":"a\u0000b"}"#);
        let message = "a\u{fffd}b".to_owned();
        assert_eq!(read.expect("a note"), TaskReport::Note { message });
    }
}
