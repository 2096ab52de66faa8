//! Logged models of a task, in memory.

use super::error::MlflowError;
use super::message::Malformed;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Maximum number of parameters or tags of a model.
const MAX_PAIRS: usize = 1_000;

/// Models of a task by id.
#[derive(Debug, Default)]
pub(super) struct LoggedModels(pub BTreeMap<String, LoggedModel>);

/// A model and its entries.
#[derive(Debug)]
pub(super) struct LoggedModel {
    pub info: Value,
    pub tags: BTreeMap<String, String>,
    pub params: BTreeMap<String, String>,
}

impl LoggedModel {
    pub fn shown(&self) -> Value {
        let pairs = |pairs: &BTreeMap<String, String>| -> Vec<Value> {
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
    pub fn get(&mut self, id: &str) -> Result<&mut LoggedModel, MlflowError> {
        self.0.get_mut(id).ok_or_else(|| {
            let message = format!("this task has logged no model {id:?}");
            MlflowError::new(StatusCode::NOT_FOUND, "RESOURCE_DOES_NOT_EXIST", message)
        })
    }
}

/// Adds pairs, unless there would be too many.
pub(super) fn add(
    to: &mut BTreeMap<String, String>,
    pairs: Vec<(String, String)>,
    field: &'static str,
) -> Result<(), Malformed> {
    if to.len() + pairs.len() > MAX_PAIRS {
        return Err(Malformed {
            field,
            expected: "at most 1000",
        });
    }
    to.extend(pairs);
    Ok(())
}
