//! A NUL is refused in every parameter and every text of a body that the interface describes.

use crate::world::{ADMIN, World, json_request, request};
use axum::body::Body;
use axum::http::header::UPGRADE;
use axum::http::{HeaderValue, Method};
use muster_api::config::ClientLimits;
use muster_model::remote::PROTOCOL;
use serde_json::{Map, Value, json};

/// Levels of a schema that are visited; layers contain layers.
const MAX_LEVELS: usize = 9;

/// Returns every operation of the document: method, path and description.
fn operations(document: &Value) -> Vec<(Method, String, &Value)> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("methods") {
            let method = method.to_uppercase().parse().expect("a method");
            operations.push((method, path.clone(), operation));
        }
    }
    operations
}

fn parameters<'a>(operation: &'a Value, place: &'a str) -> impl Iterator<Item = &'a str> {
    let all = operation["parameters"].as_array().into_iter().flatten();
    all.filter(move |parameter| parameter["in"] == place)
        .map(|parameter| parameter["name"].as_str().expect("a name"))
}

/// Returns the path with `%00` in place of one parameter, and a valid text in place of the others.
fn with(path: &str, nul: &str) -> String {
    let parts = path.split('/').map(|part| match part {
        part if part == format!("{{{nul}}}") => "a%00b",
        "{step}" => "1",
        "{id}" => "00000000-0000-7000-8000-000000000000",
        part if part.starts_with('{') => "x",
        part => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[tokio::test(flavor = "multi_thread")]
async fn nul_in_any_parameter_is_refused() {
    let world = World::new().await;
    let document: Value = serde_json::from_str(&muster_api::openapi::text()).expect("JSON");
    let mut tried = 0;
    for (method, path, operation) in operations(&document) {
        let mut uris: Vec<(String, &str)> = parameters(operation, "path")
            .map(|name| (with(&path, name), "path"))
            .collect();
        for name in parameters(operation, "query") {
            let path = with(&path, "");
            uris.push((format!("{path}?{name}=%00"), name));
            uris.push((format!("{path}?{name}=a%3Db%00c"), name));
        }
        uris.push((format!("{}?a%00=1", with(&path, "")), "a\\0"));
        for (uri, field) in uris {
            let answer = world
                .send(request(method.clone(), ADMIN, &uri, Body::empty()))
                .await;
            let text = format!("{method} {uri}: {}", answer.text());
            assert_eq!(answer.status, 400, "{text}");
            let problem = answer.problem();
            assert_eq!(problem.errors[0].field, field, "{text}");
            assert!(problem.errors[0].expected.contains("NUL"), "{text}");
            tried += 1;
        }
    }
    assert!(tried > 150, "{tried}");
    for path in [
        "/%00",
        "/assets/%00.js",
        "/api/v1/%00",
        "/api/v1/nodes/a%00",
    ] {
        let answer = world.get(ADMIN, path).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
    }
}

/// Returns values that conform to the schema, each with a NUL in one text or one field name, and
/// the field that the error must name.
fn with_nul(document: &Value, schema: &Value, levels: usize) -> Vec<(Value, String)> {
    if levels == 0 {
        return Vec::new();
    }
    let within = |schema: &Value| with_nul(document, schema, levels - 1);
    if let Some(reference) = schema["$ref"].as_str() {
        let place = reference.strip_prefix('#').expect("a reference within");
        return with_nul(document, document.pointer(place).expect("there"), levels);
    }
    let mut found = Vec::new();
    for kind in ["oneOf", "anyOf", "allOf"] {
        for one in schema[kind].as_array().into_iter().flatten() {
            found.extend(with_nul(document, one, levels));
        }
    }
    if has_type(schema, "string") {
        found.push((json!("a\u{0}b"), String::new()));
    }
    if has_type(schema, "array") {
        let items = within(&schema["items"]).into_iter();
        found.extend(items.map(|(item, field)| (json!([item]), below("[0]", &field))));
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let values = within(schema).into_iter();
        found.extend(values.map(|(value, field)| (object(name, value), below(name, &field))));
    }
    if schema["additionalProperties"].is_object() {
        found.push((object("a\u{0}b", json!("x")), String::new()));
        let values = within(&schema["additionalProperties"]).into_iter();
        found.extend(values.map(|(value, field)| (object("key", value), below("key", &field))));
    }
    found
}

/// Whether the schema's type is this one, or this is one of its types.
fn has_type(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(|one| one == kind),
        one => one == kind,
    }
}

fn object(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}

fn below(name: &str, field: &str) -> String {
    match field {
        "" => name.to_owned(),
        field if field.starts_with('[') => format!("{name}{field}"),
        field => format!("{name}.{field}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nul_in_any_text_of_a_body_is_refused() {
    let world = World::with(ClientLimits {
        requests_burst: 1_000_000,
        tenant_requests_burst: 1_000_000,
        ..ClientLimits::default()
    })
    .await;
    let document: Value = serde_json::from_str(&muster_api::openapi::text()).expect("JSON");
    let before = world.everything().await;
    let mut tried = 0;
    for (method, path, operation) in operations(&document) {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        if schema.is_null() {
            continue;
        }
        for (body, field) in with_nul(&document, schema, MAX_LEVELS) {
            let uri = with(&path, "");
            let mut request = json_request(method.clone(), ADMIN, &uri, &body);
            // Remote sessions need it; other routes do not read it.
            let protocol = HeaderValue::from_static(PROTOCOL);
            request.headers_mut().insert(UPGRADE, protocol);
            let answer = world.send(request).await;
            let text = format!("{method} {uri} {body}: {}", answer.text());
            assert_eq!(answer.status, 422, "{text}");
            let errors = answer.problem().errors;
            let expected = if field.is_empty() {
                "the document"
            } else {
                &field
            };
            assert_eq!(errors[0].field, expected, "{text}");
            assert!(errors[0].expected.contains("NUL"), "{text}");
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");
    assert_eq!(world.everything().await, before);
}
