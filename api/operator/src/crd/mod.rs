//! Custom resource definitions, which `muster-operator crds` prints and the chart contains.
//!
//! The schema of a job or a study is generated from the REST interface's OpenAPI document, so that
//! it has one source. This module adds the parts of Kubernetes (suspend, status, columns, names).
//! CEL rules apply on servers that support them (1.25 and later); older servers ignore them. The
//! REST interface rejects what no schema rejects, and the object then shows the condition
//! `Misconfigured`.

mod rules;
mod structural;
mod study;
mod tenant;
mod training_job;

pub use structural::structural;

use serde_json::{Value, json};

pub const GROUP: &str = "muster.dev";
pub const VERSION: &str = "v1alpha1";

/// OpenAPI document of the REST interface.
const OPENAPI: &str = include_str!("../../../openapi.json");

/// Returns all definitions in the order of their names.
#[must_use]
pub fn all() -> Vec<Value> {
    let openapi = serde_json::from_str(OPENAPI).expect("the description is JSON; a test reads it");
    vec![
        study::definition(&openapi),
        tenant::definition(&openapi),
        training_job::definition(&openapi),
    ]
}

/// Returns the definitions as YAML, one document each.
#[must_use]
pub fn yaml() -> String {
    let documents = all().into_iter().map(|definition| {
        let text = serde_norway::to_string(&definition).expect("a definition is YAML");
        format!("---\n{text}")
    });
    let about = "# Written by `muster-operator crds`; a test holds this file to it.\n";
    about.to_owned() + &documents.collect::<String>()
}

/// Differences between the definitions.
struct CustomResourceKind {
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
    /// CEL rules over the whole object.
    rules: Value,
}

impl CustomResourceKind {
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

/// Column of `kubectl get`.
fn column(name: &str, kind: &str, path: &str, about: &str) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path, "description": about })
}

/// Column of `kubectl get -o wide`.
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

/// Schema of conditions, in the format of Kubernetes' own objects.
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
