//! Starting from a checkpoint of another job: forks, moved trials and population-based training.
//!
//! Pure: the caller looks up the other job, its tenant and its checkpoints.

use super::{Engine, FieldError, JobSpec};
use crate::id::JobId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A checkpoint of another job of the same tenant. The new job starts with its parameters,
/// optimizer state and step count, and follows its own document. `stop` includes the steps of the
/// other job. The checkpoint folder of a command contains that checkpoint when the command starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Origin {
    /// Job that wrote the checkpoint.
    pub job: JobId,
    /// Step of the checkpoint. Default: the newest one when the new job is submitted; the step is
    /// then filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
}

impl JobSpec {
    /// Checks that a job with this document can start from a checkpoint of `parent` at `step`.
    /// Returns the new job's own step at that place in the data.
    ///
    /// # Errors
    /// One [`FieldError`] per obstacle.
    pub fn check_origin(&self, parent: &Self, step: u64) -> Result<u64, Vec<FieldError>> {
        let Some(engine) = &self.engine else {
            if parent.command.is_some() {
                return Ok(step);
            }
            let expected =
                "a job with a command: a program does not read checkpoints of the built-in engine";
            let value = "a job of the built-in engine".to_owned();
            return Err(vec![wrong("from.job", value, expected.to_owned())]);
        };
        let Some(other) = &parent.engine else {
            let expected = "a job of the built-in engine, which reads no checkpoint of a program";
            let value = "a job with a command".to_owned();
            return Err(vec![wrong("from.job", value, expected.to_owned())]);
        };
        let mut errors = Vec::new();
        if network(engine) != network(other) {
            let expected =
                "the network of the job that it begins from; only its dropout may differ";
            let value = "another network".to_owned();
            errors.push(wrong("engine.model", value, expected.to_owned()));
        }
        let (own, others) = (engine.steps_per_epoch(), other.steps_per_epoch());
        let Some(begins) = same_place(step, others, own) else {
            let expected = format!(
                "a batch that gives epochs of {others} steps, as they are in the other job, or a checkpoint from the end of an epoch"
            );
            let value = format!("{}, which gives epochs of {own} steps", engine.batch);
            errors.push(wrong("engine.batch", value, expected));
            return Err(errors);
        };
        if let Some(ends) = self.max_steps().filter(|ends| *ends <= begins) {
            let expected =
                format!("more than {begins} steps: the checkpoint has {begins}, and they count");
            errors.push(wrong("stop", format!("{ends} steps"), expected));
        }
        if errors.is_empty() {
            Ok(begins)
        } else {
            Err(errors)
        }
    }
}

fn wrong(field: &str, value: String, expected: String) -> FieldError {
    FieldError {
        field: field.to_owned(),
        value,
        expected,
    }
}

/// Returns the step of a job with `own` steps per epoch at the same place in the data. `step` is
/// that of a job with `others` steps per epoch. `None` within an epoch of another length, where no
/// such place exists.
#[must_use]
pub fn same_place(step: u64, others: u64, own: u64) -> Option<u64> {
    if others == own {
        return Some(step);
    }
    let others = others.max(1);
    (step.is_multiple_of(others)).then(|| step / others * own)
}

/// Returns the settings of the network on which the shape of its parameters depends.
fn network(engine: &Engine) -> Value {
    let mut model = serde_json::to_value(&engine.model).expect("a model is JSON");
    forget_dropout(&mut model);
    model
}

fn forget_dropout(part: &mut Value) {
    match part {
        Value::Object(map) => {
            map.remove("dropout");
            if map.get("kind").is_some_and(|kind| kind == "dropout") {
                map.remove("share");
            }
            map.values_mut().for_each(forget_dropout);
        }
        Value::Array(parts) => parts.iter_mut().for_each(forget_dropout),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(more: &Value) -> JobSpec {
        let mut document = json!({
            "version": "muster/v1", "name": "fork",
            "engine": {
                "model": { "kind": "gpt", "width": 32, "blocks": 2, "heads": 2, "dropout": 0.1 },
                "dataset": { "kind": "text", "path": "a.txt", "length": 16, "train_examples": 640, "test_examples": 64 },
                "optimizer": { "kind": "adam", "learning_rate": 0.001 }, "batch": 64,
            },
            "stop": { "epochs": 4 },
        });
        for (field, value) in more.as_object().expect("fields") {
            *document.pointer_mut(field).expect("a field") = value.clone();
        }
        serde_json::from_value(document).expect("a document")
    }

    fn broken(child: &JobSpec, step: u64) -> Vec<String> {
        let told = child.check_origin(&spec(&json!({})), step);
        let errors = told.err().unwrap_or_default();
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn origin_needs_the_same_network_but_not_rates_or_seed() {
        let child = spec(&json!({
            "/engine/optimizer/learning_rate": 0.01, "/engine/model/dropout": 0.3,
        }));
        assert_eq!(broken(&child, 13), Vec::<String>::new());
        let wider = spec(&json!({ "/engine/model/width": 64 }));
        assert_eq!(broken(&wider, 13), ["engine.model"]);
    }

    #[test]
    fn origin_with_other_epoch_length_needs_an_epoch_end() {
        let child = spec(&json!({ "/engine/batch": 32 }));
        assert_eq!(broken(&child, 20), Vec::<String>::new());
        assert_eq!(broken(&child, 13), ["engine.batch"]);
        assert_eq!(same_place(20, 10, 20), Some(40));
        assert_eq!(same_place(13, 10, 20), None);
        assert_eq!(same_place(13, 10, 10), Some(13));
    }

    #[test]
    fn origin_at_or_beyond_stop_is_refused() {
        assert_eq!(broken(&spec(&json!({})), 39), Vec::<String>::new());
        assert_eq!(broken(&spec(&json!({})), 40), ["stop"]);
    }
}
