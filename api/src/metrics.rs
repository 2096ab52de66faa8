//! What the daemon counts of itself, in the text format of Prometheus. No tenant, user or job is named in it.

use crate::clock;
use crate::state::App;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Upper bounds of the buckets of answer times.
const BUCKETS_S: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<Key, Series>>,
    streams: AtomicI64,
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
    let text = app.metrics.text(app.pool.size(), app.pool.num_idle());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
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
