//! Metrics of the operator in Prometheus' text format. They name no tenant, user, job, object or
//! node.

mod objects;
mod requests;
mod status_lag;

pub use requests::kubernetes;

pub(crate) use objects::{object_watch, tenant_watch};

use self::objects::ObjectWatch;
use self::status_lag::StatusLag;
use crate::clock;
use crate::error::Error;
use muster_client::RequestOutcome;
use prometheus::{
    HistogramVec, IntCounterVec, Registry, TextEncoder, register_gauge_with_registry,
    register_histogram_vec_with_registry, register_int_counter_vec_with_registry,
    register_int_gauge_vec_with_registry,
};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Upper bounds in seconds of the buckets of reconcile durations and Kubernetes requests.
const BUCKETS_S: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Metrics, shared by all parts of the operator.
#[derive(Debug, Clone)]
pub struct OperatorMetrics {
    all: Registry,
    reconcile_durations: HistogramVec,
    kubernetes_requests: HistogramVec,
    muster_requests: IntCounterVec,
    state: Arc<Mutex<GaugeSources>>,
}

/// Sources of the gauges that are computed at each scrape.
#[derive(Debug, Default)]
struct GaugeSources {
    status_lag: StatusLag,
    /// One per followed kind, and per namespace if namespaces are named.
    watches: Vec<ObjectWatch>,
    /// Amounts that pods outside Muster hold, by resource.
    foreign: BTreeMap<String, u64>,
    /// Placeholders by pool.
    placeholders: BTreeMap<String, PlaceholderCounts>,
}

/// Placeholders of one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceholderCounts {
    /// Nodes that waiting jobs need.
    pub wanted: u32,
    /// Existing placeholder pods.
    pub there: u32,
}

impl Default for OperatorMetrics {
    fn default() -> Self {
        Self::registered().expect("names that are names, each of them once")
    }
}

impl OperatorMetrics {
    fn registered() -> prometheus::Result<Self> {
        let all = Registry::new();
        let started = register_gauge_with_registry!(
            "muster_operator_started_timestamp_seconds",
            "When this process started, Unix time: how often that changes is how often it was restarted.",
            all
        )?;
        let unix_ms = clock::now().unix_timestamp_nanos() / 1_000_000;
        started.set(unix_ms as f64 / 1e3);
        Ok(Self {
            reconcile_durations: register_histogram_vec_with_registry!(
                "muster_operator_look_seconds",
                "Time of a look at one object, with all that it had done, by the object's kind and by what came of it.",
                &["kind", "outcome"],
                BUCKETS_S.to_vec(),
                all
            )?,
            kubernetes_requests: register_histogram_vec_with_registry!(
                "muster_operator_kubernetes_request_seconds",
                "Time from a request to Kubernetes' API to the head of its answer, by what was asked for; where no answer came the status is none.",
                &["method", "resource", "status"],
                BUCKETS_S.to_vec(),
                all
            )?,
            muster_requests: register_int_counter_vec_with_registry!(
                "muster_operator_muster_requests_total",
                "Requests to Muster's REST interface, by what was asked for; where no answer came the status is none.",
                &["method", "resource", "status"],
                all
            )?,
            all,
            state: Arc::default(),
        })
    }

    /// Records a reconciliation of this kind, which started at `began`.
    pub(crate) fn reconciled<T>(&self, kind: &str, began: Instant, done: &Result<T, Error>) {
        let took = clock::monotonic().saturating_duration_since(began);
        let series = self
            .reconcile_durations
            .with_label_values(&[kind, outcome(done)]);
        series.observe(took.as_secs_f64());
    }

    /// Records that an object's job has changed and that the object does not show it yet.
    pub(crate) fn changed(&self, uid: String) {
        self.lock().status_lag.changed(uid, clock::monotonic());
    }

    /// Records that a reconciliation that started at `began` has shown all earlier changes of the
    /// object, or has scheduled a throttled write.
    pub(crate) fn shown(&self, uid: &str, began: Instant) {
        self.lock().status_lag.shown(uid, began);
    }

    /// Records that the object is not shown any more.
    pub(crate) fn gone(&self, uid: &str) {
        self.lock().status_lag.gone(uid);
    }

    /// Adds a watch whose objects are counted.
    pub(crate) fn add_watch(&self, watch: ObjectWatch) {
        self.lock().watches.push(watch);
    }

    pub(crate) fn foreign(&self, held: BTreeMap<String, u64>) {
        self.lock().foreign = held;
    }

    pub(crate) fn placeholders(&self, of_pools: BTreeMap<String, PlaceholderCounts>) {
        self.lock().placeholders = of_pools;
    }

    fn record_kubernetes_request(
        &self,
        (method, resource): (&str, &str),
        status: &str,
        took: Duration,
    ) {
        let labels = [method, resource, status];
        let series = self.kubernetes_requests.with_label_values(&labels);
        series.observe(took.as_secs_f64());
    }

    /// Counts an answered or failed request to Muster's REST interface.
    pub(crate) fn record_muster_request(&self, ended: &RequestOutcome<'_>) {
        let status = ended.status.map(|status| status.to_string());
        let labels = [ended.method, ended.of, status.as_deref().unwrap_or("none")];
        self.muster_requests.with_label_values(&labels).inc();
    }

    /// Returns all metrics as text. `list_age` is the age of the newest answered job list, of the
    /// tenant with the oldest one.
    pub(crate) fn text(&self, list_age: Option<Duration>) -> prometheus::Result<String> {
        let mut families = self.all.gather();
        families.extend(self.present(list_age)?.gather());
        TextEncoder::new().encode_to_string(&families)
    }

    /// Builds gauges anew at each scrape, so that phases, resources and pools without objects
    /// disappear.
    fn present(&self, list_age: Option<Duration>) -> prometheus::Result<Registry> {
        let present = Registry::new();
        register_gauge_with_registry!(
            "muster_operator_list_age_seconds",
            "Since the newest list of a tenant's jobs was asked for that was answered, of the tenant that has waited longest; 0 where none is followed.",
            present
        )?
        .set(list_age.unwrap_or_default().as_secs_f64());
        let mut state = self.lock();
        let all = objects::watched_objects(&state.watches);
        register_gauge_with_registry!(
            "muster_operator_behind_seconds",
            "Since the oldest change of a job is known that its object does not show yet; how far a job is, and its place, may wait for their turn.",
            present
        )?
        .set(state.status_lag.age(&all, clock::monotonic()).as_secs_f64());
        objects::register_object_gauges(&all, &present)?;
        register_node_gauges(&state, &present)?;
        Ok(present)
    }

    fn lock(&self) -> MutexGuard<'_, GaugeSources> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn register_node_gauges(state: &GaugeSources, present: &Registry) -> prometheus::Result<()> {
    let foreign = register_int_gauge_vec_with_registry!(
        "muster_operator_foreign_held",
        "GPUs and other resources of device plugins that pods outside Muster hold, by resource.",
        &["resource"],
        present
    )?;
    for (resource, count) in &state.foreign {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        foreign.with_label_values(&[resource]).set(count);
    }
    let wanted = register_int_gauge_vec_with_registry!(
        "muster_operator_placeholders_wanted",
        "Nodes that waiting jobs would need, by pool.",
        &["pool"],
        present
    )?;
    let there = register_int_gauge_vec_with_registry!(
        "muster_operator_placeholders",
        "Placeholders that are there for these, by pool.",
        &["pool"],
        present
    )?;
    for (pool, of_pool) in &state.placeholders {
        wanted.with_label_values(&[pool]).set(of_pool.wanted.into());
        there.with_label_values(&[pool]).set(of_pool.there.into());
    }
    Ok(())
}

fn outcome<T>(done: &Result<T, Error>) -> &'static str {
    match done {
        Ok(_) => "done",
        Err(Error::Kubernetes { .. }) => "failed_by_kubernetes",
        Err(Error::Muster { .. }) => "failed_by_muster",
        Err(Error::TokenFile { .. }) => "no_token",
    }
}
