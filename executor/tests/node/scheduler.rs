//! Scheduler for tests: the real gRPC contract within this process. It records what it receives,
//! and its connection can be cut and restored.

use crate::artifact_records::ArtifactRecords;
use crate::remote_stub::{RemoteStub, TestSession};
use muster_model::assignment::{Observed, Peers, TaskLaunch};
use muster_model::id::TaskId;
use muster_model::remote::RemoteAction;
use muster_proto::session::node_sessions_server::{NodeSessions, NodeSessionsServer};
use muster_proto::session::remote_sessions_server::RemoteSessionsServer;
use muster_proto::session::{
    AdmitArtifactAnswer, AdmitArtifactRequest, AdmitCheckpointAnswer, AdmitCheckpointRequest,
    AssignedTask, Assignment, Erase, Erased, FirstCheckpointAnswer, FirstCheckpointRequest,
    ForgetCheckpointAnswer, ForgetCheckpointRequest, FromNode, HeartbeatAck, Hello,
    KeepArtifactAnswer, KeepArtifactRequest, KeepCheckpointAnswer, KeepCheckpointRequest,
    ListArtifactsAnswer, ListArtifactsRequest, OpenRemote, RemoveArtifactAnswer,
    RemoveArtifactRequest, Report, ReportAck, TaskSecret, TaskSecretsAnswer, TaskSecretsRequest,
    ToNode, Welcome, from_node, task_secret, to_node,
};
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

pub const JOIN_TOKEN: &str = "a-token-for-tests";

/// Everything received from the node so far.
#[derive(Debug, Default)]
pub struct ReceivedReports {
    pub hellos: Vec<Hello>,
    /// In order of arrival.
    pub statuses: Vec<(TaskId, Observed)>,
    /// Number of `statuses` that arrived before the newest `Hello`.
    before_session: usize,
    pub events: BTreeMap<TaskId, BTreeMap<u64, String>>,
    pub logs: BTreeMap<TaskId, Vec<u8>>,
    /// Descriptions of violations of the contract.
    pub faults: Vec<String>,
    pub largest_report_bytes: usize,
    pub heartbeats: u64,
    /// Changes of the reason why the node accepts no tasks; empty while it accepts them.
    pub unfit: Vec<String>,
    pub erased: Vec<Erased>,
}

#[derive(Clone)]
struct NodeSessionStub {
    heard: Arc<Mutex<ReceivedReports>>,
    assignment: watch::Receiver<Assignment>,
    erase: watch::Receiver<Erase>,
    remote: watch::Receiver<OpenRemote>,
    is_reachable: watch::Receiver<bool>,
    has_lost: Arc<AtomicBool>,
    secrets: Arc<Mutex<Secrets>>,
    artifacts: Arc<Mutex<ArtifactRecords>>,
    lease_ms: u64,
}

/// Secrets that tasks get.
#[derive(Default)]
struct Secrets {
    results: BTreeMap<String, task_secret::Result>,
    are_refused: bool,
    asked: u32,
}

pub struct Scheduler {
    pub url: String,
    heard: Arc<Mutex<ReceivedReports>>,
    assignment: watch::Sender<Assignment>,
    erase: watch::Sender<Erase>,
    remote: watch::Sender<OpenRemote>,
    remote_stub: RemoteStub,
    is_reachable: watch::Sender<bool>,
    has_lost: Arc<AtomicBool>,
    secrets: Arc<Mutex<Secrets>>,
    artifacts: Arc<Mutex<ArtifactRecords>>,
    _runtime: Runtime,
}

/// A task to assign.
#[derive(Debug, Clone)]
pub struct TaskToAssign {
    pub launch: TaskLaunch,
    pub peers: Peers,
    pub stop: bool,
    pub asks: bool,
}

impl Scheduler {
    pub fn start(lease_ms: u64) -> Self {
        let runtime = Runtime::new().expect("runtime");
        let heard = Arc::new(Mutex::new(ReceivedReports::default()));
        let (assignment, assigned) = watch::channel(Assignment::default());
        let (erase, ordered) = watch::channel(Erase::default());
        let (remote, opens) = watch::channel(OpenRemote::default());
        let remote_stub = RemoteStub::default();
        let (is_reachable, reachable) = watch::channel(true);
        let has_lost = Arc::new(AtomicBool::new(false));
        let secrets = Arc::new(Mutex::new(Secrets::default()));
        let artifacts = Arc::new(Mutex::new(ArtifactRecords::default()));
        let service = NodeSessionStub {
            heard: Arc::clone(&heard),
            assignment: assigned,
            erase: ordered,
            remote: opens,
            is_reachable: reachable,
            has_lost: Arc::clone(&has_lost),
            secrets: Arc::clone(&secrets),
            artifacts: Arc::clone(&artifacts),
            lease_ms,
        };
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .expect("bound");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let server = NodeSessionsServer::new(service)
            .max_decoding_message_size(muster_proto::MAX_MESSAGE_BYTES);
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(server)
                .add_service(RemoteSessionsServer::new(remote_stub.clone()))
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        Self {
            url,
            heard,
            assignment,
            erase,
            remote,
            remote_stub,
            is_reachable,
            has_lost,
            secrets,
            artifacts,
            _runtime: runtime,
        }
    }

    pub fn assign(&self, generation: u64, tasks: &[TaskToAssign]) {
        let launches = tasks.iter().map(|task| task.launch.clone());
        let launches = launches.map(|launch| (launch.task_id.to_string(), launch));
        self.artifacts().launches.extend(launches);
        let tasks = tasks.iter().map(|task| AssignedTask {
            launch_json: serde_json::to_string(&task.launch).expect("JSON"),
            peers_json: serde_json::to_string(&task.peers).expect("JSON"),
            stop: task.stop,
            asks: task.asks,
        });
        self.assignment.send_replace(Assignment {
            generation,
            tasks: tasks.collect(),
            ..Assignment::default()
        });
    }

    /// Opens a remote session in a task, and waits until the node has attached.
    pub fn open(&self, task: TaskId, action: &RemoteAction) -> TestSession {
        let id = crate::site::unique_id().to_string();
        let waiting = self.remote_stub.expect(&id);
        self.remote.send_replace(OpenRemote {
            session_id: id,
            key: "key".to_owned(),
            task_id: task.to_string(),
            action_json: serde_json::to_string(action).expect("JSON"),
            longest_ms: 600_000,
        });
        waiting.attached(self._runtime.handle().clone())
    }

    /// Orders the files of a job to be erased.
    pub fn erase(&self, tenant_id: &str, job_id: &str) {
        self.erase.send_replace(Erase {
            tenant_id: tenant_id.to_owned(),
            job_id: job_id.to_owned(),
        });
    }

    /// Sets the value of a secret, or why it has none.
    pub fn set_secret(&self, name: &str, result: Result<&str, &str>) {
        let result = match result {
            Ok(value) => task_secret::Result::Value(value.to_owned()),
            Err(problem) => task_secret::Result::Problem(problem.to_owned()),
        };
        self.secrets().results.insert(name.to_owned(), result);
    }

    /// Answers requests for secrets as a scheduler that does not lead.
    pub fn refuse_secrets(&self, are_refused: bool) {
        self.secrets().are_refused = are_refused;
    }

    /// Number of requests for secrets.
    pub fn asked_secrets(&self) -> u32 {
        self.secrets().asked
    }

    /// Artifacts that the node has recorded.
    pub fn artifacts(&self) -> MutexGuard<'_, ArtifactRecords> {
        self.artifacts.lock().expect("not poisoned")
    }

    fn secrets(&self) -> MutexGuard<'_, Secrets> {
        self.secrets.lock().expect("not poisoned")
    }

    /// Ends the session and refuses new ones.
    pub fn cut(&self) {
        self.is_reachable.send_replace(false);
    }

    pub fn come_back(&self) {
        self.is_reachable.send_replace(true);
    }

    /// Discards everything received, and says so in the next `Welcome`.
    pub fn lose(&self) {
        let mut heard = self.heard();
        let hellos = std::mem::take(&mut heard.hellos);
        *heard = ReceivedReports {
            hellos,
            ..ReceivedReports::default()
        };
        self.has_lost.store(true, Ordering::Relaxed);
    }

    pub fn heard(&self) -> MutexGuard<'_, ReceivedReports> {
        self.heard.lock().expect("not poisoned")
    }
}

impl ReceivedReports {
    /// Returns the newest reported state of a task.
    pub fn last(&self, task: TaskId) -> Option<&Observed> {
        self.statuses
            .iter()
            .rev()
            .find(|(id, _)| *id == task)
            .map(|(_, observed)| observed)
    }

    /// Returns the first state of a task that was reported after the newest `Hello`.
    pub fn first_in_session(&self, task: TaskId) -> Option<&Observed> {
        self.statuses[self.before_session..]
            .iter()
            .find(|(id, _)| *id == task)
            .map(|(_, observed)| observed)
    }

    pub fn log(&self, task: TaskId) -> String {
        String::from_utf8_lossy(self.logs.get(&task).map_or(&[], Vec::as_slice)).into_owned()
    }

    fn begin_session(&mut self, hello: Hello) {
        self.hellos.push(hello);
        self.before_session = self.statuses.len();
    }

    fn beat(&mut self, unfit: String) {
        self.heartbeats += 1;
        if self.unfit.last() != Some(&unfit) {
            self.unfit.push(unfit);
        }
    }

    fn take(&mut self, report: &Report) {
        self.largest_report_bytes = self.largest_report_bytes.max(report.encoded_len());
        for run in &report.events {
            let known = self.events.entry(parse(&run.task_id)).or_default();
            for (seq, event) in (run.first_seq..).zip(&run.events) {
                let before = known.insert(seq, event.report_json.clone());
                if before.is_some_and(|before| before != event.report_json) {
                    self.faults
                        .push(format!("line {seq} came twice with different texts"));
                }
            }
            if known
                .keys()
                .zip(0..)
                .any(|(seq, expected)| *seq != expected)
            {
                self.faults.push(format!(
                    "a gap before line {} of {}",
                    run.first_seq, run.task_id
                ));
            }
        }
        for chunk in &report.logs {
            let log = self.logs.entry(parse(&chunk.task_id)).or_default();
            let offset = usize::try_from(chunk.offset).expect("small");
            if offset > log.len() {
                self.faults
                    .push(format!("a gap of {} bytes in the log", offset - log.len()));
                log.resize(offset, b'?');
            }
            let repeated = (log.len() - offset).min(chunk.data.len());
            if log[offset..offset + repeated] != chunk.data[..repeated] {
                self.faults
                    .push(format!("the log differs when sent again at {offset}"));
            }
            log.extend_from_slice(&chunk.data[repeated..]);
        }
        for status in &report.statuses {
            let observed = serde_json::from_str(&status.observed_json).expect("a state");
            self.statuses.push((parse(&status.task_id), observed));
        }
    }
}

#[tonic::async_trait]
impl NodeSessions for NodeSessionStub {
    type SessionStream = ReceiverStream<Result<ToNode, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<FromNode>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (outgoing, stream) = mpsc::channel(16);
        let service = self.clone();
        let mut incoming = request.into_inner();
        tokio::spawn(async move {
            if let Err(status) = service.hold(&mut incoming, &outgoing).await {
                let _ = outgoing.send(Err(status)).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn task_secrets(
        &self,
        request: Request<TaskSecretsRequest>,
    ) -> Result<Response<TaskSecretsAnswer>, Status> {
        let credential = {
            let heard = self.heard.lock().expect("not poisoned");
            let hello = heard.hellos.last();
            hello.map(|hello| hello.credential.clone())
        };
        let mut secrets = self.secrets.lock().expect("not poisoned");
        secrets.asked += 1;
        if secrets.are_refused {
            return Err(Status::unavailable("this one does not lead"));
        }
        if credential != Some(request.into_inner().credential) {
            return Err(Status::permission_denied("not the node's credential"));
        }
        let results = secrets.results.iter();
        let results = results.map(|(name, result)| TaskSecret {
            name: name.clone(),
            result: Some(result.clone()),
        });
        Ok(Response::new(TaskSecretsAnswer {
            secrets: results.collect(),
        }))
    }

    async fn admit_artifact(
        &self,
        request: Request<AdmitArtifactRequest>,
    ) -> Result<Response<AdmitArtifactAnswer>, Status> {
        let answer = self.artifacts().admit(request.get_ref())?;
        Ok(Response::new(answer))
    }

    async fn keep_artifact(
        &self,
        request: Request<KeepArtifactRequest>,
    ) -> Result<Response<KeepArtifactAnswer>, Status> {
        let answer = self.artifacts().keep(request.into_inner())?;
        Ok(Response::new(answer))
    }

    async fn list_artifacts(
        &self,
        request: Request<ListArtifactsRequest>,
    ) -> Result<Response<ListArtifactsAnswer>, Status> {
        let answer = self.artifacts().list(request.get_ref())?;
        Ok(Response::new(answer))
    }

    async fn remove_artifact(
        &self,
        request: Request<RemoveArtifactRequest>,
    ) -> Result<Response<RemoveArtifactAnswer>, Status> {
        let answer = self.artifacts().remove(request.get_ref())?;
        Ok(Response::new(answer))
    }

    async fn admit_checkpoint(
        &self,
        request: Request<AdmitCheckpointRequest>,
    ) -> Result<Response<AdmitCheckpointAnswer>, Status> {
        let answer = self.artifacts().admit_checkpoint(request.get_ref())?;
        Ok(Response::new(answer))
    }

    async fn keep_checkpoint(
        &self,
        request: Request<KeepCheckpointRequest>,
    ) -> Result<Response<KeepCheckpointAnswer>, Status> {
        let answer = self.artifacts().keep_checkpoint(request.into_inner())?;
        Ok(Response::new(answer))
    }

    async fn forget_checkpoint(
        &self,
        request: Request<ForgetCheckpointRequest>,
    ) -> Result<Response<ForgetCheckpointAnswer>, Status> {
        let answer = self.artifacts().forget_checkpoint(request.get_ref())?;
        Ok(Response::new(answer))
    }

    async fn first_checkpoint(
        &self,
        request: Request<FirstCheckpointRequest>,
    ) -> Result<Response<FirstCheckpointAnswer>, Status> {
        let answer = self.artifacts().first_checkpoint(request.get_ref())?;
        Ok(Response::new(answer))
    }
}

impl NodeSessionStub {
    fn artifacts(&self) -> MutexGuard<'_, ArtifactRecords> {
        self.artifacts.lock().expect("not poisoned")
    }

    async fn hold(
        mut self,
        incoming: &mut Streaming<FromNode>,
        outgoing: &mpsc::Sender<Result<ToNode, Status>>,
    ) -> Result<(), Status> {
        let gone = |_| Status::unavailable("the node is gone");
        let send = |message| {
            outgoing.send(Ok(ToNode {
                message: Some(message),
            }))
        };
        let mut reachable = self.is_reachable.clone();
        if !*reachable.borrow_and_update() {
            return Err(Status::unavailable("cut off"));
        }
        let mut has_begun = false;
        loop {
            let message = tokio::select! {
                changed = self.erase.changed(), if has_begun => {
                    changed.map_err(|_| Status::unavailable("over"))?;
                    let order = self.erase.borrow_and_update().clone();
                    send(to_node::Message::Erase(order)).await.map_err(gone)?;
                    continue;
                }
                changed = self.remote.changed(), if has_begun => {
                    changed.map_err(|_| Status::unavailable("over"))?;
                    let order = self.remote.borrow_and_update().clone();
                    send(to_node::Message::OpenRemote(order)).await.map_err(gone)?;
                    continue;
                }
                message = incoming.message() => message?,
                changed = reachable.changed() => {
                    changed.map_err(|_| Status::unavailable("over"))?;
                    return Err(Status::unavailable("cut off"));
                }
                changed = self.assignment.changed(), if has_begun => {
                    changed.map_err(|_| Status::unavailable("over"))?;
                    let assignment = self.assignment.borrow_and_update().clone();
                    send(to_node::Message::Assignment(assignment)).await.map_err(gone)?;
                    continue;
                }
            };
            match message.and_then(|message| message.message) {
                None => return Ok(()),
                Some(from_node::Message::Erased(erased)) => {
                    self.heard.lock().expect("not poisoned").erased.push(erased);
                }
                Some(from_node::Message::Hello(hello)) => {
                    if hello.join_token != JOIN_TOKEN {
                        return Err(Status::unauthenticated("not the join token"));
                    }
                    has_begun = true;
                    self.heard
                        .lock()
                        .expect("not poisoned")
                        .begin_session(hello);
                    let welcome = Welcome {
                        usage_ms: 0,
                        report_all: self.has_lost.swap(false, Ordering::Relaxed),
                        node_id: String::new(),
                        lease_ms: self.lease_ms,
                        heartbeat_ms: self.lease_ms / 5,
                    };
                    send(to_node::Message::Welcome(welcome))
                        .await
                        .map_err(gone)?;
                    let assignment = self.assignment.borrow_and_update().clone();
                    send(to_node::Message::Assignment(assignment))
                        .await
                        .map_err(gone)?;
                }
                Some(from_node::Message::Heartbeat(beat)) => {
                    self.heard.lock().expect("not poisoned").beat(beat.unfit);
                    send(to_node::Message::HeartbeatAck(HeartbeatAck {
                        number: beat.number,
                    }))
                    .await
                    .map_err(gone)?;
                }
                Some(from_node::Message::Report(report)) => {
                    self.heard.lock().expect("not poisoned").take(&report);
                    send(to_node::Message::ReportAck(ReportAck {
                        number: report.number,
                    }))
                    .await
                    .map_err(gone)?;
                }
            }
        }
    }
}

fn parse(id: &str) -> TaskId {
    id.parse().expect("a task id")
}
