//! Stand-in for Kubernetes' API and Muster's REST interface: one small server that records
//! requests. It has one object, one namespace, and the jobs and studies of some tenants. It
//! validates nothing; a study's phase changes only when a test sets it, as without a scheduler.

pub mod cluster;

use kube::runtime::controller::Action;
use muster_model::tenant::{TenantLimits, TenantPreemption};
use muster_operator::context::OperatorContext;
use muster_operator::error::Error;
use muster_operator::job::status::JobStatus;
use muster_operator::metrics::{self, OperatorMetrics};
use muster_operator::resource::{Object, ObjectStatus};
use muster_operator::study::status::StudyStatus;
use muster_operator::tenant::TenantStatus;
use muster_operator::tenants::{AdminToken, Tenants};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

pub const UID: &str = "uid-of-the-object";

#[derive(Debug, Default)]
pub struct State {
    /// `None` once it is deleted.
    pub object: Option<Value>,
    /// Tenant of the namespace.
    pub tenant: String,
    pub tenants: BTreeSet<String>,
    pub jobs: Vec<Value>,
    pub studies: Vec<Value>,
    /// Field for which every change of a job is rejected.
    pub unwilling: Option<&'static str>,
    /// Rejected tokens.
    pub revoked: BTreeSet<String>,
    /// Token (`-` for Kubernetes), method and path of all requests that change something.
    pub asked: Vec<String>,
    /// Events of Kubernetes: method, reason, and the count of a repeated event.
    pub noted: Vec<String>,
    /// Statuses that were applied to the object.
    pub applied: Vec<Value>,
    /// Paths with queries of all reads from Muster.
    pub read: Vec<String>,
    /// Events of the stream, in order.
    pub events: Vec<Value>,
    /// Muster rejects lists of jobs, except by ids.
    pub lists_nothing: bool,
    /// Muster also rejects lists by several ids.
    pub knows_no_ids: bool,
    /// Muster fails lists by ids, as during a restart.
    pub is_away_for_ids: bool,
    /// There is no event stream.
    pub is_mute: bool,
    /// Muster answers for no job.
    pub is_away: bool,
    /// Kubernetes rejects statuses.
    pub takes_no_status: bool,
    /// Pods of all namespaces.
    pub pods: Vec<Value>,
    /// Placeholders that the operator has created.
    pub placeholders: Vec<Value>,
    /// Permissions of the tenant's pods in Muster.
    pub tenant_pods: Value,
    /// Limits of the tenant in Muster; initially the defaults.
    pub tenant_limits: TenantLimits,
    pub tenant_preemption: TenantPreemption,
    pub tenant_shares_families: bool,
    pub tenant_interactive: bool,
    /// Notice of the node in Muster.
    pub notice: Value,
    tokens: usize,
}

#[derive(Debug, Clone)]
pub struct World {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl World {
    /// Namespace `vision` of the tenant `vision`, an object `mine` in it, and another tenant,
    /// `other`.
    pub async fn with(kind: &str, spec: Value) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let object = json!({
            "apiVersion": "muster.dev/v1alpha1",
            "kind": kind,
            "metadata": { "name": "mine", "namespace": "vision", "uid": UID, "resourceVersion": "1", "generation": 1 },
            "spec": spec,
        });
        let state = Arc::new(Mutex::new(State {
            object: Some(object),
            tenant: "vision".to_owned(),
            tenants: ["vision", "other"].map(str::to_owned).into(),
            ..State::default()
        }));
        tokio::spawn(serve(listener, Arc::clone(&state)));
        Self { port, state }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    pub fn uri(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Operator that was just started.
    pub fn operator(&self) -> Arc<OperatorContext> {
        let uri = self.uri();
        let config = kube::Config::new(uri.parse().expect("an address"));
        let metrics = OperatorMetrics::default();
        let kubernetes = metrics::kubernetes(config, &metrics).expect("a client");
        let token = AdminToken::Given("admin".to_owned());
        let server = format!("{uri}/muster");
        let tenants = Tenants::new(kubernetes.clone(), server, token, None, metrics.clone());
        Arc::new(OperatorContext::new(
            kubernetes,
            tenants,
            "here".to_owned(),
            metrics,
        ))
    }

    /// Returns the object as the watch has shown it.
    pub fn seen<S: ObjectStatus>(&self) -> Arc<Object<S>> {
        let object = self.state().object.clone().expect("it is there");
        Arc::new(serde_json::from_value(object).expect("an object"))
    }

    /// One reconciliation of an operator that was just started.
    pub async fn reconcile_job(&self) -> Result<Action, Error> {
        muster_operator::reconcile_flow::reconcile::<JobStatus>(self.seen(), self.operator()).await
    }

    pub async fn reconcile_study(&self) -> Result<Action, Error> {
        muster_operator::reconcile_flow::reconcile::<StudyStatus>(self.seen(), self.operator())
            .await
    }

    pub async fn reconcile_tenant(&self) -> Result<Action, Error> {
        muster_operator::tenant::reconcile(self.seen::<TenantStatus>(), self.operator()).await
    }

    pub fn suspend(&self, held: bool) {
        self.change(|object| object["spec"]["suspend"] = held.into());
    }

    pub fn delete(&self) {
        self.change(|object| {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into()
        });
    }

    pub fn change(&self, change: impl FnOnce(&mut Value)) {
        change(self.state().object.as_mut().expect("it is there"));
    }

    pub fn status(&self) -> Value {
        self.state().object.as_ref().expect("it is there")["status"].clone()
    }

    /// Publishes an event of the job on the stream.
    pub fn tell(&self, job: &str) {
        let mut state = self.state();
        let cursor = format!("{}-1", state.events.len() + 1);
        let waits = json!({ "kind": "note", "message": "something has happened" });
        state.events.push(json!({
            "cursor": cursor, "at": "2026-01-01T00:00:00Z", "tenant_id": null, "job_id": job, "node_id": null, "event": waits,
        }));
    }

    /// Returns the recorded changes with this beginning, and clears the record.
    pub fn told(&self, beginning: &str) -> Vec<String> {
        let asked = std::mem::take(&mut self.state().asked);
        let mut told = asked;
        told.retain(|one| one.starts_with(beginning));
        told
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            // A disconnected client needs no answer.
            let _ = converse(stream, &state).await;
        });
    }
}

async fn converse(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        let (Some(method), Some(path)) = (words.next(), words.next()) else {
            return Ok(());
        };
        let (mut length, mut token, mut acting) = (0, "-".to_owned(), None);
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await?;
            let Some((name, value)) = header.trim().split_once(": ") else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().expect("a length"),
                "authorization" => token = value.trim_start_matches("Bearer ").to_owned(),
                "muster-tenant" => acting = Some(format!("{}/admin", value.trim())),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let token = acting.unwrap_or(token);
        if path.contains("watch=true") {
            return cluster::watch(stream.get_mut(), &path, state).await;
        }
        let is_stream = path.starts_with("/muster/api/v1/stream");
        if is_stream && !state.lock().expect("no test panics with it").is_mute {
            return stream_events(stream.get_mut(), state).await;
        }
        let (status, answer) = {
            let mut state = state.lock().expect("no test panics with it");
            state.answer(
                &method,
                &path.replace("%3D", "=").replace("%2F", "/"),
                &token,
                &body,
            )
        };
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 {status} Said\r\ncontent-type: application/{}json\r\ncontent-length: {}\r\n\r\n",
            if status < 400 { "" } else { "problem+" },
            answer.len()
        );
        stream
            .get_mut()
            .write_all((head + &answer).as_bytes())
            .await?;
    }
}

/// Streams events until the client disconnects.
async fn stream_events(to: &mut TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 Said\r\ncontent-type: text/event-stream\r\n\r\n";
    let opened = "event: opened\nid: 0-0\ndata: {\"cursor\":\"0-0\"}\n\n";
    to.write_all(format!("{head}{opened}").as_bytes()).await?;
    let mut told = state.lock().expect("no test panics with it").events.len();
    loop {
        let new = state.lock().expect("no test panics with it").events[told..].to_vec();
        told += new.len();
        for event in new {
            let cursor = event["cursor"].as_str().expect("a cursor");
            let message = format!("event: event\nid: {cursor}\ndata: {event}\n\n");
            to.write_all(message.as_bytes()).await?;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

impl State {
    fn answer(&mut self, method: &str, path: &str, token: &str, body: &Value) -> (u16, Value) {
        if method == "GET" && path.starts_with("/muster/") {
            self.read.push(path.to_owned());
        }
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let tenant = token.split('/').next().unwrap_or_default().to_owned();
        if method != "GET" && !path.ends_with("/tokens") && !path.contains("/events") {
            self.asked.push(format!("{tenant} {method} {path}"));
        }
        if let Some(answer) = self.cluster(method, path, body) {
            return answer;
        }
        let Some(path) = path.strip_prefix("/muster/api/v1/") else {
            return self.kubernetes(method, path, body);
        };
        if path == "tokens" {
            return self.token(body);
        }
        if self.revoked.contains(token) {
            return problem(401, "");
        }
        let segments: Vec<&str> = path.split('/').collect();
        self.muster(method, &segments, query, &tenant, body)
    }

    fn token(&mut self, body: &Value) -> (u16, Value) {
        let tenant = body["tenant"].as_str().expect("a tenant");
        if !self.tenants.contains(tenant) {
            return problem(422, "tenant");
        }
        self.tokens += 1;
        let secret = format!("{tenant}/{}", self.tokens);
        (
            201,
            json!({
                "id": "01890000-0000-7000-8000-0000000000ff", "name": "operator", "user": "kubernetes", "tenant": tenant,
                "access": "member", "expires_at": null, "secret": secret,
            }),
        )
    }

    fn kubernetes(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        if path.starts_with("/api/v1/namespaces/") {
            let labels = json!({ "muster.dev/tenant": self.tenant });
            let metadata = json!({ "name": "vision", "labels": labels });
            let kind = "PartialObjectMetadata";
            return (
                200,
                json!({ "apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": metadata }),
            );
        }
        if path.contains("/events.k8s.io/") {
            let reason = body["reason"].as_str().expect("a reason");
            let times = body["series"]["count"].as_u64().unwrap_or(1);
            self.noted.push(format!("{method} {reason} {times}"));
            return (200, body.clone());
        }
        let Some(object) = &mut self.object else {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "not found", "reason": "NotFound", "code": 404,
            });
            return (404, status);
        };
        if path.ends_with("/status") {
            object["status"] = body["status"].clone();
            self.applied.push(body.clone());
        } else {
            for field in ["finalizers", "annotations"] {
                if let Some(value) = body["metadata"].get(field) {
                    object["metadata"][field] = value.clone();
                }
            }
        }
        (200, object.clone())
    }

    fn muster(
        &mut self,
        method: &str,
        segments: &[&str],
        query: &str,
        tenant: &str,
        body: &Value,
    ) -> (u16, Value) {
        let all = match segments[0] {
            "jobs" => &mut self.jobs,
            _ => &mut self.studies,
        };
        match (method, segments) {
            ("GET", [_]) => {
                let (ids, phases) = (values(query, "id"), values(query, "phase"));
                if self.lists_nothing && ids.is_empty() {
                    return problem(503, "");
                }
                if self.knows_no_ids && !ids.is_empty() {
                    return problem(400, "id");
                }
                if self.is_away_for_ids && !ids.is_empty() {
                    return problem(503, "");
                }
                let labels = query
                    .split('&')
                    .filter_map(|part| part.strip_prefix("label="));
                let labels: Vec<_> = labels.filter_map(|label| label.split_once('=')).collect();
                let mut items = all.clone();
                items.retain(|item| {
                    let is_one = is_one_of(&ids, &item["id"]) && is_one_of(&phases, &item["phase"]);
                    let mut labels = labels.iter();
                    let has_labels = labels.all(|(name, value)| item["labels"][name] == *value);
                    item["tenant"] == tenant && is_one && has_labels
                });
                (200, json!({ "items": items, "next": null }))
            }
            ("POST", ["jobs"]) => {
                all.push(job("01890000-0000-7000-8000-000000000009", tenant, body));
                (201, all[all.len() - 1].clone())
            }
            ("POST", ["studies"]) => {
                all.push(study("01890000-0000-7000-8000-000000000009", tenant, body));
                (201, all[all.len() - 1].clone())
            }
            ("PATCH", ["jobs", id]) => {
                if let Some(field) = self.unwilling {
                    return problem(422, field);
                }
                let found = all
                    .iter_mut()
                    .find(|one| one["id"] == *id && one["tenant"] == tenant);
                let Some(one) = found else {
                    return problem(404, "");
                };
                if let Some(workers) = body.get("workers") {
                    one["spec"]["scale"]["workers"] = workers.clone();
                    for end in ["min", "max"] {
                        one["workers"][end] = workers[end].clone();
                    }
                }
                for field in ["priority", "priority_class"] {
                    if let Some(value) = body.get(field) {
                        one["spec"][field] = value.clone();
                    }
                }
                (200, one.clone())
            }
            (_, [kind, id, verb @ ..]) => {
                let Some(one) = all
                    .iter_mut()
                    .find(|one| one["id"] == *id && one["tenant"] == tenant)
                else {
                    return problem(404, "");
                };
                if *kind == "jobs"
                    && let [verb] = verb
                {
                    let intent = if *verb == "resume" { "run" } else { verb };
                    one["intent"] = intent.into();
                }
                (200, one.clone())
            }
            _ => problem(405, ""),
        }
    }
}

/// Values of a parameter of a query, such as `b` and `c` of `a=b&a=c`.
fn values<'a>(query: &'a str, name: &str) -> Vec<&'a str> {
    let parts = query.split('&').filter_map(|part| part.split_once('='));
    let parts = parts.filter(|(key, _)| *key == name);
    parts.map(|(_, value)| value).collect()
}

/// Whether the value is among the requested ones; without any, every value is.
fn is_one_of(requested: &[&str], value: &Value) -> bool {
    let value = value.as_str();
    requested.is_empty() || value.is_some_and(|value| requested.contains(&value))
}

fn problem(status: u16, field: &str) -> (u16, Value) {
    let error = json!({ "field": field, "value": "?", "expected": "another" });
    let errors: Vec<Value> = [error].into_iter().filter(|_| !field.is_empty()).collect();
    (
        status,
        json!({ "type": "urn:x", "title": "t", "status": status, "detail": "d", "errors": errors }),
    )
}

/// Running job as the REST interface shows it.
pub fn job(id: &str, tenant: &str, document: &Value) -> Value {
    json!({
        "id": id, "tenant": tenant, "name": document["name"], "labels": document["labels"], "priority": 0,
        "phase": "running", "state": { "phase": "running" }, "intent": "run", "revision": 1, "failures": 0, "waiting": null,
        "workers": { "running": 1, "min": 1, "max": 1 }, "ps_shards": { "running": 0, "min": 0, "max": 0 },
        "progress": null, "model_path": null, "failure": null, "resume_step": null, "submitted_by": "kubernetes",
        "submitted_at": "2026-01-01T00:00:00Z", "started_at": null, "finished_at": null, "spec": document,
    })
}

/// Running study.
pub fn study(id: &str, tenant: &str, document: &Value) -> Value {
    let counts = [
        "created",
        "running",
        "waiting",
        "stopping",
        "completed",
        "stopped",
        "failed",
        "best",
    ];
    let mut trials: Value = counts
        .into_iter()
        .map(|count| (count.to_owned(), 0.into()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    trials["limit"] = 2.into();
    json!({
        "id": id, "tenant": tenant, "name": document["name"], "labels": document["labels"], "phase": "running", "trials": trials,
        "best": [], "events": 0, "created_by": "kubernetes", "created_at": "2026-01-01T00:00:00Z", "finished_at": null,
        "document": document,
    })
}
