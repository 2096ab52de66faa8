//! Metrics of the daemon, in the text format of Prometheus. They contain no tenant, user or job.

use crate::clock;
use crate::state::App;
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use muster_store::StoreError;
use muster_store::demand::{self, Demand};
use muster_store::pool;
use prometheus::{
    HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry, TEXT_FORMAT, TextEncoder,
    register_histogram_vec_with_registry, register_int_counter_vec_with_registry,
    register_int_counter_with_registry, register_int_gauge_vec_with_registry,
    register_int_gauge_with_registry,
};
use std::time::{Duration, Instant};

/// Lifetime of a cached cluster load: the route needs no token, and must not load the database.
const DEMAND_KNOWN: Duration = Duration::from_secs(5);
/// Maximum wait for the database, so that the other metrics are not delayed.
const DEMAND_LIMIT: Duration = Duration::from_millis(500);
/// Upper bounds of the buckets of answer times.
const BUCKETS_S: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug)]
pub struct Metrics {
    all: Registry,
    requests: HistogramVec,
    streams: IntGauge,
    refused_connections: IntCounter,
    failures: IntCounterVec,
    connections: IntGauge,
    idle: IntGauge,
    /// Queried by one request at a time.
    demand: tokio::sync::Mutex<Known>,
}

/// Cached cluster load.
#[derive(Debug, Default)]
struct Known {
    /// Time of the last query, also of a failed one.
    asked_at: Option<Instant>,
    demand: Option<Demand>,
}

/// An open stream; counted until it is dropped.
pub struct OpenStream(App);

impl OpenStream {
    #[must_use]
    pub fn count(app: &App) -> Self {
        app.metrics.streams.inc();
        Self(app.clone())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.metrics.streams.dec();
    }
}

/// The layer that counts requests.
pub async fn count(State(app): State<App>, request: Request, next: Next) -> Response {
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
pub async fn show(State(app): State<App>) -> Response {
    let metrics = &app.metrics;
    metrics.connections.set(i64::from(app.pool.size()));
    metrics.idle.set(number(app.pool.num_idle() as u64));
    let mut families = metrics.all.gather();
    if let Some(demand) = known_demand(&app).await {
        let demand = of_demand(&demand).expect("names that are names, each of them once");
        families.extend(demand.gather());
    }
    let text = TextEncoder::new().encode_to_string(&families);
    let text = text.expect("each family has a name and a value");
    ([(CONTENT_TYPE, TEXT_FORMAT)], text).into_response()
}

/// Returns the cluster load. If the database does not answer, returns the last known one, without
/// querying more often.
async fn known_demand(app: &App) -> Option<Demand> {
    let mut known = app.metrics.demand.lock().await;
    let now = clock::monotonic();
    let is_fresh = |at: Instant| now.duration_since(at) < DEMAND_KNOWN;
    if !known.asked_at.is_some_and(is_fresh) {
        known.asked_at = Some(now);
        match tokio::time::timeout(DEMAND_LIMIT, read_demand(app)).await {
            Ok(Ok(demand)) => known.demand = Some(demand),
            Ok(Err(error)) => tracing::warn!(%error, "how much waits is not known"),
            Err(_) => tracing::warn!("how much waits is not known: the database is slow"),
        }
    }
    known.demand.clone()
}

async fn read_demand(app: &App) -> Result<Demand, StoreError> {
    let mut tx = pool::begin(&app.pool).await?;
    demand::demand(&mut tx).await
}

/// Registers waiting demand by reason, and capacity. The registry is new each time, so that a
/// reason without jobs disappears.
fn of_demand(demand: &Demand) -> prometheus::Result<Registry> {
    let present = Registry::new();
    let jobs = register_int_gauge_vec_with_registry!(
        "muster_waiting_jobs",
        "Jobs that wait to start, by the reason of the newest round.",
        &["reason"],
        present
    )?;
    let gpus = register_int_gauge_vec_with_registry!(
        "muster_waiting_gpus",
        "GPUs that the smallest gangs of waiting jobs need, by reason.",
        &["reason"],
        present
    )?;
    for waiting in &demand.waiting {
        let reason = [&waiting.reason];
        jobs.with_label_values(&reason).set(number(waiting.jobs));
        gpus.with_label_values(&reason).set(number(waiting.gpus));
    }
    register_int_gauge_with_registry!("muster_gpus", "GPUs of nodes that are up.", present)?
        .set(number(demand.gpus));
    register_int_gauge_with_registry!("muster_gpus_held", "Of these, held by tasks.", present)?
        .set(number(demand.held_gpus));
    register_int_gauge_with_registry!(
        "muster_gpus_closed",
        "Of these, on nodes that take no new tasks, or held by pods of others.",
        present
    )?
    .set(number(demand.closed_gpus));
    Ok(present)
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Default for Metrics {
    fn default() -> Self {
        Self::registered().expect("names that are names, each of them once")
    }
}

impl Metrics {
    pub fn connection_refused(&self) {
        self.refused_connections.inc();
    }

    pub fn authentication_failed(&self, reason: &str) {
        self.failures.with_label_values(&[reason]).inc();
    }

    fn registered() -> prometheus::Result<Self> {
        let all = Registry::new();
        Ok(Self {
            requests: register_histogram_vec_with_registry!(
                "muster_api_request_seconds",
                "Time from a request to the head of its answer.",
                &["method", "route", "status"],
                BUCKETS_S.to_vec(),
                all
            )?,
            streams: register_int_gauge_with_registry!(
                "muster_api_streams",
                "Event streams that are open.",
                all
            )?,
            refused_connections: register_int_counter_with_registry!(
                "muster_api_connections_refused_total",
                "Connections that were closed at once, as too many were open.",
                all
            )?,
            failures: register_int_counter_vec_with_registry!(
                "muster_api_authentication_failures_total",
                "Requests without a valid token, by reason.",
                &["reason"],
                all
            )?,
            connections: register_int_gauge_with_registry!(
                "muster_api_database_connections",
                "Connections to Postgres.",
                all
            )?,
            idle: register_int_gauge_with_registry!(
                "muster_api_database_connections_idle",
                "Of these, idle.",
                all
            )?,
            demand: tokio::sync::Mutex::default(),
            all,
        })
    }
}
