//! Request bodies: JSON or YAML, parsed strictly. Errors name the field, its value and what is
//! expected.

pub mod parse;

use crate::problem::{ApiError, ProblemKind};
use crate::state::ApiState;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use futures::StreamExt as _;
use muster_model::spec::FieldError;
use parse::{BodyFormat, Invalid};
use serde::de::DeserializeOwned;

/// Multiple of the limit up to which a body that is too large is read and discarded. A client whose
/// connection is closed while it sends may never read the answer.
const DRAINED_LIMITS: usize = 32;

/// A parsed body and its bytes.
pub struct ParsedBody<T> {
    pub value: T,
    pub bytes: Bytes,
}

impl<T> FromRequest<ApiState> for ParsedBody<T>
where
    T: DeserializeOwned + Invalid + Send + 'static,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &ApiState) -> Result<Self, ApiError> {
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

pub(crate) fn format(request: &Request) -> Result<BodyFormat, ApiError> {
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
        "application/json" => Ok(BodyFormat::Json),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => {
            Ok(BodyFormat::Yaml)
        }
        _ => {
            let error = FieldError {
                field: "Content-Type".to_owned(),
                value: format!("{given:?}"),
                expected: "application/json or application/yaml".to_owned(),
            };
            Err(ApiError::with_errors(
                ProblemKind::UnsupportedMediaType,
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

pub(crate) async fn collect(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let mut stream = body.into_data_stream();
    let mut read = Vec::new();
    let mut length = 0_usize;
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|_| {
            ApiError::new(
                ProblemKind::MalformedBody,
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

fn too_large(limit: usize) -> ApiError {
    ApiError::new(
        ProblemKind::BodyTooLarge,
        format!("a body may have at most {limit} bytes"),
    )
}
