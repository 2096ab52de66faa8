//! Server of the operator's metrics.

use crate::clock;
use crate::context::OperatorContext;
use axum::Router;
use axum::extract;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus::TEXT_FORMAT;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Answers `GET /metrics` and accepts the connections of TCP probes until the process ends.
pub async fn serve(context: Arc<OperatorContext>, listener: TcpListener) {
    let routes = Router::new().route("/metrics", get(show));
    muster_connections::serve(listener, routes.with_state(context)).await;
}

async fn show(extract::State(context): extract::State<Arc<OperatorContext>>) -> impl IntoResponse {
    let list_age = context.jobs.list_age(clock::monotonic());
    let text = context.metrics.text(list_age);
    let text = text.expect("names that are names, each of them once");
    ([(CONTENT_TYPE, TEXT_FORMAT)], text)
}
