//! Strict parsing of JSON and YAML documents.

use crate::problem::{ApiError, ProblemKind};
use crate::serde_error::{field_error, find, find_mut};
use crate::spelling::odd_word;
use axum::body::Bytes;
use muster_document::DocumentError;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::Semaphore;

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
    pub async fn read<T>(&self, format: BodyFormat, bytes: Bytes) -> Result<T, ApiError>
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

/// Documents, with their kind of problem.
pub trait Invalid {
    const KIND: ProblemKind = ProblemKind::InvalidBody;
}

impl Invalid for muster_model::spec::JobSpec {
    const KIND: ProblemKind = ProblemKind::InvalidJob;
}

impl Invalid for muster_model::study::StudySpec {
    const KIND: ProblemKind = ProblemKind::InvalidStudy;
}

impl Invalid for muster_model::schedule::ScheduleDocument {}
impl Invalid for muster_model::template::TemplateDocument {}
impl Invalid for muster_model::view::TemplateValues {}
impl Invalid for muster_model::view::StudyExtension {}
impl Invalid for muster_model::view::Proposal {}
impl Invalid for muster_model::view::Ask {}
impl Invalid for muster_model::view::Tell {}
impl Invalid for muster_model::view::NewTenant {}
impl Invalid for muster_model::view::TenantChange {}
impl Invalid for muster_model::view::JobChange {}
impl Invalid for muster_model::priority::PriorityClassDocument {}
impl Invalid for muster_model::view::NewJoinToken {}
impl Invalid for muster_model::view::NewToken {}
impl Invalid for muster_model::view::WhatIf {}
impl Invalid for muster_model::remote::NewRemoteSession {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFormat {
    Json,
    Yaml,
}

fn read<T: DeserializeOwned + Invalid>(format: BodyFormat, bytes: &[u8]) -> Result<T, ApiError> {
    let document = match format {
        BodyFormat::Json => muster_document::json(bytes),
        BodyFormat::Yaml => muster_document::yaml(bytes),
    };
    let document = document.map_err(no_document::<T>)?;
    let value = of_value(&document)?;
    let odd = match format {
        BodyFormat::Json => None,
        BodyFormat::Yaml => odd_word::<T>(bytes, &document),
    };
    match odd {
        Some(error) => Err(ApiError::of_fields(T::KIND, vec![error])),
        None => Ok(value),
    }
}

/// Reads a document that was parsed.
pub fn of_value<T: DeserializeOwned + Invalid>(document: &Value) -> Result<T, ApiError> {
    // serde would accept a list as the fields of an object in order.
    if document.is_array() {
        let error = field_error("", "invalid length 0", document);
        return Err(ApiError::of_fields(T::KIND, vec![error]));
    }
    serde_path_to_error::deserialize(document).map_err(|error| {
        let path = error.path().to_string();
        match find(document, &path) {
            Some(Value::Null) => no_word::<T>(&path, document),
            _ => {
                let error = field_error(&path, &error.into_inner().to_string(), document);
                ApiError::of_fields(T::KIND, vec![error])
            }
        }
    })
}

/// The refusal of a text that is not a document.
fn no_document<T: Invalid>(error: DocumentError) -> ApiError {
    let detail = match &error {
        DocumentError::Json(error) => format!("not JSON: {error}"),
        DocumentError::Yaml(error) => format!("not YAML: {error}"),
        DocumentError::NotUtf8 { .. } | DocumentError::Excess(_) => error.to_string(),
        DocumentError::Field { error, .. } => {
            return ApiError::of_fields(T::KIND, vec![error.clone()]);
        }
    };
    ApiError::new(ProblemKind::MalformedBody, detail)
}

/// The refusal of null, a number or the like where one of several words is expected. serde lists
/// the words only in its error about another text. So the document is parsed again with an empty
/// text.
fn no_word<T: DeserializeOwned + Invalid>(path: &str, document: &Value) -> ApiError {
    let mut worded = document.clone();
    if let Some(place) = find_mut(&mut worded, path) {
        *place = Value::String(String::new());
    }
    let (found_at, message) = match read_error::<T>(&worded) {
        Some((at, message)) if at == path && message.starts_with("unknown variant") => {
            (at, message)
        }
        _ => match read_error::<T>(document) {
            Some(found) => found,
            None => (path.to_owned(), "another value".to_owned()),
        },
    };
    let mut error = field_error(&found_at, &message, document);
    if let Some(value) = find(document, path).filter(|_| found_at == path) {
        error.field = path.to_owned();
        error.value = value.to_string();
    }
    ApiError::of_fields(T::KIND, vec![error])
}

/// Returns the path and the message of the error of reading the document; `None` if it is read.
fn read_error<T: DeserializeOwned>(document: &Value) -> Option<(String, String)> {
    let error = serde_path_to_error::deserialize::<_, T>(document.clone()).err()?;
    Some((error.path().to_string(), error.into_inner().to_string()))
}
