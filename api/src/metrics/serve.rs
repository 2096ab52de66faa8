//! The layer that counts requests, and `GET /metrics`.

use super::{cluster_load_metrics, number};
use crate::clock;
use crate::state::ApiState;
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use muster_store::StoreError;
use muster_store::cluster_load::{self, ClusterLoad};
use muster_store::pool;
use prometheus::{TEXT_FORMAT, TextEncoder};
use std::time::Duration;

/// Lifetime of a cached cluster load: the route needs no token, and must not load the database.
const LOAD_LIFETIME: Duration = Duration::from_secs(5);
/// Maximum wait for the database, so that the other metrics are not delayed.
const LOAD_TIMEOUT: Duration = Duration::from_millis(500);

/// The layer that counts requests.
pub async fn count(State(app): State<ApiState>, request: Request, next: Next) -> Response {
    let started = clock::monotonic();
    // The pattern of the route, because the number of paths is unlimited.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("none", MatchedPath::as_str)
        .to_owned();
    let method = request.method().clone();
    let response = next.run(request).await;
    let took_s = clock::monotonic().duration_since(started).as_secs_f64();
    let status = response.status();
    let labels = [counted_as(&method), &route, status.as_str()];
    let series = app.metrics.requests.with_label_values(&labels);
    series.observe(took_s);
    response
}

/// Returns the label of a method. Clients may invent methods, which share one label.
fn counted_as(method: &Method) -> &str {
    match method.as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => known,
        _ => "other",
    }
}

/// `GET /metrics`.
pub async fn show(State(app): State<ApiState>) -> Response {
    let metrics = &app.metrics;
    metrics.connections.set(i64::from(app.pool.size()));
    metrics.idle.set(number(app.pool.num_idle() as u64));
    let mut families = metrics.all.gather();
    if let Some(load) = cached_cluster_load(&app).await {
        let load = cluster_load_metrics(&load).expect("names that are names, each of them once");
        families.extend(load.gather());
    }
    let text = TextEncoder::new().encode_to_string(&families);
    let text = text.expect("each family has a name and a value");
    ([(CONTENT_TYPE, TEXT_FORMAT)], text).into_response()
}

/// Returns the cluster load. If the database does not answer, returns the last known one, without
/// querying more often.
async fn cached_cluster_load(app: &ApiState) -> Option<ClusterLoad> {
    let mut known = app.metrics.cluster_load.lock().await;
    let now = clock::monotonic();
    if known
        .asked_at
        .is_none_or(|at| now.duration_since(at) >= LOAD_LIFETIME)
    {
        known.asked_at = Some(now);
        match tokio::time::timeout(LOAD_TIMEOUT, read_cluster_load(app)).await {
            Ok(Ok(load)) => known.load = Some(load),
            Ok(Err(error)) => tracing::warn!(%error, "how much waits is not known"),
            Err(_) => tracing::warn!("how much waits is not known: the database is slow"),
        }
    }
    known.load.clone()
}

async fn read_cluster_load(app: &ApiState) -> Result<ClusterLoad, StoreError> {
    let mut tx = pool::begin(&app.pool).await?;
    cluster_load::cluster_load(&mut tx).await
}
