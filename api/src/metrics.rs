//! What the daemon counts of itself, in the text format of Prometheus. No tenant, user or job is named in it.

use crate::clock;
use crate::state::App;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use muster_store::StoreError;
use muster_store::demand::{self, Demand};
use muster_store::pool;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Whoever asks more often is told the same: this needs no token, and must not keep the database busy.
const DEMAND_KNOWN: Duration = Duration::from_secs(5);
/// What the daemon counts of itself does not wait longer for the database.
const DEMAND_LIMIT: Duration = Duration::from_millis(500);
/// Upper bounds of the buckets of answer times.
const BUCKETS_S: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<Key, Series>>,
    streams: AtomicI64,
    /// Asked by one at a time.
    demand: tokio::sync::Mutex<Known>,
}

/// How much waits, as it was last read.
#[derive(Debug, Default)]
struct Known {
    /// When it was read, or was to be read in vain.
    asked_at: Option<Instant>,
    demand: Option<Demand>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    method: String,
    /// The route's pattern; paths themselves would be without number.
    route: String,
    status: u16,
}

#[derive(Debug, Default)]
struct Series {
    buckets: [u64; BUCKETS_S.len()],
    count: u64,
    sum_s: f64,
}

/// An open stream, counted while it lives.
pub struct OpenStream(App);

impl OpenStream {
    #[must_use]
    pub fn count(app: &App) -> Self {
        app.metrics.streams.fetch_add(1, Ordering::Relaxed);
        Self(app.clone())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.metrics.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The layer that counts.
pub async fn count(State(app): State<App>, request: Request, next: Next) -> Response {
    let started = clock::monotonic();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("none", MatchedPath::as_str)
        .to_owned();
    // A client may invent methods; they are counted as one.
    let method = match request.method().as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => {
            known.to_owned()
        }
        _ => "other".to_owned(),
    };
    let response = next.run(request).await;
    let took_s = clock::monotonic().duration_since(started).as_secs_f64();
    let key = Key {
        method,
        route,
        status: response.status().as_u16(),
    };
    let mut requests = app
        .metrics
        .requests
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let series = requests.entry(key).or_default();
    series.count += 1;
    series.sum_s += took_s;
    for (bucket, bound) in series.buckets.iter_mut().zip(BUCKETS_S) {
        *bucket += u64::from(took_s <= bound);
    }
    drop(requests);
    response
}

/// `GET /metrics`.
pub async fn show(State(app): State<App>) -> Response {
    let mut text = app.metrics.text(app.pool.size(), app.pool.num_idle());
    if let Some(demand) = known_demand(&app).await {
        text.push_str(&of_demand(&demand));
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

/// Where the database does not answer it is what was last known of it, and it is asked again as seldom.
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

/// What waits, by reason, and what there is.
fn of_demand(demand: &Demand) -> String {
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, values: &[(String, u64)]| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let waiting = |count: fn(&demand::Waiting) -> u64| -> Vec<(String, u64)> {
        let all = demand.waiting.iter();
        all.map(|one| (format!("{{reason=\"{}\"}}", one.reason), count(one)))
            .collect()
    };
    gauge(
        "muster_waiting_jobs",
        "Jobs that wait to start, by the reason of the newest round.",
        &waiting(|one| one.jobs),
    );
    gauge(
        "muster_waiting_gpus",
        "GPUs that the smallest gangs of waiting jobs need, by reason.",
        &waiting(|one| one.gpus),
    );
    for (name, help, value) in [
        ("muster_gpus", "GPUs of nodes that are up.", demand.gpus),
        (
            "muster_gpus_held",
            "Of these, held by tasks.",
            demand.held_gpus,
        ),
        (
            "muster_gpus_closed",
            "Of these, on nodes that take no new tasks, or held by pods of others.",
            demand.closed_gpus,
        ),
    ] {
        gauge(name, help, &[(String::new(), value)]);
    }
    text
}

impl Metrics {
    fn text(&self, connections: u32, idle: usize) -> String {
        let mut text = String::from(
            "# HELP muster_api_request_seconds Time from a request to the head of its answer.\n# TYPE muster_api_request_seconds histogram\n",
        );
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        for (
            Key {
                method,
                route,
                status,
            },
            series,
        ) in requests.iter()
        {
            let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
            for (count, bound) in series.buckets.iter().zip(BUCKETS_S) {
                let _ = writeln!(
                    text,
                    "muster_api_request_seconds_bucket{{{labels},le=\"{bound}\"}} {count}"
                );
            }
            let Series { count, sum_s, .. } = series;
            let _ = writeln!(
                text,
                "muster_api_request_seconds_bucket{{{labels},le=\"+Inf\"}} {count}"
            );
            let _ = writeln!(text, "muster_api_request_seconds_sum{{{labels}}} {sum_s}");
            let _ = writeln!(text, "muster_api_request_seconds_count{{{labels}}} {count}");
        }
        let streams = self.streams.load(Ordering::Relaxed);
        let gauges = [
            (
                "muster_api_streams",
                "Event streams that are open.",
                streams,
            ),
            (
                "muster_api_database_connections",
                "Connections to Postgres.",
                i64::from(connections),
            ),
            (
                "muster_api_database_connections_idle",
                "Of these, idle.",
                i64::try_from(idle).unwrap_or(i64::MAX),
            ),
        ];
        for (name, help, value) in gauges {
            let _ = writeln!(
                text,
                "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}"
            );
        }
        text
    }
}
