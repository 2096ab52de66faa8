//! The job document that an object stands for.

use crate::refused::Refused;
use crate::resource::{Object, Status};
use kube::ResourceExt as _;
use muster_client::ClientError;
use muster_model::spec::FieldError;
use serde_json::{Map, Value, json};

/// Labels by which the jobs of this operator's objects are known in Muster.
pub mod label {
    /// The operator's name: two Kubernetes clusters may share one Muster.
    pub const OPERATOR: &str = "muster.dev/operator";
    pub const NAMESPACE: &str = "muster.dev/namespace";
    /// No other object, before or after, has it.
    pub const UID: &str = "muster.dev/uid";
}

pub const VERSION: (&str, &str) = ("version", "muster/v1");

/// `spec` without what is Kubernetes' alone, with the name of the object, and labels by which it is found again. `fixed` are fields
/// that every such document has.
#[must_use]
pub fn document<S: Status>(object: &Object<S>, operator: &str, fixed: &[(&str, &str)]) -> Value {
    let mut document = object.spec.as_object().cloned().unwrap_or_default();
    document.remove("suspend");
    // What `kubectl scale` writes: so many, whatever the range beside it says.
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

/// One for each object that ever was; the name is for those who read it. At most 255 characters.
#[must_use]
pub fn idempotency_key<S: Status>(object: &Object<S>) -> String {
    let namespace = object.namespace().unwrap_or_default();
    let name: String = object.name().chars().take(100).collect();
    format!("kubernetes/{namespace}/{name}/{}", object.uid_text())
}

/// Why the REST interface will not take the document, however often it is sent; `None` for what may pass.
#[must_use]
pub fn refusal(error: &ClientError) -> Option<Refused> {
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
    Some(Refused { reason, message })
}

/// The field as it is called in the object.
fn in_object(error: &FieldError) -> String {
    match error.field.as_str() {
        "name" => format!(
            "metadata.name is {}; expected {}",
            error.value, error.expected
        ),
        // Of a change; in the document it stands within `scale`.
        field if field.starts_with("workers") => format!("spec.scale.{error}"),
        _ => format!("spec.{error}"),
    }
}
