//! Metrics of the daemon, in the text format of Prometheus. They contain no tenant, user or job.

pub mod serve;

use muster_store::cluster_load::ClusterLoad;
use prometheus::{
    HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry,
    register_histogram_vec_with_registry, register_int_counter_vec_with_registry,
    register_int_counter_with_registry, register_int_gauge_vec_with_registry,
    register_int_gauge_with_registry,
};
use std::time::Instant;

/// Upper bounds of the buckets of answer times.
const BUCKETS_S: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug)]
pub struct ApiMetrics {
    all: Registry,
    requests: HistogramVec,
    streams: IntGauge,
    refused_connections: IntCounter,
    failures: IntCounterVec,
    connections: IntGauge,
    idle: IntGauge,
    /// Queried by one request at a time.
    cluster_load: tokio::sync::Mutex<CachedClusterLoad>,
}

/// Cached cluster load.
#[derive(Debug, Default)]
struct CachedClusterLoad {
    /// Time of the last query, also of a failed one.
    asked_at: Option<Instant>,
    load: Option<ClusterLoad>,
}

/// An open stream; counted until it is dropped.
pub struct OpenStream(IntGauge);

impl OpenStream {
    #[must_use]
    pub fn count(metrics: &ApiMetrics) -> Self {
        metrics.streams.inc();
        Self(metrics.streams.clone())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Registers waiting demand by reason, and capacity. The registry is new each time, so that a
/// reason without jobs disappears.
fn cluster_load_metrics(load: &ClusterLoad) -> prometheus::Result<Registry> {
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
    for waiting in &load.waiting {
        let reason = [&waiting.reason];
        jobs.with_label_values(&reason).set(number(waiting.jobs));
        gpus.with_label_values(&reason).set(number(waiting.gpus));
    }
    register_int_gauge_with_registry!("muster_gpus", "GPUs of nodes that are up.", present)?
        .set(number(load.gpus));
    register_int_gauge_with_registry!("muster_gpus_held", "Of these, held by tasks.", present)?
        .set(number(load.held_gpus));
    register_int_gauge_with_registry!(
        "muster_gpus_closed",
        "Of these, on nodes that take no new tasks, or held by pods of others.",
        present
    )?
    .set(number(load.closed_gpus));
    Ok(present)
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Default for ApiMetrics {
    fn default() -> Self {
        Self::registered().expect("names that are names, each of them once")
    }
}

impl ApiMetrics {
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
            cluster_load: tokio::sync::Mutex::default(),
            all,
        })
    }
}
