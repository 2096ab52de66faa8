//! Logged models of a task, in memory.

use super::error::MlflowError;
use super::message::Malformed;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Maximum number of parameters or tags of a model.
const MAX_PAIRS: usize = 1_000;

/// Maximum number of models of a task.
const MAX_MODELS: usize = 100;
/// Maximum size of all texts of a task's models.
const MAX_BYTES: usize = 4 << 20;
/// Maximum number of bytes of a model's status.
const MAX_STATUS_BYTES: usize = 64;

/// Pairs of a model by key.
pub(super) type Pairs = BTreeMap<String, String>;

/// Models of a task by id.
#[derive(Debug, Default)]
pub(super) struct LoggedModels {
    by_id: BTreeMap<String, LoggedModel>,
    /// Size of their texts.
    bytes: usize,
}

/// A model and its entries.
#[derive(Debug)]
pub(super) struct LoggedModel {
    pub info: Value,
    pub tags: Pairs,
    pub params: Pairs,
}

impl LoggedModel {
    pub fn shown(&self) -> Value {
        let pairs = |pairs: &Pairs| -> Vec<Value> {
            let pairs = pairs.iter();
            pairs
                .map(|(key, value)| json!({ "key": key, "value": value }))
                .collect()
        };
        let mut info = self.info.clone();
        info["tags"] = pairs(&self.tags).into();
        json!({ "model": { "info": info, "data": { "params": pairs(&self.params) } } })
    }
}

impl LoggedModels {
    pub fn all(&self) -> impl Iterator<Item = &LoggedModel> {
        self.by_id.values()
    }

    pub fn get(&mut self, id: &str) -> Result<&mut LoggedModel, MlflowError> {
        self.by_id.get_mut(id).ok_or_else(|| {
            let message = format!("this task has logged no model {id:?}");
            MlflowError::new(StatusCode::NOT_FOUND, "RESOURCE_DOES_NOT_EXIST", message)
        })
    }

    /// Adds a model, unless the task would have too many or too large ones.
    pub fn insert(&mut self, id: String, model: LoggedModel) -> Result<(), MlflowError> {
        if self.by_id.len() >= MAX_MODELS {
            return Err(exhausted(format!(
                "a task has at most {MAX_MODELS} logged models"
            )));
        }
        let texts = ["name", "model_type"].map(|field| model.info[field].as_str());
        let texts = texts.into_iter().flatten().map(str::len);
        let own = texts.sum::<usize>() + MAX_STATUS_BYTES;
        let bytes = own + size(&model.tags) + size(&model.params);
        self.bytes = fitting(self.bytes + bytes)?;
        self.by_id.insert(id, model);
        Ok(())
    }

    /// Adds pairs to those that `of` returns, unless there would be too many or too large ones.
    pub fn add(
        &mut self,
        id: &str,
        (of, field): (fn(&mut LoggedModel) -> &mut Pairs, &'static str),
        pairs: Vec<(String, String)>,
    ) -> Result<&mut LoggedModel, MlflowError> {
        let bytes = self.bytes;
        let to = of(self.get(id)?);
        if to.len() + pairs.len() > MAX_PAIRS {
            let expected = "at most 1000";
            return Err(Malformed { field, expected }.into());
        }
        let pairs: Pairs = pairs.into_iter().collect();
        let replaced = pairs.keys().filter_map(|key| to.get_key_value(key));
        let replaced: usize = replaced.map(|(key, value)| key.len() + value.len()).sum();
        let bytes = fitting(bytes + size(&pairs) - replaced)?;
        to.extend(pairs);
        self.bytes = bytes;
        self.get(id)
    }
}

/// # Errors
/// [`Malformed`] unless it is a short text.
pub(super) fn status(given: &Value) -> Result<&str, Malformed> {
    let text = given.as_str().filter(|text| text.len() <= MAX_STATUS_BYTES);
    text.ok_or(Malformed {
        field: "status",
        expected: "a text of at most 64 bytes",
    })
}

fn size(pairs: &Pairs) -> usize {
    pairs
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum()
}

fn fitting(bytes: usize) -> Result<usize, MlflowError> {
    if bytes <= MAX_BYTES {
        return Ok(bytes);
    }
    Err(exhausted(format!(
        "the names, types, tags, params and statuses of a task's logged models have at most \
         {MAX_BYTES} bytes"
    )))
}

fn exhausted(message: String) -> MlflowError {
    MlflowError::new(StatusCode::FORBIDDEN, "RESOURCE_EXHAUSTED", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> LoggedModel {
        LoggedModel {
            info: json!({ "name": name, "model_type": "" }),
            tags: Pairs::new(),
            params: Pairs::new(),
        }
    }

    #[test]
    fn texts_of_all_models_have_one_bound() {
        let mut models = LoggedModels::default();
        let half = "x".repeat(MAX_BYTES / 2);
        models.insert("a".to_owned(), model(&half)).expect("fits");
        let refused = models.insert("b".to_owned(), model(&half));
        let refused = refused.expect_err("above the bound");
        assert!(refused.message.contains("4194304 bytes"), "{refused:?}");
        let tags =
            (|model: &mut LoggedModel| &mut model.tags) as fn(&mut LoggedModel) -> &mut Pairs;
        let pair = |key: &str, bytes: usize| vec![(key.to_owned(), "v".repeat(bytes))];
        let large = MAX_BYTES / 2 - 1_000;
        models
            .add("a", (tags, "tags"), pair("k", large))
            .expect("fits");
        // A replaced value does not count.
        models
            .add("a", (tags, "tags"), pair("k", large))
            .expect("fits");
        assert!(models.add("a", (tags, "tags"), pair("l", large)).is_err());
        assert_eq!(models.get("a").expect("there").tags.len(), 1);
    }

    #[test]
    fn status_is_a_short_text() {
        assert_eq!(
            status(&json!("LOGGED_MODEL_READY")),
            Ok("LOGGED_MODEL_READY")
        );
        assert!(status(&json!({ "a": 1 })).is_err());
        assert!(status(&json!("x".repeat(65))).is_err());
    }
}
