//! Scheduler under test on a real Postgres, and a node that implements the session's protocol as an
//! executor does.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod train;

use muster_core::policy::{Policy, StartLimit};
use muster_model::assignment::{Observed, Peers, TaskLaunch, TaskReport};
use muster_model::id::{JobId, StudyId, TenantId, UserId};
use muster_model::job::Job;
use muster_model::node::{Capacity, Gpu, GpuKind};
use muster_model::progress::Sample;
use muster_model::question::{Answer, Question};
use muster_model::spec::JobSpec;
use muster_model::study::StudySpec;
use muster_model::tenant::{LimitsSet, Tenant, TenantPreemptionChange};
use muster_proto::MAX_MESSAGE_BYTES;
use muster_proto::session as proto;
use muster_proto::session::from_node::Message as From;
use muster_proto::session::node_sessions_client::NodeSessionsClient;
use muster_proto::session::node_sessions_server::NodeSessionsServer;
use muster_proto::session::remote_sessions_server::RemoteSessionsServer;
use muster_proto::session::to_node::Message as To;
use muster_scheduler::config::Rejoin;
use muster_scheduler::config::SchedulerConfig;
use muster_scheduler::erasure::Erasures;
use muster_scheduler::leader::Loops;
use muster_scheduler::metrics::Metrics;
use muster_scheduler::session::{self, Pools, Registry, Sessions};
use muster_scheduler::{clock, leader, lease, notifications, round};
use muster_store::pool::StorePool;
use muster_store::question::OpenQuestion;
use muster_store::study::NewStudy;
use muster_store::tenant::TenantUpdate;
use muster_testdb::TestDb;
use prost::Message as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Channel;

pub const TOKEN: &str = "a-join-token-for-tests";
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Connections of each pool.
pub const CONNECTIONS: u32 = 8;

/// One scheduler: rounds, leases and sessions, as in `main`.
pub struct Shell {
    pub address: SocketAddr,
    pub leads: watch::Receiver<bool>,
    pub metrics: Arc<Metrics>,
    pub erasures: Erasures,
    /// Connections of sessions only.
    pub sessions_pool: StorePool,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

pub struct Store {
    pub database: TestDb,
    pub pool: StorePool,
    /// Reads the rows of all tenants.
    owner: StorePool,
    tenant: TenantId,
    user: UserId,
}

impl Store {
    pub async fn new() -> Self {
        let database = TestDb::new().await;
        let tenant = Tenant {
            id: clock::id().into(),
            name: "default".into(),
            gpu_quota: None,
            weight: muster_model::tenant::EQUAL_WEIGHT,
            pods: muster_model::tenant::TenantPods::default(),
            preemption: muster_model::tenant::TenantPreemption::default(),
            shares_families: false,
            interactive: false,
        };
        let user = muster_store::user::User {
            id: clock::id().into(),
            tenant_id: tenant.id,
            name: "ada".into(),
        };
        let owner = muster_store::pool::owner(&database.owner_url, 2).expect("an address");
        let mut tx = muster_store::pool::begin(&owner)
            .await
            .expect("a transaction");
        muster_store::tenant::create(&mut tx, &tenant, clock::now())
            .await
            .expect("a tenant");
        muster_store::user::create(&mut tx, &user, clock::now())
            .await
            .expect("a user");
        tx.commit().await.expect("committed");
        let pool = muster_store::pool::scheduler(&database.scheduler_url, 8).expect("an address");
        Self {
            database,
            pool,
            owner,
            tenant: tenant.id,
            user: user.id,
        }
    }

    pub fn tenant(&self) -> TenantId {
        self.tenant
    }

    pub async fn submit(&self, workers: (u32, u32)) -> JobId {
        self.submit_document(serde_json::json!({
            "version": "muster/v1",
            "name": "job",
            "engine": {
                "model": { "kind": "mlp", "hidden": [8] },
                "dataset": { "name": "fashion-mnist" },
                "optimizer": { "kind": "sgd", "learning_rate": 0.1 },
                "batch": 64,
            },
            "scale": { "workers": { "min": workers.0, "max": workers.1 } },
            "stop": { "steps": 1000 },
        }))
        .await
    }

    pub async fn submit_document(&self, document: serde_json::Value) -> JobId {
        self.submit_at(document, clock::now()).await
    }

    pub async fn submit_at(&self, document: serde_json::Value, at: time::OffsetDateTime) -> JobId {
        let spec: JobSpec = serde_json::from_value(document).expect("a document");
        let pool = muster_store::pool::api(&self.database.api_url, 1).expect("an address");
        let mut tx = muster_store::pool::begin_for(&pool, self.tenant)
            .await
            .expect("a transaction");
        let new = muster_store::job::NewJob {
            id: clock::id().into(),
            tenant_id: self.tenant,
            submitted_by: self.user,
            spec,
        };
        let job = muster_store::job::insert(&mut tx, &new, at)
            .await
            .expect("inserted");
        tx.commit().await.expect("committed");
        job.id
    }

    /// Creates a study as the API server does for a member of the tenant.
    pub async fn create_study(&self, document: serde_json::Value) -> StudyId {
        let document: StudySpec = serde_json::from_value(document).expect("a document");
        document.validate().expect("valid");
        let new = NewStudy {
            id: clock::id().into(),
            tenant_id: self.tenant,
            created_by: self.user,
            document,
        };
        let mut tx = self.as_member().await;
        muster_store::study::insert(&mut tx, &new, clock::now())
            .await
            .expect("inserted");
        tx.commit().await.expect("committed");
        new.id
    }

    /// Sets limits of the tenant.
    pub async fn limit(&self, limits: LimitsSet) {
        let mut tx = muster_store::pool::begin(&self.owner)
            .await
            .expect("a transaction");
        muster_store::limit::write(&mut tx, self.tenant, &limits)
            .await
            .expect("written");
        tx.commit().await.expect("committed");
    }

    /// Sets caps of the tenant on preemption, as an administrator does.
    pub async fn cap(&self, preemption: TenantPreemptionChange) {
        let mut tx = self.as_administrator().await;
        let change = TenantUpdate {
            preemption: Some(preemption),
            ..TenantUpdate::default()
        };
        let changed = muster_store::tenant::change(&mut tx, self.tenant, change).await;
        assert!(changed.expect("changed").is_some());
        tx.commit().await.expect("committed");
    }

    /// Transaction of the API server for a member of the tenant.
    pub async fn as_member(&self) -> muster_store::pool::Transaction {
        let pool = muster_store::pool::api(&self.database.api_url, 1).expect("an address");
        muster_store::pool::begin_for(&pool, self.tenant)
            .await
            .expect("a transaction")
    }

    /// Transaction of the API server for an administrator.
    pub async fn as_administrator(&self) -> muster_store::pool::Transaction {
        let mut tx = self.as_member().await;
        muster_store::tenant_scope::admin(&mut tx)
            .await
            .expect("in scope");
        tx
    }

    /// Asks a question as the API server does for a member of the tenant.
    pub async fn ask(&self, question: Question) -> uuid::Uuid {
        let open = OpenQuestion {
            id: clock::id(),
            tenant: self.tenant,
            question,
        };
        let now = clock::now();
        let mut tx = muster_store::pool::begin(&self.owner)
            .await
            .expect("a transaction");
        let asked = muster_store::question::ask(&mut tx, &open, 1, now, now + PATIENCE).await;
        assert!(asked.expect("asked"));
        tx.commit().await.expect("committed");
        open.id
    }

    /// Withdraws a question, as the API server does after a disconnect of the client.
    pub async fn withdraw(&self, id: uuid::Uuid) {
        let mut tx = muster_store::pool::begin(&self.owner)
            .await
            .expect("a transaction");
        let forgotten = muster_store::question::forget(&mut tx, id).await;
        forgotten.expect("deleted");
        tx.commit().await.expect("committed");
    }

    pub async fn answer(&self, id: uuid::Uuid) -> Option<Answer> {
        let mut tx = muster_store::pool::begin(&self.owner)
            .await
            .expect("a transaction");
        let answer = muster_store::question::answer_of(&mut tx, id).await;
        answer.expect("read")
    }

    pub async fn job(&self, id: JobId) -> Job {
        let mut tx = muster_store::pool::begin(&self.owner)
            .await
            .expect("a transaction");
        muster_store::job::get(&mut tx, id)
            .await
            .expect("read")
            .expect("the job is there")
            .job
    }

    /// Newest forecast of the job.
    pub async fn forecast(&self, id: JobId) -> Option<muster_model::forecast::Forecast> {
        let mut tx = muster_store::pool::begin(&self.owner)
            .await
            .expect("a transaction");
        let row = muster_store::job::get(&mut tx, id).await.expect("read");
        row.expect("the job is there").forecast
    }

    pub async fn last_failure(&self, id: JobId) -> Option<String> {
        let mut tx = muster_store::pool::begin(&self.owner)
            .await
            .expect("a transaction");
        let row = muster_store::job::get(&mut tx, id).await.expect("read");
        row.expect("the job is there").last_failure
    }

    /// Texts of the tenant's note events, as a member sees them.
    pub async fn notes(&self) -> Vec<String> {
        let mut tx = self.as_member().await;
        let events = muster_store::event::recent(&mut tx, &[], None, 500).await;
        let events = events.expect("read").into_iter();
        let notes = events.filter_map(|stored| match stored.event {
            muster_model::event::Event::Note { message } => Some(message),
            _ => None,
        });
        notes.collect()
    }

    /// Waits until `right` is true of the job.
    pub async fn until(&self, id: JobId, what: &str, right: impl Fn(&Job) -> bool) -> Job {
        let reached = async {
            loop {
                let job = self.job(id).await;
                if right(&job) {
                    return job;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, reached).await {
            Ok(job) => job,
            Err(_) => panic!(
                "waiting for {what} was in vain; the job is {:?}",
                self.job(id).await.state
            ),
        }
    }
}

/// Settings for tests: short intervals, a short grace.
pub fn config(listen: SocketAddr, store: &Store, lease_ms: u64) -> SchedulerConfig {
    SchedulerConfig {
        secret_keys: muster_secret::KeySource::None,
        tls: None,
        listen,
        database_url: store.database.scheduler_url.clone(),
        join_token: TOKEN.into(),
        rejoin: Rejoin::Lost,
        lease_ms,
        heartbeat_ms: lease_ms / 4,
        grace_ms: 100,
        start_limit: StartLimit::default(),
        round_min_interval_ms: 5,
        round_max_interval_ms: 200,
        queue_window_jobs: muster_scheduler::config::QUEUE_WINDOW_JOBS,
        keep_rounds_s: 7 * 86_400,
        keep_ended_jobs_s: 180 * 86_400,
        keep_deleted_jobs_s: 30 * 86_400,
        keep_events_s: 90 * 86_400,
        keep_gone_nodes_s: 30 * 86_400,
        packing: None,
        preemption: muster_core::policy::PreemptionRules::default(),
        slicing: None,
        health_listen: None,
        policy: muster_core::policies::name::PolicyName::Optimus,
    }
}

/// Starts rounds and leases only.
fn lead(
    loops: &mut Loops,
    pool: &StorePool,
    config: &Arc<SchedulerConfig>,
    notifications: &notifications::Notifications,
    metrics: &Arc<Metrics>,
) {
    let (own, settings, metrics) = (pool.clone(), Arc::clone(config), Arc::clone(metrics));
    let notifications = notifications.clone();
    let policy = Policy {
        start_limit: Some(config.start_limit),
        ..Policy::named(config.policy)
    };
    loops.spawn("rounds", async move {
        round::run(&own, &policy, &settings, notifications, &metrics).await;
    });
    let (own, settings) = (pool.clone(), Arc::clone(config));
    loops.spawn("leases", async move { lease::run(&own, &settings).await });
}

impl Shell {
    pub async fn start(store: &Store, lease_ms: u64) -> Self {
        Self::start_with(store, lease_ms, |_| {}).await
    }

    /// Starts with another address of the database.
    pub async fn start_at(database_url: &str, store: &Store, lease_ms: u64) -> Self {
        Self::start_with(store, lease_ms, |config| {
            database_url.clone_into(&mut config.database_url);
        })
        .await
    }

    /// Starts with changed settings.
    pub async fn start_with(
        store: &Store,
        lease_ms: u64,
        change: impl FnOnce(&mut SchedulerConfig),
    ) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut config = config(address, store, lease_ms);
        change(&mut config);
        let config = Arc::new(config);
        let (notification_listener, notifications) = notifications::channel();
        let (leads_sender, leads) = watch::channel(false);
        let (registry, erasures) = (Registry::default(), Erasures::default());
        let metrics = Arc::new(Metrics::default());
        let connections =
            |most| muster_store::pool::scheduler(&config.database_url, most).expect("an address");
        let pools = Pools {
            own: connections(CONNECTIONS),
            sessions: connections(CONNECTIONS),
        };
        let sessions = Sessions::new(
            &pools,
            Arc::clone(&config),
            &notifications,
            (registry.clone(), erasures.clone()),
            leads.clone(),
            Arc::clone(&metrics),
        );
        let sessions_pool = pools.sessions.clone();
        let remote = RemoteSessionsServer::new(sessions.remote())
            .max_decoding_message_size(muster_proto::MAX_REMOTE_BYTES);
        let serve = tonic::transport::Server::builder()
            .layer(tower::util::MapRequestLayer::new(session::bounded))
            .add_service(
                NodeSessionsServer::new(sessions)
                    .max_decoding_message_size(MAX_MESSAGE_BYTES)
                    .max_encoding_message_size(MAX_MESSAGE_BYTES),
            )
            .add_service(remote)
            .serve_with_incoming(TcpListenerStream::new(listener));
        let tasks = vec![
            tokio::spawn(notification_listener.run(pools.own.clone())),
            tokio::spawn(leader::campaign(config.database_url.clone(), leads_sender)),
            tokio::spawn(async move { serve.await.expect("it serves") }),
            tokio::spawn({
                let (pool, mut leader) = (pools.own, leads.clone());
                let metrics = Arc::clone(&metrics);
                async move {
                    while leader.wait_for(|leads| *leads).await.is_ok() {
                        let term = leader::term(&mut leader, leader::TERM_ENDS, |loops| {
                            lead(loops, &pool, &config, &notifications, &metrics);
                        });
                        term.await.expect("a term ends as it should");
                        registry.end_all();
                    }
                }
            }),
        ];
        Self {
            address,
            leads,
            metrics,
            erasures,
            sessions_pool,
            tasks,
        }
    }

    /// Starts a scheduler and waits until it leads.
    pub async fn leading(store: &Store, lease_ms: u64) -> Self {
        let mut shell = Self::start(store, lease_ms).await;
        shell.until_it_leads().await;
        shell
    }

    /// Joins a node with one slot and an empty assignment.
    pub async fn joined(&self, name: &str) -> Node {
        let node = Node::dial(self.address, name, TOKEN, 1).await;
        let mut node = node.expect("welcome");
        node.assignment(|_| true).await;
        node
    }

    pub async fn until_it_leads(&mut self) {
        let leads = self.leads.wait_for(|leads| *leads);
        tokio::time::timeout(PATIENCE, leads)
            .await
            .expect("it leads in time")
            .expect("it lives");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// Node side of a session.
pub struct Node {
    pub outbox: mpsc::Sender<proto::FromNode>,
    pub inbox: tonic::Streaming<proto::ToNode>,
    number: u64,
    pub welcome: proto::Welcome,
    /// Generation of the newest accepted assignment.
    pub generation: u64,
    parts: proto::Assignment,
    messages: Vec<usize>,
    /// Sizes of the messages of the newest assignment.
    pub sent_bytes: Vec<usize>,
}

/// Contents of a Hello.
#[derive(Debug, Clone, Copy)]
pub struct Greeting<'a> {
    pub name: &'a str,
    pub token: &'a str,
    pub gpus: u32,
    pub identity: &'a str,
    pub credential: &'a str,
    pub generation: u64,
    pub takes_parts: bool,
    pub memory_bytes: u64,
    /// Whether its tasks are pods, if the node states it.
    pub pods: Option<bool>,
}

/// Greeting of a node with one GPU and its own credential.
pub const OWN: Greeting<'static> = Greeting {
    name: "node-1",
    token: TOKEN,
    gpus: 1,
    identity: "folder",
    credential: "own secret",
    generation: 0,
    takes_parts: true,
    memory_bytes: 64 << 30,
    pods: None,
};

/// A node that greeted with [`OWN`] and has the task of a job, and a client for its requests.
pub struct AssignedNode {
    pub job: JobId,
    pub task: String,
    pub client: NodeSessionsClient<Channel>,
    _node: Node,
    _shell: Shell,
    _store: Store,
}

impl AssignedNode {
    pub async fn new() -> Self {
        let store = Store::new().await;
        let mut shell = Shell::start_with(&store, 30_000, |_| {}).await;
        shell.until_it_leads().await;
        let mut node = Node::greet(shell.address, &OWN).await.expect("welcome");
        let document = serde_json::json!({
            "version": "muster/v1", "name": "job", "command": { "argv": ["true"] },
        });
        let job = store.submit_document(document).await;
        let tasks = node.assignment(|tasks| tasks.len() == 1).await;
        let url = format!("http://{}", shell.address);
        Self {
            job,
            task: tasks[0].launch.task_id.to_string(),
            client: NodeSessionsClient::connect(url).await.expect("it listens"),
            _node: node,
            _shell: shell,
            _store: store,
        }
    }
}

/// Returns how a node names its task in requests.
pub fn node_task(credential: &str, task: &str) -> Option<proto::NodeTask> {
    Some(proto::NodeTask {
        node_name: OWN.name.to_owned(),
        credential: credential.to_owned(),
        task_id: task.to_owned(),
    })
}

/// Does the same as [`node_task`] with the credential of [`OWN`].
pub fn own_task(task: &str) -> Option<proto::NodeTask> {
    node_task(OWN.credential, task)
}

impl Default for Greeting<'_> {
    fn default() -> Self {
        Self {
            name: "node-1",
            token: TOKEN,
            gpus: 1,
            identity: "",
            credential: "",
            generation: 0,
            takes_parts: true,
            memory_bytes: 64 << 30,
            pods: None,
        }
    }
}

impl Node {
    /// Opens a session.
    ///
    /// # Errors
    /// The status that the scheduler answers in place of a welcome.
    pub async fn dial(
        address: SocketAddr,
        name: &str,
        token: &str,
        gpus: u32,
    ) -> Result<Self, tonic::Status> {
        Self::dial_as(address, name, token, gpus, "").await
    }

    /// Opens a session with the identity of a data folder.
    ///
    /// # Errors
    /// The status that the scheduler answers in place of a welcome.
    pub async fn dial_as(
        address: SocketAddr,
        name: &str,
        token: &str,
        gpus: u32,
        identity: &str,
    ) -> Result<Self, tonic::Status> {
        let greeting = Greeting {
            name,
            token,
            gpus,
            identity,
            ..Greeting::default()
        };
        Self::greet(address, &greeting).await
    }

    /// Opens a session with the complete contents of a Hello.
    ///
    /// # Errors
    /// The status that the scheduler answers in place of a welcome.
    pub async fn greet(
        address: SocketAddr,
        greeting: &Greeting<'_>,
    ) -> Result<Self, tonic::Status> {
        Self::greet_after(address, greeting, std::future::ready(())).await
    }

    /// Opens the stream at once and sends the Hello after `until`.
    ///
    /// # Errors
    /// The status that the scheduler answers in place of a welcome.
    pub async fn greet_after(
        address: SocketAddr,
        greeting: &Greeting<'_>,
        until: impl Future<Output = ()>,
    ) -> Result<Self, tonic::Status> {
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}"))
            .expect("an address")
            .connect()
            .await
            .expect("it listens");
        let (outbox, receiver) = mpsc::channel(8);
        let capacity = Capacity {
            gpus: (0..greeting.gpus)
                .map(|index| Gpu {
                    index,
                    kind: GpuKind::CpuSlot,
                    model: "cpu".into(),
                    memory_bytes: 1 << 30,
                    compute_capability: None,
                })
                .collect(),
            cpu_milli: 8_000,
            memory_bytes: greeting.memory_bytes,
            rack: None,
            labels: std::collections::BTreeMap::new(),
            driver_suspend: None,
            pods: greeting.pods,
            isolation: None,
            images: None,
        };
        let hello = From::Hello(proto::Hello {
            node_name: greeting.name.into(),
            join_token: greeting.token.into(),
            capacity_json: serde_json::to_string(&capacity).expect("JSON"),
            version: "test".into(),
            generation: greeting.generation,
            boot_id: "test".into(),
            identity: greeting.identity.into(),
            takes_parts: greeting.takes_parts,
            credential: greeting.credential.into(),
            erases: true,
            opens_remote: true,
            unfit: String::new(),
        });
        let says_hello = async {
            until.await;
            let hello = proto::FromNode {
                message: Some(hello),
            };
            outbox.send(hello).await.expect("the stream is open");
        };
        let mut client = NodeSessionsClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let opens = client.session(ReceiverStream::new(receiver));
        let (inbox, ()) = tokio::join!(opens, says_hello);
        let inbox = inbox?.into_inner();
        let mut node = Self {
            outbox,
            inbox,
            number: 0,
            welcome: proto::Welcome::default(),
            generation: greeting.generation,
            parts: proto::Assignment::default(),
            messages: Vec::new(),
            sent_bytes: Vec::new(),
        };
        match node.next().await? {
            To::Welcome(welcome) => Ok(Self { welcome, ..node }),
            other => panic!("the first message is a welcome, not {other:?}"),
        }
    }

    /// Next message.
    ///
    /// # Errors
    /// The status with which the session ended.
    pub async fn next(&mut self) -> Result<To, tonic::Status> {
        let message = tokio::time::timeout(PATIENCE, self.inbox.message())
            .await
            .expect("an answer in time")?;
        let message = message.ok_or_else(|| tonic::Status::cancelled("the stream ended"))?;
        Ok(message.message.expect("a message"))
    }

    /// Next assignment for which `right` is true.
    pub async fn assignment(&mut self, right: impl Fn(&[Assigned]) -> bool) -> Vec<Assigned> {
        loop {
            if let To::Assignment(assignment) = self.next().await.expect("the session lives") {
                // An executor refuses an older generation.
                if assignment.generation < self.generation {
                    continue;
                }
                self.generation = assignment.generation;
                let sent = assignment.encoded_len();
                self.parts.tasks.extend(assignment.tasks);
                self.parts.jobs.extend(assignment.jobs);
                self.messages.push(sent);
                if assignment.is_partial {
                    continue;
                }
                let whole = std::mem::take(&mut self.parts);
                let sent = std::mem::take(&mut self.messages);
                let tasks = whole.tasks.iter();
                let tasks: Vec<Assigned> = tasks
                    .map(|task| Assigned::read(task, &whole.jobs))
                    .collect();
                self.sent_bytes = sent;
                if right(&tasks) {
                    return tasks;
                }
            }
        }
    }

    pub async fn send(&mut self, message: From) {
        let message = Some(message);
        let sent = self.outbox.send(proto::FromNode { message }).await;
        sent.expect("the session lives");
    }

    pub async fn heartbeat(&mut self) {
        self.heartbeat_saying("").await;
    }

    /// Sends a heartbeat with the reason why the node takes no new tasks, or an empty one.
    pub async fn heartbeat_saying(&mut self, unfit: &str) {
        self.number += 1;
        let heartbeat = From::Heartbeat(proto::Heartbeat {
            number: self.number,
            faults: Vec::new(),
            usages: Vec::new(),
            unfit: unfit.to_owned(),
        });
        self.outbox
            .send(proto::FromNode {
                message: Some(heartbeat),
            })
            .await
            .expect("the session lives");
    }

    /// Waits until a heartbeat is acknowledged.
    ///
    /// # Errors
    /// The status with which the session ended.
    pub async fn until_acknowledged(&mut self) -> Result<(), tonic::Status> {
        loop {
            if matches!(self.next().await?, To::HeartbeatAck(_)) {
                return Ok(());
            }
        }
    }

    /// Waits until the last report is stored.
    pub async fn acknowledged(&mut self) {
        loop {
            let message = self.next().await.expect("the session lives");
            if matches!(message, To::ReportAck(ack) if ack.number == self.number) {
                return;
            }
        }
    }

    /// Reports output of a task that is not of this node, which is acknowledged and not stored.
    pub async fn report_log(&mut self, data: Vec<u8>) {
        self.number += 1;
        let chunk = proto::LogChunk {
            task_id: clock::id().to_string(),
            offset: 0,
            data,
        };
        let report = From::Report(proto::Report {
            number: self.number,
            logs: vec![chunk],
            ..proto::Report::default()
        });
        self.outbox
            .send(proto::FromNode {
                message: Some(report),
            })
            .await
            .expect("the session lives");
    }

    /// Reports the same state of all these tasks.
    pub async fn report_all(&mut self, tasks: &[Assigned], observed: &Observed) {
        self.number += 1;
        let statuses = tasks.iter().map(|task| proto::TaskStatus {
            task_id: task.launch.task_id.to_string(),
            revision: task.launch.revision,
            observed_json: serde_json::to_string(observed).expect("JSON"),
        });
        let report = From::Report(proto::Report {
            number: self.number,
            statuses: statuses.collect(),
            ..proto::Report::default()
        });
        let message = Some(report);
        let sent = self.outbox.send(proto::FromNode { message }).await;
        sent.expect("the session lives");
    }

    /// Reports the state of a task, with lines of its event file from `first_seq` on.
    pub async fn report(
        &mut self,
        task: &Assigned,
        observed: &Observed,
        first_seq: u64,
        events: &[TaskReport],
    ) {
        self.number += 1;
        let report = From::Report(proto::Report {
            number: self.number,
            generation: 0,
            statuses: vec![proto::TaskStatus {
                task_id: task.launch.task_id.to_string(),
                revision: task.launch.revision,
                observed_json: serde_json::to_string(observed).expect("JSON"),
            }],
            events: vec![proto::TaskEvents {
                task_id: task.launch.task_id.to_string(),
                revision: task.launch.revision,
                first_seq,
                events: events
                    .iter()
                    .map(|report| proto::TaskEvent {
                        at_unix_ms: 1_700_000_000_000,
                        report_json: serde_json::to_string(report).expect("JSON"),
                    })
                    .collect(),
            }],
            logs: Vec::new(),
        });
        self.outbox
            .send(proto::FromNode {
                message: Some(report),
            })
            .await
            .expect("the session lives");
    }
}

/// Sample of a job with one worker and one shard.
pub fn sample() -> Sample {
    Sample {
        step: 1,
        epoch: 0.5,
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

/// Task as the node receives it.
#[derive(Debug, Clone)]
pub struct Assigned {
    pub launch: TaskLaunch,
    pub peers: Peers,
    pub stop: bool,
}

impl Assigned {
    fn read(task: &proto::AssignedTask, jobs: &[proto::AssignedJob]) -> Self {
        let mut launch: serde_json::Value =
            serde_json::from_str(&task.launch_json).expect("a launch");
        let job = jobs
            .iter()
            .find(|job| launch["job_id"].as_str() == Some(&job.job_id));
        let mut peers_json = &task.peers_json;
        if let Some(job) = job {
            assert!(launch.get("spec").is_none() && peers_json.is_empty());
            launch["spec"] = serde_json::from_str(&job.spec_json).expect("a document");
            peers_json = &job.peers_json;
        }
        Self {
            launch: serde_json::from_value(launch).expect("a launch"),
            peers: serde_json::from_str(peers_json).expect("peers"),
            stop: task.stop,
        }
    }
}
