//! Request bodies: JSON or YAML, read strictly, with errors that name the field, the value and what would be right.

use crate::blame::{field_error, find, find_mut, without_position};
use crate::problem::{Kind, Refusal};
use crate::spelling::odd_word;
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

impl Invalid for muster_model::study::StudySpec {
    const KIND: Kind = Kind::InvalidStudy;
}

impl Invalid for muster_model::view::StudyExtension {}
impl Invalid for muster_model::view::Proposal {}
impl Invalid for muster_model::view::Ask {}
impl Invalid for muster_model::view::Tell {}
impl Invalid for muster_model::view::NewTenant {}
impl Invalid for muster_model::view::TenantChange {}
impl Invalid for muster_model::view::JobChange {}
impl Invalid for muster_model::view::NewToken {}
impl Invalid for crate::node::notice::Said {}
impl Invalid for muster_model::view::WhatIf {}

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
    // serde would read a list as an object's fields in their order.
    if bytes.trim_ascii_start().starts_with(b"[")
        && let Ok(list) = serde_json::from_slice(bytes)
    {
        return Err(no_object::<T>(&list));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        // What is JSON and yet is called none holds something where a word of a list is wanted.
        match serde_json::from_slice(bytes) {
            Ok(document) if error.is_data() => {
                wrong::<T>(&path, &without_position(&error.to_string()), &document)
            }
            Ok(document) => no_word::<T>(&path, &document),
            Err(_) if error.is_data() => {
                wrong::<T>(&path, &without_position(&error.to_string()), &Value::Null)
            }
            Err(_) => Refusal::new(Kind::MalformedBody, format!("not JSON: {error}")),
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
    if document.is_sequence() {
        let list = serde_json::to_value(&document).unwrap_or_default();
        return Err(no_object::<T>(&list));
    }
    let read = serde_path_to_error::deserialize(document.clone()).map_err(|error| {
        let path = error.path().to_string();
        let document = serde_json::to_value(&document).unwrap_or_default();
        let message = error.into_inner().to_string();
        match find(&document, &path) {
            // JSON has no .nan and no .inf, and writes null for them.
            Some(Value::Null) if !message.contains("floating point") => {
                no_word::<T>(&path, &document)
            }
            _ => wrong::<T>(&path, &message, &document),
        }
    })?;
    match odd_word::<T>(bytes, &document) {
        Some(error) => Err(Refusal::with_errors(
            T::KIND,
            error.to_string(),
            vec![error],
        )),
        None => Ok(read),
    }
}

/// A document whose shape is not that of a `T`.
fn wrong<T: Invalid>(path: &str, message: &str, document: &Value) -> Refusal {
    let error = field_error(path, message, document);
    Refusal::with_errors(T::KIND, error.to_string(), vec![error])
}

/// A document that is a list.
fn no_object<T: Invalid>(list: &Value) -> Refusal {
    let error = field_error("", "invalid length 0", list);
    Refusal::with_errors(T::KIND, error.to_string(), vec![error])
}

/// A document with nothing, a number or the like where one of some words is wanted. serde names those words only when it is given
/// another one, so it is given one that nobody would choose.
fn no_word<T: DeserializeOwned + Invalid>(path: &str, document: &Value) -> Refusal {
    let read = |document: &Value| {
        let error = serde_path_to_error::deserialize::<_, T>(document.clone()).err()?;
        Some((error.path().to_string(), error.into_inner().to_string()))
    };
    let mut worded = document.clone();
    if let Some(place) = find_mut(&mut worded, path) {
        *place = Value::String(String::new());
    }
    let (found_at, message) = match read(&worded) {
        Some((at, message)) if at == path && message.starts_with("unknown variant") => {
            (at, message)
        }
        _ => match read(document) {
            Some(found) => found,
            None => (path.to_owned(), "another value".to_owned()),
        },
    };
    let mut error = field_error(&found_at, &message, document);
    if let Some(value) = find(document, path).filter(|_| found_at == path) {
        error.field = path.to_owned();
        error.value = value.to_string();
    }
    Refusal::with_errors(T::KIND, error.to_string(), vec![error])
}
