//! Job document of an object.

use crate::rejection::ObjectRejection;
use crate::resource::{Object, ObjectStatus};
use kube::ResourceExt as _;
use muster_client::ClientError;
use muster_model::spec::FieldError;
use serde_json::{Map, Value, json};

/// Labels that identify the jobs of this operator's objects in Muster.
pub mod label {
    /// Name of the operator; two Kubernetes clusters may share one Muster.
    pub const OPERATOR: &str = "muster.dev/operator";
    pub const NAMESPACE: &str = "muster.dev/namespace";
    /// Uid of the object, which is unique for ever.
    pub const UID: &str = "muster.dev/uid";
}

pub const VERSION: (&str, &str) = ("version", "muster/v1");

/// Returns `spec` without the fields of Kubernetes, with the object's name and the labels that lead
/// back to it. `fixed` are fields that every such document has.
#[must_use]
pub fn document<S: ObjectStatus>(
    object: &Object<S>,
    operator: &str,
    fixed: &[(&str, &str)],
) -> Value {
    let mut document = object.spec.as_object().cloned().unwrap_or_default();
    document.remove("suspend");
    // `kubectl scale` sets an exact number, which overrides the range.
    if let Some(replicas) = document.remove("replicas") {
        let scale = document.entry("scale").or_insert_with(|| Map::new().into());
        if let Some(scale) = scale.as_object_mut() {
            let exactly = json!({ "min": replicas, "max": replicas });
            scale.insert("workers".to_owned(), exactly);
        }
    }
    for (field, value) in fixed {
        document.insert((*field).to_owned(), (*value).into());
    }
    document.insert("name".to_owned(), object.name().into());
    let labels = document
        .entry("labels")
        .or_insert_with(|| Map::new().into());
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(label::OPERATOR.to_owned(), operator.into());
        labels.insert(
            label::NAMESPACE.to_owned(),
            object.namespace().unwrap_or_default().into(),
        );
        labels.insert(label::UID.to_owned(), object.uid_text().into());
    }
    document.into()
}

/// Returns a key that is unique for every object that has ever existed; the name is for human
/// readers. At most 255 characters.
#[must_use]
pub fn idempotency_key<S: ObjectStatus>(object: &Object<S>) -> String {
    let namespace = object.namespace().unwrap_or_default();
    let name: String = object.name().chars().take(100).collect();
    format!("kubernetes/{namespace}/{name}/{}", object.uid_text())
}

/// Returns why the REST interface rejects the document permanently; `None` for an error that a
/// retry may solve.
#[must_use]
pub fn refusal(error: &ClientError) -> Option<ObjectRejection> {
    let ClientError::Problem(problem) = error else {
        return None;
    };
    let reason = match problem.status {
        400 | 413 | 422 => "InvalidDocument",
        403 => "Forbidden",
        _ => return None,
    };
    let message = if problem.errors.is_empty() {
        problem.detail.clone()
    } else {
        let fields: Vec<String> = problem.errors.iter().map(in_object).collect();
        fields.join("; ")
    };
    Some(ObjectRejection { reason, message })
}

/// Describes the error with the field's name in the object.
fn in_object(error: &FieldError) -> String {
    match error.field.as_str() {
        "name" => format!(
            "metadata.name is {}; expected {}",
            error.value, error.expected
        ),
        // In a change the field is `workers`; in the document it is part of `scale`.
        field if field.starts_with("workers") => format!("spec.scale.{error}"),
        _ => format!("spec.{error}"),
    }
}
