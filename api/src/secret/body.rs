//! The body of `PUT /secrets/{name}`. Other bodies are refused with their values; this one never
//! is.

use crate::body::{self, parse::BodyFormat};
use crate::problem::{ApiError, ProblemKind};
use crate::state::ApiState;
use axum::extract::{FromRequest, Request};
use muster_model::spec::FieldError;
use muster_secret::{MAX_VALUE_BYTES, SecretValue};
use serde::Deserialize;
use zeroize::Zeroizing;

/// Value of a secret.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSecret {
    /// 1 byte to 64 KiB of UTF-8 without NUL.
    #[schema(min_length = 1, max_length = 65536, write_only)]
    value: String,
}

/// A parsed value.
pub struct SecretBody(pub SecretValue);

impl FromRequest<ApiState> for SecretBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &ApiState) -> Result<Self, ApiError> {
        let format = body::format(&request)?;
        let bytes = body::collect(request.into_body(), app.limits.body_bytes).await?;
        // The only reference, so the bytes are not copied.
        let bytes = Zeroizing::new(Vec::from(bytes));
        if format != BodyFormat::Json {
            let detail = "a secret is sent as application/json";
            return Err(ApiError::new(ProblemKind::UnsupportedMediaType, detail));
        }
        // The error of the parser would quote parts of the body.
        let parsed: NewSecret = serde_json::from_slice(&bytes).map_err(|_| {
            let detail = r#"the body is not of the form {"value": "TEXT"}"#;
            ApiError::new(ProblemKind::InvalidBody, detail)
        })?;
        let value = SecretValue::from(parsed.value);
        if value.is_allowed() {
            return Ok(Self(value));
        }
        let error = FieldError {
            field: "value".to_owned(),
            value: format!("a text of {} bytes", value.expose().len()),
            expected: format!("1 to {MAX_VALUE_BYTES} bytes of UTF-8 without NUL"),
        };
        Err(ApiError::of_fields(ProblemKind::InvalidBody, vec![error]))
    }
}
