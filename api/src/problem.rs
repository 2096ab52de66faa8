//! Refusals: every way in which a request is not carried out, as `application/problem+json` (RFC
//! 9457).
//!
//! A handler returns an [`ApiError`]. An outer layer writes its body, because only there the id of
//! the request is known. Internal errors are logged here and not shown to the caller.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use muster_model::error_chain::chain;
use muster_model::id::JobId;
use muster_model::spec::{DNS_LABEL_RULE, FieldError, is_dns_label};
use muster_model::view::Problem;
use muster_store::StoreError;

/// Kinds of problems of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    MalformedBody,
    UnsupportedMediaType,
    BodyTooLarge,
    InvalidJob,
    InvalidStudy,
    InvalidBody,
    InvalidParameter,
    Unauthenticated,
    Forbidden,
    LimitExceeded,
    NotFound,
    MethodNotAllowed,
    WrongPhase,
    UnreadableFile,
    EditedMeanwhile,
    NameTaken,
    LastAdministrator,
    SecretInUse,
    NoSecretKey,
    SessionRefused,
    NoRemoteSessions,
    KeyReused,
    TooManyRequests,
    Timeout,
    Unavailable,
    Internal,
}

/// A request that is not carried out, and why.
#[derive(Debug, Clone)]
pub struct ApiError {
    kind: ProblemKind,
    detail: String,
    errors: Vec<FieldError>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl ProblemKind {
    pub const ALL: [Self; 26] = [
        Self::MalformedBody,
        Self::UnsupportedMediaType,
        Self::BodyTooLarge,
        Self::InvalidJob,
        Self::InvalidStudy,
        Self::InvalidBody,
        Self::InvalidParameter,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::LimitExceeded,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::WrongPhase,
        Self::UnreadableFile,
        Self::EditedMeanwhile,
        Self::NameTaken,
        Self::LastAdministrator,
        Self::SecretInUse,
        Self::NoSecretKey,
        Self::SessionRefused,
        Self::NoRemoteSessions,
        Self::KeyReused,
        Self::TooManyRequests,
        Self::Timeout,
        Self::Unavailable,
        Self::Internal,
    ];

    /// Returns its stable name (after `urn:muster:problem:`), its status and its title.
    #[must_use]
    pub fn facts(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Self::MalformedBody => (
                "malformed-body",
                StatusCode::BAD_REQUEST,
                "The body cannot be read",
            ),
            Self::UnsupportedMediaType => (
                "unsupported-media-type",
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Unsupported content type of the body",
            ),
            Self::BodyTooLarge => (
                "body-too-large",
                StatusCode::PAYLOAD_TOO_LARGE,
                "The body is too large",
            ),
            Self::InvalidJob => (
                "invalid-job",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The job document is not valid",
            ),
            Self::InvalidStudy => (
                "invalid-study",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The study document is not valid",
            ),
            Self::InvalidBody => (
                "invalid-body",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The body is not valid",
            ),
            Self::InvalidParameter => (
                "invalid-parameter",
                StatusCode::BAD_REQUEST,
                "A parameter is not valid",
            ),
            Self::Unauthenticated => (
                "unauthenticated",
                StatusCode::UNAUTHORIZED,
                "No valid token was presented",
            ),
            Self::Forbidden => (
                "forbidden",
                StatusCode::FORBIDDEN,
                "The token does not allow this",
            ),
            Self::LimitExceeded => (
                "limit-exceeded",
                StatusCode::FORBIDDEN,
                "A limit of the tenant is reached",
            ),
            Self::NotFound => ("not-found", StatusCode::NOT_FOUND, "Not found"),
            Self::MethodNotAllowed => (
                "method-not-allowed",
                StatusCode::METHOD_NOT_ALLOWED,
                "The path does not support this method",
            ),
            Self::WrongPhase => (
                "wrong-phase",
                StatusCode::CONFLICT,
                "The phase of the job or study does not allow this",
            ),
            Self::UnreadableFile => (
                "unreadable-file",
                StatusCode::CONFLICT,
                "The file cannot be served",
            ),
            Self::EditedMeanwhile => (
                "edited-meanwhile",
                StatusCode::CONFLICT,
                "Changed by another request since it was read",
            ),
            Self::NameTaken => ("name-taken", StatusCode::CONFLICT, "The name is taken"),
            Self::LastAdministrator => (
                "last-administrator",
                StatusCode::CONFLICT,
                "This would remove the last administrator",
            ),
            Self::SecretInUse => (
                "secret-in-use",
                StatusCode::CONFLICT,
                "Open jobs or studies name the secret",
            ),
            Self::NoSecretKey => (
                "no-secret-key",
                StatusCode::NOT_IMPLEMENTED,
                "The cluster has no key for secrets",
            ),
            Self::SessionRefused => (
                "session-refused",
                StatusCode::CONFLICT,
                "The task's node refuses the remote session",
            ),
            Self::NoRemoteSessions => (
                "no-remote-sessions",
                StatusCode::NOT_IMPLEMENTED,
                "The cluster has no remote sessions",
            ),
            Self::KeyReused => (
                "idempotency-key-reused",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The Idempotency-Key belongs to another request",
            ),
            Self::TooManyRequests => (
                "too-many-requests",
                StatusCode::TOO_MANY_REQUESTS,
                "Too many requests",
            ),
            Self::Timeout => (
                "timeout",
                StatusCode::GATEWAY_TIMEOUT,
                "The request took too long",
            ),
            Self::Unavailable => (
                "unavailable",
                StatusCode::SERVICE_UNAVAILABLE,
                "The cluster's database cannot be reached now",
            ),
            Self::Internal => (
                "internal",
                StatusCode::INTERNAL_SERVER_ERROR,
                "The daemon failed",
            ),
        }
    }
}

impl ApiError {
    #[must_use]
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            errors: Vec::new(),
            headers: Vec::new(),
        }
    }

    #[must_use]
    pub fn with_errors(
        kind: ProblemKind,
        detail: impl Into<String>,
        errors: Vec<FieldError>,
    ) -> Self {
        Self {
            errors,
            ..Self::new(kind, detail)
        }
    }

    /// Returns a refusal with all wrong fields of a body.
    #[must_use]
    pub fn of_fields(kind: ProblemKind, errors: Vec<FieldError>) -> Self {
        let details: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Self::with_errors(kind, details.join("; "), errors)
    }

    /// Returns a refusal of one query parameter, path parameter or header.
    #[must_use]
    pub fn parameter(field: &str, value: &str, expected: impl Into<String>) -> Self {
        let error = FieldError {
            field: field.to_owned(),
            value: value.to_owned(),
            expected: expected.into(),
        };
        Self::with_errors(
            ProblemKind::InvalidParameter,
            error.to_string(),
            vec![error],
        )
    }

    /// Refuses a name in the path that is no DNS label.
    ///
    /// # Errors
    /// [`ProblemKind::InvalidParameter`].
    pub fn check_label(name: &str) -> Result<(), Self> {
        if is_dns_label(name) {
            return Ok(());
        }
        Err(Self::parameter(
            "name",
            &format!("{name:?}"),
            DNS_LABEL_RULE,
        ))
    }

    /// Returns the refusal of a missing object. `what` contains its name, such as `job 0190…`.
    /// Objects of other tenants get the same answer.
    #[must_use]
    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(ProblemKind::NotFound, format!("there is no {what}"))
    }

    /// Returns the refusal of a missing job.
    #[must_use]
    pub fn no_job(id: JobId) -> Self {
        Self::not_found(format!("job {id}"))
    }

    #[must_use]
    pub fn unauthenticated(detail: &str) -> Self {
        Self::new(ProblemKind::Unauthenticated, detail).header(
            WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"muster\""),
        )
    }

    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        self.header(RETRY_AFTER, HeaderValue::from(seconds))
    }

    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Returns the refusal of an internal error. The error is logged and not shown.
    #[must_use]
    pub fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error = chain(error), "a request failed");
        Self::new(
            ProblemKind::Internal,
            "the reason is in the daemon's log, under the id of this request",
        )
    }

    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// Returns the reason.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    fn problem(self) -> Problem {
        let (name, status, title) = self.kind.facts();
        Problem {
            kind: format!("urn:muster:problem:{name}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: self.detail,
            instance: None,
            errors: self.errors,
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        if error.is_unavailable() || error.is_retryable() {
            tracing::warn!(error = chain(&error), "the store did not answer");
            return Self::new(
                ProblemKind::Unavailable,
                "try again in a moment; nothing was changed",
            )
            .retry_after(1);
        }
        if let StoreError::Exceeded(exceeded) = &error {
            return Self::new(
                ProblemKind::LimitExceeded,
                format!("{exceeded}; {}", remedy(&exceeded.limit)),
            );
        }
        // Tokens of a deleted tenant are cached for a short time.
        if matches!(error, StoreError::TenantDeleted) {
            return Self::new(ProblemKind::NotFound, error.to_string());
        }
        Self::internal(&error)
    }
}

/// Returns what the user can do about a limit.
fn remedy(limit: &str) -> String {
    let own = match limit {
        "open_studies" => "cancel a study or wait until one finishes",
        "code_bytes" => "delete jobs whose code is not needed any more",
        "artifact_bytes" => "delete jobs whose artifacts are not needed any more",
        "secrets" => "delete secrets that no job needs (muster secrets delete)",
        "schedules" => "delete schedules that are not needed (muster schedule delete)",
        "templates" => "delete templates that are not needed (muster template delete)",
        "remote_sessions" | "remote_sessions_of_job" => {
            return "end open sessions of muster exec, port-forward or cp".to_owned();
        }
        "tokens" | "user_tokens" => "revoke tokens (muster tokens revoke)",
        _ => "cancel jobs or wait until some end",
    };
    let flag = limit.replace('_', "-");
    format!("{own}, or ask an administrator for more (muster tenants limits NAME --{flag} N)")
}

impl IntoResponse for ApiError {
    fn into_response(mut self) -> Response {
        let (_, status, _) = self.kind.facts();
        let mut response = status.into_response();
        for (name, value) in self.headers.drain(..) {
            response.headers_mut().insert(name, value);
        }
        response.extensions_mut().insert(self.problem());
        response
    }
}

/// The layer that writes the body of every refusal, including refusals of axum itself.
pub async fn write(request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let id = request
        .headers()
        .get("x-request-id")
        .and_then(|id| id.to_str().ok())
        .map(str::to_owned);
    let response = next.run(request).await;
    let (mut parts, body) = response.into_parts();
    let written = parts.extensions.remove::<Problem>().or_else(|| {
        (parts.status == StatusCode::METHOD_NOT_ALLOWED).then(|| {
            ApiError::new(
                ProblemKind::MethodNotAllowed,
                format!("{path} does not take {method}"),
            )
            .problem()
        })
    });
    let Some(mut problem) = written else {
        return Response::from_parts(parts, body);
    };
    problem.instance = id.map(|id| format!("urn:muster:request:{id}"));
    let json = serde_json::to_vec(&problem).expect("strings and numbers");
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    Response::from_parts(parts, Body::from(json))
}
