//! Node sessions: an executor dials in, receives its whole assignment with a generation, and
//! reports its observations.
//!
//! A session knows one node. It never decides what runs there: it sends the stored assignment, and
//! again after each change.

mod artifacts;
mod assignment;
mod binding;
mod capacity;
mod checkpoints;
mod decode;
mod erasing;
mod generations;
mod heartbeat_batcher;
mod join;
mod registry;
mod task_secrets;
mod unproven;
mod writes;

pub use join::hash;
pub use registry::{Registry, leads};
pub(crate) use unproven::Proof;
pub use unproven::{MAX_UNPROVEN_BYTES, bounded};

use crate::clock;
use crate::config::SchedulerConfig;
use crate::erasure::{Erasures, Orders};
use crate::metrics::Metrics;
use crate::notifications::Notifications;
use crate::remote::{self, RemoteOrders, RemoteRelay};
use crate::retry;
use assignment::Addressee;
use binding::{AdmissionResult, SessionWelcome, bind};
use capacity::capacity;
use decode::MessageDecodeError;
use generations::Generations;
use heartbeat_batcher::{HeartbeatError, HeartbeatHandle};
use muster_model::error_chain::chain;
use muster_model::id::NodeId;
use muster_model::node::Capacity;
use muster_model::spec::is_dns_label;
use muster_proto::session as proto;
use muster_proto::session::from_node::Message as From;
use muster_proto::session::node_sessions_server::NodeSessions;
use muster_proto::session::to_node::Message as To;
use muster_secret::SecretKeys;
use muster_store::StoreError;
use muster_store::membership::{self, ExecutorRecord};
use muster_store::pool::StorePool;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument as _;
use writes::{cannot_be_sent, charge, keep_usages, record, set_unfit};

/// Capacity of the queue of messages to one node. A node that does not read blocks only its own
/// session.
const OUTBOX: usize = 16;
/// Maximum time from the start of a session to its first message.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// Interval of GPU use measurements, in milliseconds. A trial of a pair needs several of them.
const USAGE_MS: u64 = 2_000;

/// gRPC service.
#[derive(Debug, Clone)]
pub struct Sessions {
    /// Connections for sessions only. Reports of many nodes can wait for them without delaying
    /// rounds and leases.
    pool: StorePool,
    config: Arc<SchedulerConfig>,
    generations: Generations,
    heartbeats: HeartbeatHandle,
    registry: Registry,
    erasures: Erasures,
    secret_keys: Arc<SecretKeys>,
    remote: RemoteRelay,
    /// Whether this process leads. Otherwise it refuses sessions, so that nodes try another
    /// scheduler.
    leader: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
}

type SessionOutbox = mpsc::Sender<Result<proto::ToNode, Status>>;

#[tonic::async_trait]
impl NodeSessions for Sessions {
    type SessionStream = Pin<Box<dyn futures::Stream<Item = Result<proto::ToNode, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<proto::FromNode>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        registry::leads(&self.leader)?;
        let proof = request.extensions().get::<Proof>().cloned();
        let mut inbound = request.into_inner();
        let first = tokio::time::timeout(HELLO_WITHIN, inbound.message()).await;
        let first = first.map_err(|_| {
            Status::deadline_exceeded(format!("no Hello within {} s", HELLO_WITHIN.as_secs()))
        })?;
        let hello = match first? {
            Some(proto::FromNode {
                message: Some(From::Hello(hello)),
            }) => hello,
            _ => {
                return Err(Status::invalid_argument(
                    "the first message of a session is Hello",
                ));
            }
        };
        let entry = self.admit(&hello).await?;
        if let Some(proof) = proof {
            proof.accept();
        }
        let capacity = capacity(&hello)?;
        let welcomed = self.welcome(&hello, &entry, &capacity).await?;
        let SessionWelcome { node, has_lost } = welcomed;
        let replaced = self.registry.take_over(node);
        // A term may have ended during the admission, after its sessions were ended.
        registry::leads(&self.leader)?;
        let (outbox, outbound) = mpsc::channel(OUTBOX);
        let span =
            tracing::info_span!("scheduler.session", node.id = %node, node.name = %hello.node_name);
        let session = NodeSession {
            node,
            outbox,
            generations: self.generations.clone(),
            heartbeats: self.heartbeats.clone(),
            pool: self.pool.clone(),
            has_lost,
            addressee: Addressee {
                node: hello.node_name.clone(),
                takes_parts: hello.takes_parts,
            },
            sent: None,
            unfit: hello.unfit,
            erasures: hello.erases.then(|| self.erasures.join(node)),
            remote: hello.opens_remote.then(|| self.remote.join(node)),
        };
        let config = Arc::clone(&self.config);
        let open = self.metrics.open_session();
        tokio::spawn(
            async move {
                tracing::info!("node joined");
                session.run(&config, inbound, replaced).await;
                drop(open);
            }
            .instrument(span),
        );
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound))))
    }

    async fn task_secrets(
        &self,
        request: Request<proto::TaskSecretsRequest>,
    ) -> Result<Response<proto::TaskSecretsAnswer>, Status> {
        registry::leads(&self.leader)?;
        let answer = self.secrets_of_task(&request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn admit_artifact(
        &self,
        request: Request<proto::AdmitArtifactRequest>,
    ) -> Result<Response<proto::AdmitArtifactAnswer>, Status> {
        self.answer(request, artifacts::admit).await
    }

    async fn keep_artifact(
        &self,
        request: Request<proto::KeepArtifactRequest>,
    ) -> Result<Response<proto::KeepArtifactAnswer>, Status> {
        self.answer(request, artifacts::keep).await
    }

    async fn list_artifacts(
        &self,
        request: Request<proto::ListArtifactsRequest>,
    ) -> Result<Response<proto::ListArtifactsAnswer>, Status> {
        self.answer(request, artifacts::list).await
    }

    async fn remove_artifact(
        &self,
        request: Request<proto::RemoveArtifactRequest>,
    ) -> Result<Response<proto::RemoveArtifactAnswer>, Status> {
        self.answer(request, artifacts::remove).await
    }

    async fn admit_checkpoint(
        &self,
        request: Request<proto::AdmitCheckpointRequest>,
    ) -> Result<Response<proto::AdmitCheckpointAnswer>, Status> {
        self.answer(request, checkpoints::admit).await
    }

    async fn keep_checkpoint(
        &self,
        request: Request<proto::KeepCheckpointRequest>,
    ) -> Result<Response<proto::KeepCheckpointAnswer>, Status> {
        self.answer(request, checkpoints::keep).await
    }

    async fn forget_checkpoint(
        &self,
        request: Request<proto::ForgetCheckpointRequest>,
    ) -> Result<Response<proto::ForgetCheckpointAnswer>, Status> {
        self.answer(request, checkpoints::forget).await
    }

    async fn first_checkpoint(
        &self,
        request: Request<proto::FirstCheckpointRequest>,
    ) -> Result<Response<proto::FirstCheckpointAnswer>, Status> {
        self.answer(request, checkpoints::first).await
    }
}

/// Pools of connections to Postgres.
#[derive(Debug, Clone)]
pub struct Pools {
    /// For rounds and leases, independent of the load of sessions.
    pub own: StorePool,
    pub sessions: StorePool,
}

impl Sessions {
    /// Creates the service; needs a tokio runtime.
    #[must_use]
    pub fn new(
        pools: &Pools,
        config: Arc<SchedulerConfig>,
        notifications: &Notifications,
        (registry, erasures): (Registry, Erasures),
        leader: watch::Receiver<bool>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let heartbeat = Duration::from_millis(config.heartbeat_ms);
        let assignments = notifications.assignments.clone();
        Self {
            pool: pools.sessions.clone(),
            generations: Generations::follow(pools.own.clone(), assignments, heartbeat),
            heartbeats: HeartbeatHandle::keep(
                pools.own.clone(),
                Duration::from_millis(config.lease_ms / 2),
            ),
            secret_keys: Arc::new(SecretKeys::new(config.secret_keys.clone())),
            remote: RemoteRelay::new(pools.sessions.clone(), leader.clone()),
            config,
            registry,
            erasures,
            leader,
            metrics,
        }
    }

    /// Returns the keys of users' secrets.
    #[must_use]
    pub fn secret_keys(&self) -> Arc<SecretKeys> {
        Arc::clone(&self.secret_keys)
    }

    /// Returns the service for remote sessions.
    #[must_use]
    pub fn remote(&self) -> RemoteRelay {
        self.remote.clone()
    }

    /// Decides whether the executor may act for the node, before the rest of its Hello is read.
    async fn admit(&self, hello: &proto::Hello) -> Result<AdmissionResult, Status> {
        let name = &hello.node_name;
        if !is_dns_label(name) {
            return Err(Status::invalid_argument(format!(
                "node_name is {:?}; expected 1 to 63 characters of a-z, 0-9 and '-'",
                name.chars().take(80).collect::<String>()
            )));
        }
        let (given, right) = (hello.join_token.as_bytes(), &self.config.join_token);
        let is_cluster = same_secret(given, right.as_bytes());
        let credential = (!hello.credential.is_empty()).then(|| join::hash(&hello.credential));
        // A wrong join token without a credential costs no query.
        let may_be_known = credential.is_some() || is_cluster;
        let (member, is_once) = if may_be_known || join::may_be_once(&hello.join_token) {
            let member = self.member(hello, is_cluster).await;
            member.map_err(store_status)?
        } else {
            (None, false)
        };
        let presented = join::Presented {
            name,
            credential,
            identity: &hello.identity,
            token: match (is_cluster, is_once) {
                (true, _) => join::Token::Cluster,
                (false, true) => join::Token::Once,
                (false, false) => join::Token::Wrong,
            },
        };
        match join::admit(&presented, member.as_ref(), self.config.rejoin) {
            Ok(admission) => Ok(AdmissionResult {
                admission,
                credential,
                is_once,
                before: member.and_then(|member| member.credential),
            }),
            Err(refused) => {
                tracing::warn!(node.name = name, %refused, "an executor is refused");
                Err(refused.into())
            }
        }
    }

    /// Returns the node's row, and whether the join token is a one-time token of the node.
    async fn member(
        &self,
        hello: &proto::Hello,
        is_cluster: bool,
    ) -> Result<(Option<ExecutorRecord>, bool), StoreError> {
        let name = &hello.node_name;
        let mut tx = muster_store::pool::begin(&self.pool).await?;
        let member = membership::member(&mut tx, name).await?;
        let (token, now) = (join::hash(&hello.join_token), clock::now());
        let is_once = !is_cluster && join::may_be_once(&hello.join_token);
        let is_once = is_once && membership::is_join_token(&mut tx, name, &token, now).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok((member, is_once))
    }

    async fn welcome(
        &self,
        hello: &proto::Hello,
        entry: &AdmissionResult,
        capacity: &Capacity,
    ) -> Result<SessionWelcome, Status> {
        let welcomed = self.try_welcome(hello, entry, capacity).await;
        let welcomed = welcomed.map_err(store_status)?;
        if let Err(refused) = &welcomed {
            let name = &hello.node_name;
            tracing::warn!(
                node.name = name,
                refused = refused.message(),
                "an executor waits"
            );
        }
        welcomed
    }

    /// Binds the executor to the node in one transaction, or returns the reason of the refusal.
    async fn try_welcome(
        &self,
        hello: &proto::Hello,
        entry: &AdmissionResult,
        capacity: &Capacity,
    ) -> Result<Result<SessionWelcome, Status>, StoreError> {
        let mut tx = muster_store::pool::begin(&self.pool).await?;
        let welcomed = bind(&mut tx, hello, entry, capacity).await?;
        if welcomed.is_ok() {
            tx.commit().await.map_err(StoreError::from)?;
        }
        Ok(welcomed)
    }
}

struct NodeSession {
    node: NodeId,
    /// The database lacks commits that the node has seen, so the node reports everything again.
    has_lost: bool,
    addressee: Addressee,
    outbox: SessionOutbox,
    generations: Generations,
    heartbeats: HeartbeatHandle,
    pool: StorePool,
    /// Generation of the assignment that was last sent in this session.
    sent: Option<u64>,
    /// Reason why the node takes no new tasks, as stored.
    unfit: String,
    /// Orders to erase files; `None` if the executor does not support them.
    erasures: Option<Orders>,
    /// Orders to open remote sessions; `None` if the executor does not support them.
    remote: Option<RemoteOrders>,
}

/// Reason of the end of a session.
#[derive(Debug, thiserror::Error)]
enum SessionEnd {
    #[error("a newer session of the node, or another leader, took over")]
    Replaced,
    #[error("the node closed it")]
    Closed,
    #[error("the database went back from generation {sent} of the node's assignment to {found}")]
    RolledBack { sent: u64, found: u64 },
    #[error("the connection broke: {0}")]
    Broken(#[from] Status),
    #[error("the node sent what it must not")]
    Refused(#[from] MessageDecodeError),
    #[error("the store failed")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Missed(#[from] HeartbeatError),
}

impl NodeSession {
    async fn run(
        mut self,
        config: &SchedulerConfig,
        inbound: Streaming<proto::FromNode>,
        replaced: registry::Replaced,
    ) {
        let Err(ended) = self.serve(config, inbound, replaced).await;
        match &ended {
            SessionEnd::Replaced
            | SessionEnd::Closed
            | SessionEnd::Broken(_)
            | SessionEnd::Missed(_) => {
                tracing::info!(%ended, "session ended")
            }
            SessionEnd::RolledBack { .. } => tracing::warn!(%ended, "session ended"),
            SessionEnd::Refused(source) => tracing::warn!(%source, "session refused"),
            SessionEnd::Store(source) => {
                tracing::warn!(error = %chain(source), "session ended by the store")
            }
        }
        // Tells the node the reason; it dials in again.
        let _ = self
            .outbox
            .send(Err(Status::aborted(ended.to_string())))
            .await;
    }

    async fn serve(
        &mut self,
        config: &SchedulerConfig,
        mut inbound: Streaming<proto::FromNode>,
        mut replaced: registry::Replaced,
    ) -> Result<std::convert::Infallible, SessionEnd> {
        self.send(To::Welcome(proto::Welcome {
            node_id: self.node.to_string(),
            lease_ms: config.lease_ms,
            heartbeat_ms: config.heartbeat_ms,
            usage_ms: config.packing.map_or(0, |_| USAGE_MS),
            report_all: self.has_lost,
        }))
        .await?;
        let silence = Duration::from_millis(config.lease_ms);
        loop {
            self.send_assignment(config.grace_ms).await?;
            tokio::select! {
                biased;
                () = replaced.wait() => return Err(SessionEnd::Replaced),
                message = tokio::time::timeout(silence, inbound.message()) => match message {
                    Err(_) => return Err(Status::deadline_exceeded("no heartbeat within the lease").into()),
                    Ok(message) => self.receive(message?.ok_or(SessionEnd::Closed)?).await?,
                },
                () = self.generations.changed() => {}
                order = erasing::next(&mut self.erasures) => self.send(To::Erase(proto::Erase {
                    tenant_id: order.tenant.to_string(),
                    job_id: order.job.to_string(),
                })).await?,
                order = remote::next(&mut self.remote) => self.send(To::OpenRemote(order)).await?,
            }
        }
    }

    async fn receive(&mut self, message: proto::FromNode) -> Result<(), SessionEnd> {
        match message.message {
            Some(From::Heartbeat(heartbeat)) => {
                // An acknowledged heartbeat of a lost node would never make it up again, so its
                // session ends.
                self.heartbeats.store(self.node).await?;
                if !heartbeat.faults.is_empty() {
                    let faults = decode::faults(&heartbeat.faults);
                    retry::on_conflict(|| charge(&self.pool, self.node, &faults)).await?;
                }
                if heartbeat.unfit != self.unfit {
                    retry::on_conflict(|| set_unfit(&self.pool, self.node, &heartbeat.unfit))
                        .await?;
                    self.unfit = heartbeat.unfit;
                }
                self.send(To::HeartbeatAck(proto::HeartbeatAck {
                    number: heartbeat.number,
                }))
                .await?;
                self.keep_usages(&heartbeat.usages).await;
                Ok(())
            }
            Some(From::Report(report)) => {
                let number = report.number;
                let report = decode::report(report)?;
                retry::on_conflict(|| record(&self.pool, self.node, &report)).await?;
                self.send(To::ReportAck(proto::ReportAck { number })).await
            }
            Some(From::Erased(erased)) => self.erased(&erased).await,
            Some(From::Hello(_)) | None => {
                Err(Status::invalid_argument("after Hello come heartbeats and reports").into())
            }
        }
    }

    /// Stores GPU use. The next heartbeat repeats it, so a failure does not end the session.
    async fn keep_usages(&self, told: &[proto::TaskUsage]) {
        let used = decode::usages(told);
        if used.is_empty() {
            return;
        }
        if let Err(error) = retry::on_conflict(|| keep_usages(&self.pool, self.node, &used)).await {
            tracing::warn!(node.id = %self.node, error = %chain(&error), "what the node's tasks use is not kept");
        }
    }

    /// Sends the node's whole assignment if it has changed since it was last sent.
    async fn send_assignment(&mut self, grace_ms: u64) -> Result<(), SessionEnd> {
        let sent = self.sent;
        if sent.is_some_and(|sent| self.generations.is_newest(self.node, sent)) {
            return Ok(());
        }
        let mut tx = muster_store::pool::begin(&self.pool).await?;
        let assignment = muster_store::assignment::load(&mut tx, self.node, grace_ms).await?;
        tx.commit().await.map_err(StoreError::from)?;
        let found = assignment.generation;
        match sent {
            Some(sent) if sent > found => return Err(SessionEnd::RolledBack { sent, found }),
            // The generations of all nodes were read before this assignment was sent.
            Some(sent) if sent == found => return Ok(()),
            _ => {}
        }
        let encoded = self.addressee.encode(&assignment);
        for unsendable in &encoded.unsendable {
            tracing::warn!(job.id = %unsendable.job, error = %unsendable, "a job cannot be sent");
            retry::on_conflict(|| cannot_be_sent(&self.pool, unsendable)).await?;
        }
        for message in encoded.messages {
            self.send(To::Assignment(message)).await?;
        }
        tracing::debug!(generation = assignment.generation, "assignment sent");
        self.sent = Some(assignment.generation);
        Ok(())
    }

    async fn send(&self, message: To) -> Result<(), SessionEnd> {
        self.outbox
            .send(Ok(proto::ToNode {
                message: Some(message),
            }))
            .await
            .map_err(|_| SessionEnd::Closed)
    }
}

fn encode<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("the model's types are JSON")
}

/// Compares in constant time, for equal lengths.
pub(crate) fn same_secret(given: &[u8], right: &[u8]) -> bool {
    given.len() == right.len() && given.iter().zip(right).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
}

fn store_status(error: StoreError) -> Status {
    tracing::warn!(error = %chain(&error), "hello could not be stored");
    Status::unavailable("the store is not reachable now; try again")
}

fn decode_status(error: MessageDecodeError) -> Status {
    Status::invalid_argument(chain(&error))
}
