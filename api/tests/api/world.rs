//! Fixture of the tests: two tenants with a member each, an administrator, a node, and helpers for
//! requests.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use muster_api::config::{ApiSettings, ClientLimits};
use muster_api::{ApiState, auth, router};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::id::{JobId, NodeId, TaskId, TenantId};
use muster_model::job::{AfterStop, RequeueCause};
use muster_model::node::{Capacity, Gpu, GpuKind};
use muster_model::plan::{Action, JobDecision, PlannedTask, RoundPlan};
use muster_model::progress::Sample;
use muster_model::task::{Outcome, Role};
use muster_model::tenant::{Access, Tenant};
use muster_model::view::Problem;
use muster_secret::{KeySource, new_key};
use muster_store::plan::PlanIds;
use muster_store::pool::{self, StorePool};
use muster_store::report::{NodeReport, TaskEvents};
use muster_store::token::NewTokenRecord;
use muster_store::user::User;
use muster_store::{event, job, node, plan, report, tenant, tenant_scope, token, user};
use muster_testdb::TestDb;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use uuid::Uuid;

pub const ADMIN: &str = "admin-of-red";
pub const RED: &str = "member-of-red";
pub const BLUE: &str = "member-of-blue";

pub struct World {
    pub db: TestDb,
    pub app: ApiState,
    pub router: Router,
    pub scheduler: StorePool,
    pub red: TenantId,
    pub node: NodeId,
    pub files: tempfile::TempDir,
    stopping: CancellationToken,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

pub fn id<T: From<Uuid>>() -> T {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Uuid::from_u128(u128::from(NEXT.fetch_add(1, Ordering::Relaxed))).into()
}

pub fn at(seconds: u64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).expect("a date")
        + Duration::from_secs(seconds)
}

/// Returns a study whose trials have this job document and different batches.
pub fn study_of(name: &str, mut job: Value) -> Value {
    let part = job.as_object_mut().expect("an object");
    for field in ["version", "name", "labels", "stop"] {
        part.remove(field);
    }
    json!({
        "version": "muster/v1", "kind": "study", "name": name,
        "search": {
            "objectives": [{ "metric": "test_loss", "goal": "minimize" }],
            "parameters": [{ "name": "batch", "field": "engine.batch", "type": "int", "low": 16, "high": 64 }],
            "budget": { "max": 3 }, "trials": 4,
        },
        "job": job,
    })
}

/// Returns a valid document.
pub fn document(name: &str) -> Value {
    json!({
        "version": "muster/v1", "name": name, "labels": { "team": name },
        "engine": {
            "model": { "kind": "mlp", "hidden": [8] }, "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "sgd", "learning_rate": 0.1 }, "batch": 64
        },
        "scale": { "workers": { "min": 1, "max": 2 }, "ps_shards": { "min": 1, "max": 1 } },
        "stop": { "epochs": 3 }
    })
}

pub fn sample(step: u64) -> Sample {
    Sample {
        step,
        epoch: 0.1,
        loss: 1.0,
        accuracy: Some(0.5),
        examples_per_s: Some(640.0),
        steps_per_s: 10.0,
        compute_ms: Some(1.0),
        exchange_ms: Some(0.5),
        data_ms: Some(0.25),
        workers: 1,
        ps_shards: 1,
        noise_scale: None,
        gain: None,
    }
}

pub fn progress(step: u64) -> TaskReport {
    TaskReport::Progress {
        sample: sample(step),
    }
}

/// Writes a key file.
fn keys(folder: &Path) -> KeySource {
    let path = folder.join("keys");
    let key = new_key("test").expect("a key");
    std::fs::write(&path, key.as_bytes()).expect("written");
    KeySource::File(path)
}

impl World {
    pub async fn new() -> Self {
        Self::with(ClientLimits::default()).await
    }

    pub async fn with(limits: ClientLimits) -> Self {
        Self::keyed(limits, keys).await
    }

    /// Starts with these keys of secrets, made in the folder of the world.
    pub async fn keyed(limits: ClientLimits, keys: impl FnOnce(&Path) -> KeySource) -> Self {
        let db = TestDb::new().await;
        let files = tempfile::tempdir().expect("a folder");
        let (red, blue) = (id(), id());
        people(&pool::api(&db.api_url, 2).expect("an address"), red, blue).await;
        let scheduler = pool::scheduler(&db.scheduler_url, 4).expect("an address");
        let mut tx = pool::begin(&scheduler).await.expect("a transaction");
        let gpus = (0..4)
            .map(|index| Gpu {
                index,
                kind: GpuKind::CpuSlot,
                model: "cpu".to_owned(),
                memory_bytes: 1 << 30,
                compute_capability: None,
            })
            .collect();
        let capacity = Capacity {
            gpus,
            cpu_milli: 8_000,
            memory_bytes: 8 << 30,
            rack: None,
            labels: std::collections::BTreeMap::new(),
            driver_suspend: None,
            pods: None,
            isolation: None,
            images: None,
        };
        let node = node::hello(&mut tx, id(), "node-a", &capacity, at(0))
            .await
            .expect("a node")
            .id;
        tx.commit().await.expect("commit");
        let checkpoints = files.path().join("checkpoints");
        let web = files.path().join("web");
        std::fs::create_dir_all(&checkpoints).expect("a folder");
        page(&web);
        let settings = ApiSettings {
            listen: ([127, 0, 0, 1], 0).into(),
            database_url: db.api_url.clone(),
            database_connections: 8,
            checkpoint_root: Some(muster_model::place::Place::Folder(checkpoints)),
            web_root: Some(web),
            secret_keys: keys(files.path()),
            scheduler: None,
            limits,
        };
        let stopping = CancellationToken::new();
        let app = ApiState::start(&settings, stopping.clone()).expect("an address");
        Self {
            router: router(&app),
            db,
            app,
            scheduler,
            red,
            node,
            files,
            stopping,
        }
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        self.try_send(request).await.expect("a whole body")
    }

    /// Returns an error if the body of the answer is aborted.
    pub async fn try_send(&self, request: Request<Body>) -> Result<Answer, axum::Error> {
        let response = self
            .router
            .clone()
            .oneshot(request)
            .await
            .expect("the router answers");
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, 64 << 20).await?.to_vec();
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        })
    }

    pub async fn get(&self, token: &str, path: &str) -> Answer {
        self.send(request(Method::GET, token, path, Body::empty()))
            .await
    }

    pub async fn try_get(&self, token: &str, path: &str) -> Result<Answer, axum::Error> {
        self.try_send(request(Method::GET, token, path, Body::empty()))
            .await
    }

    pub async fn post(&self, token: &str, path: &str, body: &Value) -> Answer {
        self.send(json_request(Method::POST, token, path, body))
            .await
    }

    pub async fn put_bytes(&self, token: &str, path: &str, bytes: &[u8]) -> Answer {
        let body = Body::from(bytes.to_vec());
        self.send(request(Method::PUT, token, path, body)).await
    }

    pub async fn delete(&self, token: &str, path: &str) -> Answer {
        self.send(request(Method::DELETE, token, path, Body::empty()))
            .await
    }

    /// Submits a job of tenant red.
    pub async fn submit(&self, name: &str) -> JobId {
        let answer = self.post(RED, "/api/v1/jobs", &document(name)).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
        answer.json::<Value>()["id"]
            .as_str()
            .expect("an id")
            .parse()
            .expect("a UUID")
    }

    /// Starts the job with one worker on `gpu` and one shard, and reports both as running. Returns
    /// worker and shard.
    pub async fn run(&self, job: JobId, revision: u64, gpu: u32) -> (TaskId, TaskId) {
        let tasks = vec![
            PlannedTask {
                role: Role::Worker { rank: 0 },
                node: self.node,
                gpus: vec![gpu],
            },
            PlannedTask {
                role: Role::PsShard { index: 0 },
                node: self.node,
                gpus: vec![],
            },
        ];
        let start = Action::Start {
            tasks,
            why: "room".to_owned(),
            lent: false,
        };
        let ids = self.step(job, revision, start).await;
        let (worker, shard) = (ids[0], ids[1]);
        let revision = revision + 1;
        self.observe(vec![
            (worker, revision, Observed::Running),
            (shard, revision, Observed::Running),
        ])
        .await;
        self.step(job, revision, Action::Up).await;
        (worker, shard)
    }

    /// Fails a running job with a charge, and returns it to the queue.
    pub async fn fail(&self, job: JobId, revision: u64, tasks: &[TaskId]) {
        let said = Some("no luck".to_owned());
        let outcome = Outcome::exited(1).saying(said);
        let why = format!("worker-0 {outcome}");
        let gone = Observed::Gone { outcome };
        let gone = tasks.iter().map(|task| (*task, revision, gone.clone()));
        self.observe(gone.collect()).await;
        let cause = RequeueCause::TaskFailed;
        let stop = Action::Stop {
            then: AfterStop::Requeue { cause },
            why,
            charge: muster_model::job::Charge::Failure,
            not_before_ms: None,
        };
        self.step(job, revision, stop).await;
        self.step(job, revision, Action::Release).await;
    }

    /// Ends a running job with success.
    pub async fn succeed(&self, job: JobId, revision: u64, tasks: &[TaskId]) {
        self.gone(tasks, revision).await;
        let stop = Action::Stop {
            then: AfterStop::Succeed,
            why: "done".to_owned(),
            charge: muster_model::job::Charge::None,
            not_before_ms: None,
        };
        self.step(job, revision, stop).await;
        self.step(job, revision, Action::Release).await;
    }

    /// Reports tasks as exited with code 0.
    pub async fn gone(&self, tasks: &[TaskId], revision: u64) {
        let gone = Observed::Gone {
            outcome: Outcome::exited(0),
        };
        self.observe(
            tasks
                .iter()
                .map(|task| (*task, revision, gone.clone()))
                .collect(),
        )
        .await;
    }

    /// Commits one action, which must succeed. Returns the ids of the tasks that it creates.
    pub async fn step(&self, job: JobId, expected_revision: u64, action: Action) -> Vec<TaskId> {
        let plan = RoundPlan {
            decisions: vec![JobDecision {
                job,
                expected_revision,
                action,
            }],
            ..RoundPlan::default()
        };
        let ids = PlanIds::of(&plan, id, || "s".to_owned());
        let mut tx = pool::begin(&self.scheduler).await.expect("a transaction");
        let outcome = plan::commit(&mut tx, &plan, &ids, at(10))
            .await
            .expect("a commit");
        assert_eq!(outcome.conflicts, []);
        tx.commit().await.expect("commit");
        let new = ids.revision(job);
        new.map_or_else(Vec::new, |new| new.tasks.clone())
    }

    pub async fn tell(
        &self,
        task_id: TaskId,
        revision: u64,
        first_seq: u64,
        events: Vec<TaskReport>,
    ) {
        let events = events
            .into_iter()
            .map(|event| (at(20 + first_seq), event))
            .collect();
        let run = TaskEvents {
            task_id,
            revision,
            first_seq,
            events,
        };
        self.report(NodeReport {
            events: vec![run],
            ..empty()
        })
        .await;
    }

    pub async fn write_log(&self, task: TaskId, offset: u64, bytes: &[u8]) {
        self.report(NodeReport {
            logs: vec![(task, offset, bytes.to_vec())],
            ..empty()
        })
        .await;
    }

    async fn observe(&self, statuses: Vec<(TaskId, u64, Observed)>) {
        self.report(NodeReport {
            statuses,
            ..empty()
        })
        .await;
    }

    async fn report(&self, told: NodeReport) {
        let mut tx = pool::begin(&self.scheduler).await.expect("a transaction");
        report::record(&mut tx, self.node, &told, at(30))
            .await
            .expect("a record");
        tx.commit().await.expect("commit");
    }

    /// Returns everything that requests could have changed, as text.
    pub async fn everything(&self) -> String {
        let mut text = String::new();
        let owner = pool::owner(&self.db.owner_url, 1).expect("an address");
        let mut tx = pool::begin(&owner).await.expect("a transaction");
        let jobs = job::list(&mut tx, &job::JobFilter::default(), None, 1000)
            .await
            .expect("jobs");
        let events = event::page(&mut tx, event::EventFilter::default(), None, 10_000)
            .await
            .expect("events");
        let tenants = tenant::list(&mut tx).await.expect("tenants");
        let tokens = token::list(&mut tx, None, 1000).await.expect("tokens");
        let nodes = node::list(&mut tx).await.expect("nodes");
        for part in [
            format!("{jobs:#?}"),
            format!("{events:#?}"),
            format!("{tenants:#?}"),
            format!("{tokens:#?}"),
            format!("{nodes:#?}"),
        ] {
            text.push_str(&part);
        }
        text
    }

    /// Ends all background tasks, including streams.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    pub fn checkpoints(&self) -> std::path::PathBuf {
        self.files.path().join("checkpoints")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().expect("text"))
    }

    /// Returns the refusal, after a check of its form.
    pub fn problem(&self) -> Problem {
        assert_eq!(
            self.header("content-type"),
            "application/problem+json",
            "{}",
            self.text()
        );
        let problem: Problem = self.json();
        assert_eq!(problem.status, self.status.as_u16());
        assert!(
            problem
                .instance
                .as_ref()
                .is_some_and(|id| id.starts_with("urn:muster:request:"))
        );
        problem
    }
}

pub fn request(method: Method, token: &str, path: &str, body: Body) -> Request<Body> {
    let builder = Request::builder().method(method).uri(path);
    let builder = if token.is_empty() {
        builder
    } else {
        builder.header("authorization", format!("Bearer {token}"))
    };
    builder.body(body).expect("a request")
}

pub fn json_request(method: Method, token: &str, path: &str, body: &Value) -> Request<Body> {
    let mut request = request(method, token, path, body.to_string().into());
    request.headers_mut().insert(
        "content-type",
        "application/json".parse().expect("a header"),
    );
    request
}

/// Adds an idempotency key.
pub fn keyed(mut request: Request<Body>, key: &str) -> Request<Body> {
    let key = key.parse().expect("a header");
    request.headers_mut().insert("idempotency-key", key);
    request
}

fn empty() -> NodeReport {
    NodeReport {
        statuses: Vec::new(),
        events: Vec::new(),
        logs: Vec::new(),
    }
}

fn page(web: &Path) {
    std::fs::create_dir_all(web.join("assets")).expect("a folder");
    std::fs::write(
        web.join("index.html"),
        "<!doctype html><title>Muster</title>",
    )
    .expect("a file");
    std::fs::write(web.join("assets/app-1a2b.js"), "export {};").expect("a file");
}

async fn people(pool: &StorePool, red: TenantId, blue: TenantId) {
    let mut tx = pool::begin(pool).await.expect("a transaction");
    tenant_scope::admin(&mut tx).await.expect("a scope");
    for (id, name) in [(red, "red"), (blue, "blue")] {
        let new = Tenant {
            id,
            name: name.to_owned(),
            gpu_quota: Some(8),
            weight: muster_model::tenant::EQUAL_WEIGHT,
            pods: muster_model::tenant::TenantPods::default(),
            preemption: muster_model::tenant::TenantPreemption::default(),
            shares_families: false,
            interactive: false,
        };
        tenant::create(&mut tx, &new, at(0))
            .await
            .expect("a tenant");
    }
    for (tenant_id, name, secret, access) in [
        (red, "ada", ADMIN, Access::Admin),
        (red, "rob", RED, Access::Member),
        (blue, "bea", BLUE, Access::Member),
    ] {
        tenant_scope::tenant(&mut tx, tenant_id)
            .await
            .expect("a scope");
        let user_id = id();
        user::create(
            &mut tx,
            &User {
                id: user_id,
                tenant_id,
                name: name.to_owned(),
            },
            at(0),
        )
        .await
        .expect("a user");
        let hash = auth::hash(secret);
        let new = NewTokenRecord {
            id: id(),
            tenant_id,
            user_id,
            name: "test".to_owned(),
            access,
            hash,
            expires_at: None,
        };
        token::create(&mut tx, &new, at(0)).await.expect("a token");
    }
    tx.commit().await.expect("commit");
}
