//! Reads reports that a user's program may have written. Values that Postgres cannot store or add
//! up are rejected here, so that they do not block the other reports of the node.

use crate::assignment::{Observed, TaskReport};
use crate::metric::{self, UnfitMetrics};
use serde_json::Value;

/// Maximum length of a line of `events.jsonl` in bytes.
pub const MAX_LINE_BYTES: usize = 16 << 10;
/// Maximum size of a stored report in bytes. A line that was parsed and serialised again may be
/// longer.
pub const MAX_REPORT_BYTES: usize = 2 * MAX_LINE_BYTES;
/// Largest absolute value of a number in a report: sums over all samples of a job stay finite.
pub const LARGEST_NUMBER: f64 = 1e30;
/// Largest number of tasks: the store has a signed 32-bit integer.
const MOST_TASKS: f64 = 2_147_483_647.0;
/// Largest epoch count that still is a 64-bit integer after rounding.
const LARGEST_EPOCH: f64 = 1e15;

/// Why a line is not an acceptable report.
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
    #[error(transparent)]
    Metrics(#[from] UnfitMetrics),
}

impl TaskReport {
    /// Parses a line of `events.jsonl`. NUL characters in texts become U+FFFD, because Postgres
    /// cannot store them.
    ///
    /// # Errors
    /// [`UnfitReport`], which names the number or the metric that is not acceptable.
    pub fn read(line: &str) -> Result<Self, UnfitReport> {
        let mut value: Value = serde_json::from_str(line)?;
        clean(&mut value);
        fit("", &value)?;
        let report = serde_json::from_value(value)?;
        if let Self::Metrics { points } = &report {
            metric::check(points)?;
        }
        if let Self::Progress { sample } = &report {
            let updates_per_s = sample.updates_per_s();
            if updates_per_s.abs() > LARGEST_NUMBER {
                return Err(UnfitReport::Number {
                    field: "sample.steps_per_s / sample.gain".to_owned(),
                    value: format!("{updates_per_s:e}"),
                    most: LARGEST_NUMBER,
                });
            }
        }
        Ok(report)
    }
}

impl Observed {
    /// Parses the state of a task as its node observed it. A program may have written its end.
    /// Texts are cleaned as in [`TaskReport::read`].
    ///
    /// # Errors
    /// If the text is not such JSON.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        let mut value: Value = serde_json::from_str(text)?;
        clean(&mut value);
        serde_json::from_value(value)
    }
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) => {
            if text.contains('\0') {
                *text = text.replace('\0', "\u{fffd}");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(fields) => fields.values_mut().for_each(clean),
        Value::Number(_) | Value::Null | Value::Bool(_) => {}
    }
}

fn fit(path: &str, value: &Value) -> Result<(), UnfitReport> {
    match value {
        Value::Number(number) => {
            let most = match path.rsplit('.').next() {
                Some("epoch") => LARGEST_EPOCH,
                Some("workers" | "ps_shards") => MOST_TASKS,
                // The store keeps counts as signed 64-bit integers.
                _ if number.is_u64() => 9.2e18,
                _ => LARGEST_NUMBER,
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
            for (index, item) in items.iter().enumerate() {
                fit(&below(path, &index.to_string()), item)?;
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                fit(&below(path, name), field)?;
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) => {}
    }
    Ok(())
}

/// Returns the path of a field or an item below `path`.
fn below(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Outcome;
    use serde_json::json;

    fn evaluated(step: &str, epoch: &str, loss: &str) -> String {
        format!(
            r#"{{"kind":"evaluated","evaluation":{{"step":{step},"epoch":{epoch},"loss":{loss},"accuracy":0.5}}}}"#
        )
    }

    #[test]
    fn numbers_outside_the_stores_range_are_named() {
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

    /// Reads progress whose sample has the `changed` fields.
    fn read_sample(changed: &Value) -> Result<TaskReport, UnfitReport> {
        let mut sample = json!({
            "step": 1, "epoch": 1.0, "loss": 1.0, "accuracy": 0.5, "examples_per_s": 1.0, "steps_per_s": 1.0, "compute_ms": 1.0,
            "exchange_ms": 1.0, "data_ms": 1.0, "workers": 1, "ps_shards": 1,
        });
        for (name, value) in changed.as_object().expect("fields") {
            sample[name] = value.clone();
        }
        TaskReport::read(&json!({ "kind": "progress", "sample": sample }).to_string())
    }

    #[test]
    fn rate_derived_from_a_sample_is_bounded() {
        let right = json!({ "workers": i32::MAX, "steps_per_s": 1e10, "gain": 1e-19 });
        assert!(read_sample(&right).is_ok());
        for (changed, field) in [
            (json!({ "workers": 1_u64 << 31 }), "sample.workers"),
            (json!({ "ps_shards": u32::MAX }), "sample.ps_shards"),
            (
                json!({ "steps_per_s": 1.7, "gain": 1e-308 }),
                "sample.steps_per_s / sample.gain",
            ),
            (
                json!({ "steps_per_s": 1e30, "gain": 1e-308 }),
                "sample.steps_per_s / sample.gain",
            ),
        ] {
            match read_sample(&changed) {
                Err(UnfitReport::Number { field: named, .. }) => assert_eq!(named, field),
                other => panic!("{changed}: {other:?}"),
            }
        }
    }

    #[test]
    fn unfit_metrics_are_refused_with_their_name() {
        let read = |points: Value| {
            let line = json!({ "kind": "metrics", "points": points }).to_string();
            TaskReport::read(&line).map_err(|error| error.to_string())
        };
        let right = json!({ "name": "val/f1", "step": 7, "value": 0.5 });
        let report = read(json!([right])).expect("a report");
        let TaskReport::Metrics { points } = report else {
            panic!("{report:?}");
        };
        assert_eq!((points[0].step, points[0].summary().count), (7, 1));
        let changed = |name: &str, value: Value| {
            let mut point = right.clone();
            point[name] = value;
            json!([point])
        };
        let merged =
            |count: u32, min: f64| json!({ "count": count, "mean": 0.5, "min": min, "max": 0.5 });
        for (points, error) in [
            (json!([]), "0 points"),
            (Value::Array(vec![right.clone(); 101]), "101 points"),
            (changed("name", json!("acc@1")), "acc@1"),
            (changed("value", json!(1e31)), "points.0.value"),
            (changed("step", json!(u64::MAX)), "points.0.step"),
            (changed("merged", merged(0, 0.5)), "no values"),
            (changed("merged", merged(2, 0.6)), "min above max"),
        ] {
            let refused = read(points).expect_err(error);
            assert!(refused.contains(error), "{refused}");
        }
    }

    #[test]
    fn nul_in_a_text_is_replaced() {
        let read = TaskReport::read(r#"{"kind":"note","message":"a\u0000b"}"#);
        let message = "a\u{fffd}b".to_owned();
        assert_eq!(read.expect("a note"), TaskReport::Note { message });
        let gone = r#"{"phase":"gone","outcome":{"kind":"exited","code":1,"said":"a\u0000b"}}"#;
        let outcome = Outcome::Exited {
            code: 1,
            said: Some("a\u{fffd}b".to_owned()),
        };
        assert_eq!(
            Observed::read(gone).expect("an end"),
            Observed::Gone { outcome }
        );
    }
}
