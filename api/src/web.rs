//! Files of the web page. A path without a file gets the page itself, which routes in the browser,
//! unless the path has an extension.

use crate::problem::{ApiError, ProblemKind};
use crate::state::ApiState;
use axum::extract::{OriginalUri, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use std::path::Path;
use tower::ServiceExt as _;
use tower_http::services::{ServeDir, ServeFile};

/// Content security policy: scripts, styles and connections from this origin only; no inline code,
/// no framing. Images that the page has loaded with its token are blobs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; \
                      connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
/// File names below this path contain a hash of their content.
const HASHED: &str = "/assets/";

/// Answers paths that no route matches.
pub async fn page(State(app): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let path = request.uri().path().to_owned();
    let Some(root) = app
        .web_root
        .as_deref()
        .filter(|_| !path.starts_with("/api/"))
    else {
        return Err(unknown(&path));
    };
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Err(ApiError::new(
            ProblemKind::MethodNotAllowed,
            format!("{path} takes GET"),
        ));
    }
    let mut response = serve(root, request).await;
    if response.status() == StatusCode::NOT_FOUND {
        return Err(unknown(&path));
    }
    let kept = if path.starts_with(HASHED) {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(kept));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Ok(response)
}

/// Answers paths under `/api/v1` that no route matches.
pub async fn unknown_path(OriginalUri(uri): OriginalUri) -> ApiError {
    unknown(uri.path())
}

async fn serve(root: &Path, request: Request) -> Response {
    let files = ServeDir::new(root);
    // A path with an extension is a file: a missing script must not be answered with the page.
    let is_file = request
        .uri()
        .path()
        .rsplit('/')
        .next()
        .is_some_and(|last| last.contains('.'));
    let served = if is_file {
        files
            .oneshot(request)
            .await
            .map(|response| response.map(axum::body::Body::new))
    } else {
        let page = files.fallback(ServeFile::new(root.join("index.html")));
        page.oneshot(request)
            .await
            .map(|response| response.map(axum::body::Body::new))
    };
    served.into_response()
}

fn unknown(path: &str) -> ApiError {
    ApiError::new(
        ProblemKind::NotFound,
        format!("there is nothing at {path}; /openapi.json lists what there is"),
    )
}
