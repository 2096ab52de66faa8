//! Authentication: `Authorization: Bearer <secret>`.
//!
//! A request without a valid token counts for its client's address (`failures`). Valid tokens are
//! cached for [`tokens::REMEMBERED`], so that a busy client does not cost a query per request. A
//! token that is revoked through this process is refused at once. One that is revoked elsewhere is
//! refused after that time, also on open streams.

pub mod caller;
pub mod tokens;

use crate::address::ClientAddress;
use crate::failures::Reason;
use crate::impersonation;
use crate::problem::{ApiError, ProblemKind};
use crate::rate::TooMany;
use crate::state::ApiState;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
pub use caller::{Admin, Caller};
pub use tokens::hash;

/// The layer around all routes under `/api/v1`. Refuses requests that are not authenticated or
/// exceed a rate; otherwise adds the caller to the request.
pub async fn authenticate(
    State(app): State<ApiState>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let client = ClientAddress::of(&request, &app.limits.trusted_proxies);
    let failed = |reason| app.failures.refuse(client, reason, &app.metrics);
    let hash = hash(bearer(request.headers()).map_err(failed)?);
    // Another client behind the same address may try invalid tokens.
    if !app.tokens.is_familiar(&hash) {
        app.failures.check(client, &app.metrics)?;
    }
    let Some(principal) = app.tokens.principal(&app.pool, &hash).await? else {
        return Err(failed(Reason::Unknown));
    };
    app.token_rate
        .take(&principal.token_id)
        .map_err(|many| too_many("a token", many))?;
    app.tenant_rate
        .take(&principal.tenant_id)
        .map_err(|many| too_many("all tokens of a tenant together", many))?;
    let mut caller = Caller::new(principal, hash);
    let acting =
        impersonation::principal(&app, &caller, request.method(), request.headers()).await?;
    if let Some(acting) = acting {
        caller.act_as(acting);
    }
    tracing::Span::current()
        .record("tenant", caller.tenant_name.as_str())
        .record("user", caller.user_name.as_str());
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

fn too_many(whose: &str, TooMany { per_s, wait }: TooMany) -> ApiError {
    let detail = format!(
        "{whose} may make {per_s} requests a second; try again in {} ms",
        wait.as_millis()
    );
    ApiError::new(ProblemKind::TooManyRequests, detail).retry_after(wait.as_secs() + 1)
}

fn bearer(headers: &HeaderMap) -> Result<&str, Reason> {
    let value = headers.get(AUTHORIZATION).ok_or(Reason::Missing)?;
    let secret = value.to_str().ok().and_then(|text| {
        let (scheme, secret) = text.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then(|| secret.trim())
            .filter(|secret| !secret.is_empty())
    });
    secret.ok_or(Reason::Malformed)
}

impl FromRequestParts<ApiState> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, ApiError> {
        Ok(parts
            .extensions
            .get::<Self>()
            .expect("the layer `authenticate` is over every route that asks")
            .clone())
    }
}

impl FromRequestParts<ApiState> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &ApiState) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, app).await?;
        if caller.is_admin() {
            return Ok(Self(caller));
        }
        let detail = format!(
            "{} {} needs a token with access admin; this one has member",
            parts.method,
            parts.uri.path()
        );
        Err(ApiError::new(ProblemKind::Forbidden, detail))
    }
}
