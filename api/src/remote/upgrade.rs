//! The header `Upgrade: muster-remote` of a request, and the answer to it.

use crate::problem::{ApiError, ProblemKind};
use crate::state::ApiState;
use axum::extract::FromRequestParts;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use muster_connections::PendingUpgrade;
use muster_model::remote::PROTOCOL;

/// A request that asks for the protocol of remote sessions.
pub struct RemoteUpgrade(Option<PendingUpgrade>);

impl FromRequestParts<ApiState> for RemoteUpgrade {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, ApiError> {
        let given = parts.headers.get(UPGRADE);
        let given = given.and_then(|value| value.to_str().ok());
        let given = given.unwrap_or_default();
        if !given.eq_ignore_ascii_case(PROTOCOL) {
            let expected = format!(
                "{PROTOCOL}; this route changes the protocol, as `muster exec` and `muster port-forward` do"
            );
            return Err(ApiError::parameter("Upgrade", given, expected));
        }
        Ok(Self(PendingUpgrade::take(&mut parts.extensions)))
    }
}

impl RemoteUpgrade {
    /// Returns the connection, which changes its protocol after [`switched`].
    ///
    /// # Errors
    /// If the client does not use HTTP/1.1.
    pub fn pending(self) -> Result<PendingUpgrade, ApiError> {
        self.0.ok_or_else(|| {
            let detail = "the connection cannot change its protocol; use HTTP/1.1, and a proxy that passes Upgrade";
            ApiError::new(ProblemKind::SessionRefused, detail)
        })
    }
}

/// Returns the answer 101.
pub fn switched() -> Response {
    let headers = [
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static(PROTOCOL)),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}
