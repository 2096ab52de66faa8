//! Request bodies: JSON or YAML, parsed strictly. Errors name the field, its value and what is
//! expected.

use crate::blame::{field_error, find, find_mut};
use crate::problem::{Kind, Refusal};
use crate::spelling::odd_word;
use crate::state::App;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use futures::StreamExt as _;
use muster_document::DocumentError;
use muster_model::spec::FieldError;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Multiple of the limit up to which a body that is too large is read and discarded. A client whose
/// connection is closed while it sends may never read the answer.
const DRAINED_LIMITS: usize = 32;

/// Size above which a body is parsed on a blocking thread, so that other requests do not wait.
const INLINE_BYTES: usize = 16 << 10;

/// Limits the threads that parse large bodies.
#[derive(Debug, Clone)]
pub struct Readers(Arc<Semaphore>);

impl Default for Readers {
    /// Half of the machine's cores; the others answer requests.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new((cores / 2).max(1))))
    }
}

impl Readers {
    /// Waits for a thread for at most the time of a request.
    async fn read<T>(&self, format: Format, bytes: Bytes) -> Result<T, Refusal>
    where
        T: DeserializeOwned + Invalid + Send + 'static,
    {
        if bytes.len() <= INLINE_BYTES {
            return read(format, &bytes);
        }
        let permit = Arc::clone(&self.0).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read(format, &bytes)
        });
        match reading.await {
            Ok(read) => read,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// A parsed body and its bytes.
pub struct Document<T> {
    pub value: T,
    pub bytes: Bytes,
}

/// Documents, with their kind of problem.
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
impl Invalid for muster_model::view::NewJoinToken {}
impl Invalid for muster_model::view::NewToken {}
impl Invalid for crate::node::notice::Said {}
impl Invalid for muster_model::view::WhatIf {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Yaml,
}

impl<T> FromRequest<App> for Document<T>
where
    T: DeserializeOwned + Invalid + Send + 'static,
{
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refusal> {
        let format = format(&request)?;
        let limit = app.limits.body_bytes;
        let asks_first = request.headers().contains_key(EXPECT);
        // A client that sends `Expect` is answered before its body is read.
        if asks_first && announced(&request).is_some_and(|length| length > limit) {
            return Err(too_large(limit));
        }
        let bytes = collect(request.into_body(), limit).await?;
        let value = app.readers.read(format, bytes.clone()).await?;
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

fn read<T: DeserializeOwned + Invalid>(format: Format, bytes: &[u8]) -> Result<T, Refusal> {
    let document = match format {
        Format::Json => muster_document::json(bytes),
        Format::Yaml => muster_document::yaml(bytes),
    };
    let document = document.map_err(no_document::<T>)?;
    // serde would accept a list as the fields of an object in order.
    if document.is_array() {
        let error = field_error("", "invalid length 0", &document);
        return Err(Refusal::of_fields(T::KIND, vec![error]));
    }
    let value = serde_path_to_error::deserialize(&document).map_err(|error| {
        let path = error.path().to_string();
        match find(&document, &path) {
            Some(Value::Null) => no_word::<T>(&path, &document),
            _ => {
                let error = field_error(&path, &error.into_inner().to_string(), &document);
                Refusal::of_fields(T::KIND, vec![error])
            }
        }
    })?;
    let odd = match format {
        Format::Json => None,
        Format::Yaml => odd_word::<T>(bytes, &document),
    };
    match odd {
        Some(error) => Err(Refusal::of_fields(T::KIND, vec![error])),
        None => Ok(value),
    }
}

/// The refusal of a text that is not a document.
fn no_document<T: Invalid>(error: DocumentError) -> Refusal {
    let detail = match &error {
        DocumentError::Json(error) => format!("not JSON: {error}"),
        DocumentError::Yaml(error) => format!("not YAML: {error}"),
        DocumentError::NotUtf8 { .. } | DocumentError::Excess(_) => error.to_string(),
        DocumentError::Field { error, .. } => {
            return Refusal::of_fields(T::KIND, vec![error.clone()]);
        }
    };
    Refusal::new(Kind::MalformedBody, detail)
}

/// The refusal of null, a number or the like where one of several words is expected. serde lists
/// the words only in its error about another text. So the document is parsed again with an empty
/// text.
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
    Refusal::of_fields(T::KIND, vec![error])
}
