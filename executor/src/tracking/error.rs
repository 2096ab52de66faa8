//! Error answers of the server.

use super::message::Malformed;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Error answer in the format of MLflow's clients.
#[derive(Debug)]
pub(super) struct MlflowError {
    status: StatusCode,
    code: &'static str,
    pub message: String,
}

impl MlflowError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }
}

impl From<Malformed> for MlflowError {
    fn from(malformed: Malformed) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "INVALID_PARAMETER_VALUE",
            malformed.to_string(),
        )
    }
}

impl IntoResponse for MlflowError {
    fn into_response(self) -> Response {
        let body = json!({ "error_code": self.code, "message": self.message });
        (self.status, Json(body)).into_response()
    }
}

pub(super) fn denied() -> MlflowError {
    MlflowError::new(
        StatusCode::UNAUTHORIZED,
        "UNAUTHENTICATED",
        "the bearer token is none of a task that runs on this node; it is in MLFLOW_TRACKING_TOKEN",
    )
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "signature that map_err requires"
)]
pub(super) fn not_kept(error: std::io::Error) -> MlflowError {
    MlflowError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "TEMPORARILY_UNAVAILABLE",
        format!("it cannot be kept: {error}"),
    )
}
