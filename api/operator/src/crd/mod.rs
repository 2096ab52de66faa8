//! The custom resource definitions, as `muster-operator crds` prints them and the chart carries them.
//!
//! What a job or a study is comes from the REST interface's own description, so that it is said once. What belongs to Kubernetes alone
//! (suspend, status, columns, names) is said here. Rules in CEL hold on servers that know them (1.25 and later) and are passed over by
//! older ones; whatever is refused by no schema is refused by the REST interface, and shown as the condition `Misconfigured`.

mod rules;
mod structural;
mod study;
mod tenant;
mod training_job;

pub use structural::structural;

use serde_json::{Value, json};

pub const GROUP: &str = "muster.dev";
pub const VERSION: &str = "v1alpha1";

/// What the REST interface says of itself.
const OPENAPI: &str = include_str!("../../../openapi.json");

/// All of them, in the order of their names.
#[must_use]
pub fn all() -> Vec<Value> {
    let openapi = serde_json::from_str(OPENAPI).expect("the description is JSON; a test reads it");
    vec![
        study::definition(&openapi),
        tenant::definition(&openapi),
        training_job::definition(&openapi),
    ]
}

/// As YAML, one document each.
#[must_use]
pub fn yaml() -> String {
    let documents = all().into_iter().map(|definition| {
        let text = serde_norway::to_string(&definition).expect("a definition is YAML");
        format!("---\n{text}")
    });
    let about = "# Written by `muster-operator crds`; a test holds this file to it.\n";
    about.to_owned() + &documents.collect::<String>()
}

/// What the definitions differ in.
struct Kind {
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short: &'static [&'static str],
    scope: &'static str,
    about: &'static str,
    columns: Value,
    spec: Value,
    status: Value,
    /// Whether `kubectl scale` sets `spec.replicas`.
    scales: bool,
    /// Rules in CEL over the whole object.
    rules: Value,
}

impl Kind {
    fn definition(self) -> Value {
        let mut subresources = json!({ "status": {} });
        if self.scales {
            let (wanted, there) = (".spec.replicas", ".status.replicas");
            subresources["scale"] =
                json!({ "specReplicasPath": wanted, "statusReplicasPath": there });
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{}.{GROUP}", self.plural),
                "labels": { "app.kubernetes.io/part-of": "muster" },
            },
            "spec": {
                "group": GROUP,
                "scope": self.scope,
                "names": {
                    "kind": self.kind,
                    "listKind": format!("{}List", self.kind),
                    "plural": self.plural,
                    "singular": self.singular,
                    "shortNames": self.short,
                    "categories": ["muster"],
                },
                "versions": [{
                    "name": VERSION,
                    "served": true,
                    "storage": true,
                    "subresources": subresources,
                    "additionalPrinterColumns": self.columns,
                    "schema": { "openAPIV3Schema": {
                        "type": "object",
                        "description": self.about,
                        "required": ["spec"],
                        "x-kubernetes-validations": self.rules,
                        "properties": {
                            "apiVersion": {
                                "type": "string",
                                "description": "The version of this form of the object, muster.dev/v1alpha1.",
                            },
                            "kind": { "type": "string", "description": "What the object is." },
                            "metadata": { "type": "object" },
                            "spec": self.spec,
                            "status": self.status,
                        },
                    } },
                }],
            },
        })
    }
}

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn whole(about: &str) -> Value {
    json!({ "type": "integer", "format": "int64", "description": about })
}

fn flag(about: &str) -> Value {
    json!({ "type": "boolean", "description": about })
}

fn time(about: &str) -> Value {
    json!({ "type": "string", "format": "date-time", "description": about })
}

/// As `kubectl get` shows it.
fn column(name: &str, kind: &str, path: &str, about: &str) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path, "description": about })
}

/// As `kubectl get -o wide` shows it.
fn wide(name: &str, kind: &str, path: &str, about: &str) -> Value {
    let mut column = column(name, kind, path, about);
    column["priority"] = 1.into();
    column
}

fn age() -> Value {
    column(
        "Age",
        "date",
        ".metadata.creationTimestamp",
        "Since the object was created.",
    )
}

/// As Kubernetes' own objects have them.
fn conditions(about: &str) -> Value {
    json!({
        "type": "array",
        "description": about,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One thing that holds, or does not.",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": text("What is said to hold."),
                "status": {
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                    "description": "Whether it holds.",
                },
                "reason": text("Why, in one word."),
                "message": text("Why, in a sentence."),
                "lastTransitionTime": time("Since when."),
                "observedGeneration": whole("The metadata.generation of the object by which this was found."),
            },
        },
    })
}

#[cfg(test)]
mod tests;
