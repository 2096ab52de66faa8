//! The list of all tower layers, outermost first, each with its reason.

use crate::problem::{self, ApiError, ProblemKind};
use crate::state::ApiState;
use crate::{clock, code, metrics, query};
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use std::any::Any;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate as _};
use tower_http::request_id::{
    MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer,
};
use tower_http::trace::TraceLayer;

/// Returns the router with all layers.
pub fn around(router: Router<ApiState>, app: &ApiState) -> Router<ApiState> {
    // Tensors hardly compress. Compression would cost a core and hide the length, which clients use
    // to show progress.
    let compressed =
        DefaultPredicate::new().and(NotForContentType::const_new("application/octet-stream"));
    router.layer(
        ServiceBuilder::new()
            // Request id, from a proxy or new, before anything is logged.
            .layer(SetRequestIdLayer::x_request_id(NewRequestId))
            // One span per request, with its id, around everything else.
            .layer(TraceLayer::new_for_http().make_span_with(span))
            // Returns the id to the client.
            .layer(PropagateRequestIdLayer::x_request_id())
            // Counts requests by the status that the client receives, so it is outside of layers
            // that change it.
            .layer(middleware::from_fn_with_state(
                app.clone(),
                metrics::serve::count,
            ))
            // Page and answers are mostly small texts.
            .layer(CompressionLayer::new().compress_when(compressed))
            // Writes the bodies of refusals: inside of compression, outside of all layers that
            // refuse.
            .layer(middleware::from_fn(problem::write))
            // A panic in one handler must not close the connection.
            .layer(CatchPanicLayer::custom(panicked))
            // Refuses NUL, which no statement can contain, before any handler.
            .layer(middleware::from_fn(query::refuse_nul))
            // Innermost: limits the time of the handler and of its read of the body, not of the
            // answer's transfer.
            .layer(middleware::from_fn_with_state(app.clone(), bounded)),
    )
}

#[derive(Clone)]
struct NewRequestId;

impl MakeRequestId for NewRequestId {
    fn make_request_id<B>(&mut self, _: &axum::http::Request<B>) -> Option<RequestId> {
        HeaderValue::from_str(&clock::new_id().to_string())
            .ok()
            .map(RequestId::new)
    }
}

fn span(request: &Request) -> tracing::Span {
    let id = request
        .headers()
        .get("x-request-id")
        .and_then(|id| id.to_str().ok())
        .unwrap_or_default();
    tracing::info_span!(
        "api.request",
        request.id = id,
        method = %request.method(),
        // Without the query, which may contain private text.
        path = request.uri().path(),
        tenant = tracing::field::Empty,
        user = tracing::field::Empty,
    )
}

async fn bounded(State(app): State<ApiState>, request: Request, next: Next) -> Response {
    let is_upload = request.method() == Method::PUT
        && request
            .extensions()
            .get::<MatchedPath>()
            .is_some_and(|path| path.as_str() == code::put::ROUTE);
    let limit = if is_upload {
        app.limits.upload_timeout()
    } else {
        app.limits.request_timeout()
    };
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!(
                "no answer within {} s; ask again to see whether it was carried out",
                limit.as_secs_f64()
            );
            ApiError::new(ProblemKind::Timeout, detail).into_response()
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the layer's signature")]
fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tracing::error!(message, "a handler panicked");
    ApiError::new(
        ProblemKind::Internal,
        "the reason is in the daemon's log, under the id of this request",
    )
    .into_response()
}
