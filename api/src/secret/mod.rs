//! Secrets of tenants for users' programs. No answer contains a value.

mod body;
pub mod delete;
pub mod list;
pub mod set;

use crate::problem::{ApiError, ProblemKind};
use axum::http::HeaderValue;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use muster_model::spec::{SECRET_NAME_RULE, is_secret_name};
use muster_secret::KeyError;

/// Checks the name of a secret in a path.
fn named(name: &str) -> Result<(), ApiError> {
    if is_secret_name(name) {
        return Ok(());
    }
    Err(ApiError::parameter(
        "name",
        &format!("{name:?}"),
        SECRET_NAME_RULE,
    ))
}

/// Returns the refusal of a request that needs keys.
pub fn no_keys(error: &KeyError) -> ApiError {
    if matches!(error, KeyError::NotConfigured) {
        let detail = "this cluster has no key for secrets; an administrator makes one with `muster-api secrets new-key` and sets secrets_key_file of API server and scheduler";
        return ApiError::new(ProblemKind::NoSecretKey, detail);
    }
    ApiError::internal(error)
}

/// Prevents that proxies and browsers store the answer.
fn not_stored(answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
