//! `api/openapi.json` is the document that the code generates. To update it:
//! `cargo run -p muster-api -- openapi > api/openapi.json`.

use crate::world::{RED, World, request};
use axum::body::Body;
use axum::http::Method;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

#[test]
fn stored_openapi_document_equals_the_generated_one() {
    let kept = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json"))
        .expect("api/openapi.json");
    assert!(
        kept == muster_api::openapi::text(),
        "api/openapi.json is not what the code says; if that is meant: cargo run -p muster-api -- openapi > api/openapi.json"
    );
}

#[test]
fn openapi_references_are_resolved() {
    let document: Value = serde_json::from_str(&muster_api::openapi::text()).expect("JSON");
    assert!(
        document["openapi"]
            .as_str()
            .expect("a version")
            .starts_with("3.1")
    );
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(references.len() > 100);
    for reference in references {
        let place = reference.strip_prefix('#').expect("a reference within");
        assert!(document.pointer(place).is_some(), "{reference}");
    }
}

/// Client generators name functions by it and keep only one of two with the same name.
#[test]
fn openapi_operations_have_unique_names() {
    let document: Value = serde_json::from_str(&muster_api::openapi::text()).expect("JSON");
    let mut named: BTreeMap<&str, String> = BTreeMap::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("methods") {
            let name = operation["operationId"]
                .as_str()
                .unwrap_or_else(|| panic!("{method} {path} has no operationId"));
            let place = format!("{method} {path}");
            if let Some(other) = named.insert(name, place.clone()) {
                panic!("{name} is both {other} and {place}");
            }
        }
    }
    assert!(named.len() >= 28);
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            references.extend(
                fields
                    .get("$ref")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            );
            fields.values().for_each(|value| collect(value, references));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, references)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_document_is_served_and_its_paths_are_routes() {
    let world = World::new().await;
    let document: Value = world.get("", "/openapi.json").await.json();
    for (path, item) in document["paths"].as_object().expect("paths") {
        let path = path
            .replace("{id}", "00000000-0000-7000-8000-000000000000")
            .replace("{name}", "x")
            .replace("{step}", "1");
        for method in item.as_object().expect("methods").keys() {
            let method: Method = method.to_uppercase().parse().expect("a method");
            let asked = world.send(request(method.clone(), RED, &path, Body::empty()));
            // A stream does not end; an open stream is a sufficient answer.
            let Ok(answer) = tokio::time::timeout(Duration::from_millis(500), asked).await else {
                continue;
            };
            assert!(
                !matches!(answer.status.as_u16(), 405 | 500),
                "{method} {path}: {}",
                answer.text()
            );
            assert!(
                !answer.text().contains("there is nothing at"),
                "{method} {path}"
            );
        }
    }
}
