//! HTTP endpoints of the daemon: the probes of liveness and readiness, and the metrics.

use crate::metrics::{Metrics, Present};
use crate::session::Pools;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use muster_store::pool;
use prometheus::TEXT_FORMAT;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Time without the end of a round after which the leader counts as hanging. Far longer than any
/// round, failed ones included.
const STANDS_STILL: Duration = Duration::from_secs(180);
/// Maximum wait of a probe for the database.
const PATIENCE: Duration = Duration::from_secs(2);

/// State that the probes read.
#[derive(Debug, Clone)]
pub struct Health {
    pub pools: Pools,
    pub metrics: Arc<Metrics>,
    pub leader: watch::Receiver<bool>,
}

/// Serves until the process ends.
pub async fn serve(listener: TcpListener, health: Health) {
    muster_connections::serve(listener, routes(health)).await;
}

fn routes(health: Health) -> Router {
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(show))
        .with_state(health)
}

/// `GET /healthz`: whether the process answers and, if it leads, whether rounds end. If they do
/// not, the platform should restart the process, so that another one leads.
async fn alive(State(health): State<Health>) -> Response {
    match health.metrics.since_round() {
        Some(since) if since > STANDS_STILL => {
            let words = format!("no round has ended for {} s\n", since.as_secs());
            (StatusCode::SERVICE_UNAVAILABLE, words).into_response()
        }
        _ => "alive\n".into_response(),
    }
}

/// `GET /readyz`: whether the database answers too. A process that waits for the leadership is as
/// ready as the leader. Otherwise a rolling update could not proceed.
async fn ready(State(health): State<Health>) -> Response {
    match tokio::time::timeout(PATIENCE, pool::ping(&health.pools.own)).await {
        Ok(Ok(())) if *health.leader.borrow() => "ready, leading\n".into_response(),
        Ok(Ok(())) => "ready, waiting to lead\n".into_response(),
        Ok(Err(_)) | Err(_) => {
            let words = "the database does not answer\n";
            (StatusCode::SERVICE_UNAVAILABLE, words).into_response()
        }
    }
}

/// `GET /metrics`.
async fn show(State(health): State<Health>) -> Response {
    let Pools { own, sessions } = &health.pools;
    let text = health.metrics.text(Present {
        leads: *health.leader.borrow(),
        connections: own.size() + sessions.size(),
        idle: own.num_idle() + sessions.num_idle(),
    });
    ([(CONTENT_TYPE, TEXT_FORMAT)], text).into_response()
}
