//! Request bodies: JSON or YAML, read strictly, with errors that name the field, the value and what would be right.

use crate::problem::{Kind, Refusal};
use crate::state::App;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use futures::StreamExt as _;
use muster_model::spec::FieldError;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A body that is too large is read and thrown away up to so many times the limit, because a client that is cut off while it
/// sends may never read the answer.
const DRAINED_LIMITS: usize = 32;

/// A body that was read as a `T`, and its bytes.
pub struct Document<T> {
    pub value: T,
    pub bytes: Bytes,
}

/// Documents that have a kind of problem of their own.
pub trait Invalid {
    const KIND: Kind = Kind::InvalidBody;
}

impl Invalid for muster_model::spec::JobSpec {
    const KIND: Kind = Kind::InvalidJob;
}

impl Invalid for muster_model::view::NewTenant {}
impl Invalid for muster_model::view::TenantChange {}
impl Invalid for muster_model::view::NewToken {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Yaml,
}

impl<T: DeserializeOwned + Invalid> FromRequest<App> for Document<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refusal> {
        let format = format(&request)?;
        let limit = app.limits.body_bytes;
        let asks_first = request.headers().contains_key(EXPECT);
        // Who asks before sending is answered before reading.
        if asks_first && announced(&request).is_some_and(|length| length > limit) {
            return Err(too_large(limit));
        }
        let bytes = collect(request.into_body(), limit).await?;
        let value = match format {
            Format::Json => json(&bytes),
            Format::Yaml => yaml(&bytes),
        }?;
        Ok(Self { value, bytes })
    }
}

fn format(request: &Request) -> Result<Format, Refusal> {
    let given = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = given
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => Ok(Format::Json),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => Ok(Format::Yaml),
        _ => {
            let error = FieldError {
                field: "Content-Type".to_owned(),
                value: format!("{given:?}"),
                expected: "application/json or application/yaml".to_owned(),
            };
            Err(Refusal::with_errors(
                Kind::UnsupportedMediaType,
                error.to_string(),
                vec![error],
            ))
        }
    }
}

fn announced(request: &Request) -> Option<usize> {
    request
        .headers()
        .get(CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

async fn collect(body: Body, limit: usize) -> Result<Bytes, Refusal> {
    let mut stream = body.into_data_stream();
    let mut read = Vec::new();
    let mut length = 0_usize;
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|_| {
            Refusal::new(
                Kind::MalformedBody,
                "the body ended before its announced length",
            )
        })?;
        length += piece.len();
        if length <= limit {
            read.extend_from_slice(&piece);
        } else if length > limit.saturating_mul(DRAINED_LIMITS) {
            break;
        }
    }
    if length > limit {
        Err(too_large(limit))
    } else {
        Ok(read.into())
    }
}

fn too_large(limit: usize) -> Refusal {
    Refusal::new(
        Kind::BodyTooLarge,
        format!("a body may have at most {limit} bytes"),
    )
}

fn json<T: DeserializeOwned + Invalid>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        if error.is_data() {
            let document = serde_json::from_slice(bytes).unwrap_or_default();
            wrong::<T>(&path, &without_position(&error.to_string()), &document)
        } else {
            Refusal::new(Kind::MalformedBody, format!("not JSON: {error}"))
        }
    })?;
    reader
        .end()
        .map_err(|error| Refusal::new(Kind::MalformedBody, format!("not JSON: {error}")))?;
    Ok(read)
}

fn yaml<T: DeserializeOwned + Invalid>(bytes: &[u8]) -> Result<T, Refusal> {
    let malformed = |error: serde_norway::Error| {
        Refusal::new(Kind::MalformedBody, format!("not YAML: {error}"))
    };
    // Through a value first, which tells documents that are no YAML from those that are no `T`.
    let document: serde_norway::Value = serde_norway::from_slice(bytes).map_err(malformed)?;
    serde_path_to_error::deserialize(document.clone()).map_err(|error| {
        let path = error.path().to_string();
        let document = serde_json::to_value(&document).unwrap_or_default();
        wrong::<T>(&path, &error.into_inner().to_string(), &document)
    })
}

/// A document whose shape is not that of a `T`.
fn wrong<T: Invalid>(path: &str, message: &str, document: &Value) -> Refusal {
    let error = field_error(path, message, document);
    Refusal::with_errors(T::KIND, error.to_string(), vec![error])
}

/// serde says what is wrong in a sentence; this takes it apart.
fn field_error(path: &str, message: &str, document: &Value) -> FieldError {
    let path = if path == "." { "" } else { path };
    let at = |path: &str| find(document, path).map_or_else(|| "missing".to_owned(), short);
    let join = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    if let Some((name, rest)) = quoted(message, "unknown field `") {
        let field = if path.rsplit('.').next() == Some(name) {
            path.to_owned()
        } else {
            join(name)
        };
        let value = at(&field);
        return FieldError {
            field,
            value,
            expected: format!("no such field; {}", expected(rest, "one of ")),
        };
    }
    if let Some((name, _)) = quoted(message, "missing field `") {
        return FieldError {
            field: join(name),
            value: "missing".to_owned(),
            expected: "a value; the field is required".to_owned(),
        };
    }
    if let Some((name, _)) = quoted(message, "duplicate field `") {
        return FieldError {
            field: join(name),
            value: "given twice".to_owned(),
            expected: "one value".to_owned(),
        };
    }
    if let Some((name, rest)) = quoted(message, "unknown variant `") {
        let field = tag_of(document, path, name).map_or_else(|| path.to_owned(), |tag| join(&tag));
        return FieldError {
            field,
            value: format!("{name:?}"),
            expected: expected(rest, "one of "),
        };
    }
    if message.starts_with("invalid length ") {
        // serde reads a list as an object's fields in order, and complains only of their number.
        let field = if path.is_empty() {
            named(None)
        } else {
            path.to_owned()
        };
        return FieldError {
            value: at(path),
            field,
            expected: "an object".to_owned(),
        };
    }
    // "invalid type: string \"x\", expected u32"
    let (found, wanted) = message
        .split_once(": ")
        .and_then(|(_, rest)| rest.rsplit_once(", expected "))
        .unwrap_or(("", message));
    let field = if path.is_empty() {
        named(culprit(document, found))
    } else {
        inside(document, path, found)
    };
    let value = find(document, &field).map_or_else(|| found.to_owned(), short);
    FieldError {
        field,
        value,
        expected: in_words(wanted),
    }
}

/// The text between `before` and the next backtick, and what follows it.
fn quoted<'a>(message: &'a str, before: &str) -> Option<(&'a str, &'a str)> {
    let start = message.find(before)? + before.len();
    message[start..].split_once('`')
}

fn expected(rest: &str, list: &str) -> String {
    let names = rest
        .trim_start_matches(", expected ")
        .trim_start_matches("one of ")
        .replace('`', "");
    if names.contains(", ") || names.contains(" or ") {
        format!("{list}{names}")
    } else {
        names.trim_start_matches(", ").to_owned()
    }
}

/// serde reads a tagged enum as a whole before it looks inside, and so loses the path below it: the field whose value it
/// complains of is looked for, and named if there is exactly one.
fn inside(document: &Value, path: &str, found: &str) -> String {
    match find(document, path) {
        Some(whole @ (Value::Object(_) | Value::Array(_))) => match culprit(whole, found) {
            Some(below) if !below.is_empty() => {
                if below.starts_with('[') {
                    format!("{path}{below}")
                } else {
                    format!("{path}.{below}")
                }
            }
            _ => path.to_owned(),
        },
        _ => path.to_owned(),
    }
}

fn named(path: Option<String>) -> String {
    path.filter(|path| !path.is_empty())
        .unwrap_or_else(|| "the document".to_owned())
}

fn culprit(whole: &Value, found: &str) -> Option<String> {
    let mut hits = Vec::new();
    walk(whole, String::new(), &mut |path, value| {
        if unexpected(value).is_some_and(|text| text == found) {
            hits.push(path.to_owned());
        }
    });
    if hits.len() == 1 { hits.pop() } else { None }
}

fn walk(value: &Value, path: String, visit: &mut impl FnMut(&str, &Value)) {
    visit(&path, value);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let below = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                walk(value, below, visit);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                walk(value, format!("{path}[{index}]"), visit);
            }
        }
        _ => {}
    }
}

/// A value as serde names it when it did not expect it.
fn unexpected(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some("null".to_owned()),
        Value::Bool(value) => Some(format!("boolean `{value}`")),
        Value::Number(number) if number.is_f64() => {
            let text = number.to_string();
            Some(format!("floating point `{text}`"))
        }
        Value::Number(number) => Some(format!("integer `{number}`")),
        Value::String(text) => Some(format!("string {text:?}")),
        Value::Array(_) => Some("sequence".to_owned()),
        Value::Object(_) => Some("map".to_owned()),
    }
}

/// The field of the object at `path` that holds `name`, if the path itself does not.
fn tag_of(document: &Value, path: &str, name: &str) -> Option<String> {
    let fields = if path.is_empty() {
        document
    } else {
        find(document, path)?
    }
    .as_object()?;
    fields
        .iter()
        .find(|(_, value)| value.as_str() == Some(name))
        .map(|(field, _)| field.clone())
}

/// The value at a path such as `scale.workers.min` or `engine.model.hidden[0]`.
fn find<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() || path == "the document" {
        return Some(document);
    }
    let mut value = document;
    for part in path.split('.') {
        let mut names = part.split('[');
        let name = names.next().filter(|name| !name.is_empty());
        if let Some(name) = name {
            value = value.get(name)?;
        }
        for index in names {
            value = value.get(index.trim_end_matches(']').parse::<usize>().ok()?)?;
        }
    }
    Some(value)
}

fn short(value: &Value) -> String {
    const LONGEST: usize = 100;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn in_words(wanted: &str) -> String {
    match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more".to_owned(),
        "i32" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        other => other
            .strip_prefix("struct ")
            .map_or_else(|| other.to_owned(), |name| format!("an object ({name})")),
    }
}

fn without_position(message: &str) -> String {
    message
        .rsplit_once(" at line ")
        .map_or(message, |(text, _)| text)
        .to_owned()
}
