//! The session with the scheduler: dial, `Hello`, heartbeats, incoming assignments, outgoing
//! reports. When a session ends, the executor dials again, without limit.
//!
//! The session does not know tasks: it passes assignments to the node loop and reports from it.
//! Each acknowledged heartbeat extends the lease.

mod decode;
mod dial;

use decode::PartialAssignment;
pub use decode::Unreadable;
pub use dial::Endpoints;

use crate::clock;
use crate::config::ExecutorConfig;
use crate::device::GpuHealthMonitor;
use crate::disk_monitor::DiskMonitor;
use crate::erasure::NodeErasureQueue;
use crate::lease::Lease;
use crate::loop_event::NodeLoopEvent;
use crate::metrics::ExecutorMetrics;
use crate::process::boot_id;
use crate::remote::RemoteSessions;
use crate::secret_client::SchedulerLink;
use crate::usage_sampler::UsageSampler;
use muster_model::node::Capacity;
use muster_proto::MAX_MESSAGE_BYTES;
use muster_proto::session::node_sessions_client::NodeSessionsClient;
use muster_proto::session::{
    Assignment, FromNode, Heartbeat, Hello, NodeFault, Report, TaskUsage, ToNode, Welcome,
    from_node, to_node,
};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// First pause after a failure; it doubles.
const FIRST_PAUSE_MS: u64 = 100;
/// Longest pause. Far below a usual lease, so that nodes return in time to a restarted scheduler.
const LONGEST_PAUSE_MS: u64 = 2_000;
/// Longest pause after an answer of a scheduler that does not lead. Another one leads or soon will.
/// The dialled process is random, so several wrong ones in a row must not consume a lease.
const LONGEST_SEARCH_MS: u64 = 400;
/// Time limit of the `Welcome` and of one send.
const PATIENCE: Duration = Duration::from_secs(5);
/// Large enough that reports and assignments do not wait for window updates.
const WINDOW_BYTES: u32 = 8 << 20;

/// Reason why a session ended or did not start.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("cannot use the scheduler's address {url:?}")]
    Address {
        url: String,
        #[source]
        source: tonic::transport::Error,
    },
    #[error("cannot read the certificate authority {}", path.display())]
    Authority {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot reach the scheduler at {url}")]
    Dial {
        url: String,
        #[source]
        source: tonic::transport::Error,
    },
    #[error("the scheduler ended the session")]
    Stream(#[source] Box<tonic::Status>),
    #[error("the scheduler closed the session")]
    Closed,
    #[error("the scheduler did not answer the Hello")]
    NoWelcome,
    #[error("heartbeats are not acknowledged any more")]
    Silent,
}

/// State that all sessions of this daemon share.
pub struct Dialer {
    config: ExecutorConfig,
    capacity_json: String,
    endpoints: Endpoints,
    lease: Lease,
    loop_events: Sender<NodeLoopEvent>,
    context: SessionContext,
}

/// Data of the other parts of the daemon that the session sends.
#[derive(Debug, Clone)]
pub struct SessionContext {
    /// Newest accepted generation.
    pub generation: Arc<AtomicU64>,
    /// Identity of the data folder.
    pub identity: String,
    /// Secret of the data folder that authenticates the node.
    pub credential: String,
    pub health: GpuHealthMonitor,
    pub usage_sampler: UsageSampler,
    pub metrics: ExecutorMetrics,
    pub disk_monitor: DiskMonitor,
    /// Other requests use the connection of the session.
    pub link: SchedulerLink,
    pub remote: RemoteSessions,
}

/// Unacknowledged heartbeats, and the settings of the `Welcome`.
struct SessionHeartbeats {
    lease_ms: u64,
    heartbeat_ms: u64,
    number: u64,
    sent: VecDeque<(u64, u64)>,
    /// Sending time of the newest acknowledged heartbeat.
    acknowledged_ms: u64,
    /// Time of the last `Welcome` or acknowledgement.
    heard_ms: u64,
}

impl Dialer {
    #[must_use]
    pub fn new(
        config: ExecutorConfig,
        capacity: &Capacity,
        loop_events: Sender<NodeLoopEvent>,
        context: SessionContext,
    ) -> Self {
        let capacity_json = serde_json::to_string(capacity).expect("a capacity is JSON");
        let lease = Lease::granted(&config);
        Self {
            endpoints: Endpoints::new(&config),
            config,
            capacity_json,
            lease,
            loop_events,
            context,
        }
    }

    /// Runs one session after the other. Ends only when it is dropped.
    pub async fn run(self) {
        let mut pause_ms = FIRST_PAUSE_MS;
        loop {
            let mut has_begun = false;
            let Err(error) = self.hold(&mut has_begun).await;
            self.context.link.set(None);
            let _ = self.loop_events.send(NodeLoopEvent::Disconnected);
            self.context.metrics.disconnected();
            if has_begun {
                pause_ms = FIRST_PAUSE_MS;
            }
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(%error, cause, "no session with the scheduler");
            tokio::time::sleep(Duration::from_millis(clock::jittered_ms(pause_ms))).await;
            pause_ms = (pause_ms * 2).min(longest_pause_ms(&error));
        }
    }

    async fn hold(&self, has_begun: &mut bool) -> Result<std::convert::Infallible, SessionError> {
        let channel = self.endpoints.dial(WINDOW_BYTES).await?;
        let mut client = NodeSessionsClient::new(channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        // Two reports and some heartbeats fit; more are never unacknowledged.
        let (outgoing, messages) = mpsc::channel(16);
        let hello_ms = clock::boottime_ms();
        send(&outgoing, from_node::Message::Hello(self.hello())).await?;
        let begin = async {
            let mut incoming = client
                .session(ReceiverStream::new(messages))
                .await
                .map_err(|status| SessionError::Stream(Box::new(status)))?
                .into_inner();
            let welcome = welcome(&mut incoming).await?;
            Ok::<_, SessionError>((incoming, welcome))
        };
        let (incoming, welcome) = tokio::time::timeout(PATIENCE, begin)
            .await
            .map_err(|_| SessionError::NoWelcome)??;
        *has_begun = true;
        self.context.link.set(Some(channel));
        tracing::info!(
            node.id = welcome.node_id,
            lease_ms = welcome.lease_ms,
            "in session"
        );
        // The `Hello` counts as a heartbeat, so there is a lease before the first task.
        let pulse = SessionHeartbeats::new(&welcome, hello_ms, clock::boottime_ms());
        self.context.metrics.connected();
        self.context.health.restart();
        self.context.usage_sampler.request(welcome.usage_ms);
        self.grant(&pulse);
        let (reports, pending) = mpsc::unbounded_channel();
        if welcome.report_all {
            let _ = self.loop_events.send(NodeLoopEvent::ReportAll);
        }
        let _ = self.loop_events.send(NodeLoopEvent::Connected(reports));
        self.serve(incoming, &outgoing, pending, pulse).await
    }

    async fn serve(
        &self,
        mut incoming: Streaming<ToNode>,
        outgoing: &mpsc::Sender<FromNode>,
        mut reports: mpsc::UnboundedReceiver<Report>,
        mut pulse: SessionHeartbeats,
    ) -> Result<std::convert::Infallible, SessionError> {
        let mut beat = tokio::time::interval(Duration::from_millis(pulse.heartbeat_ms));
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut unfit = self.context.disk_monitor.changes();
        let mut parts = PartialAssignment::default();
        let mut erasures = NodeErasureQueue::default();
        loop {
            tokio::select! {
                message = next(&mut incoming) => match message? {
                    to_node::Message::Erase(order) => erasures.begin(&self.config.checkpoint_root, order),
                    to_node::Message::OpenRemote(order) => self.context.remote.open(order),
                    message => self.take(message, &mut pulse, &mut parts),
                },
                erased = erasures.next() => send(outgoing, from_node::Message::Erased(erased)).await?,
                _ = beat.tick() => {
                    if pulse.is_silent(clock::boottime_ms()) {
                        return Err(SessionError::Silent);
                    }
                    send(outgoing, self.beat(&mut pulse)).await?;
                }
                // Sent at once, before the scheduler places the refused tasks on this node again.
                Ok(()) = unfit.changed() => send(outgoing, self.beat(&mut pulse)).await?,
                Some(report) = reports.recv() => send(outgoing, from_node::Message::Report(report)).await?,
            }
        }
    }

    fn take(
        &self,
        message: to_node::Message,
        pulse: &mut SessionHeartbeats,
        parts: &mut PartialAssignment,
    ) {
        match message {
            to_node::Message::HeartbeatAck(ack) => {
                if pulse.acknowledge(ack.number, clock::boottime_ms()) {
                    self.context.health.acknowledge(ack.number);
                    self.grant(pulse);
                }
            }
            to_node::Message::ReportAck(ack) => {
                let _ = self
                    .loop_events
                    .send(NodeLoopEvent::Acknowledged(ack.number));
            }
            to_node::Message::Assignment(part) => {
                if let Some(whole) = parts.add(part) {
                    self.assign(&whole);
                }
            }
            to_node::Message::Erase(_) | to_node::Message::OpenRemote(_) => {
                unreachable!("the session takes it")
            }
            to_node::Message::Welcome(_) => tracing::warn!("a second Welcome in one session"),
        }
    }

    fn beat(&self, pulse: &mut SessionHeartbeats) -> from_node::Message {
        let mut heartbeat = pulse.beat(clock::boottime_ms());
        heartbeat.faults = self.faults(heartbeat.number);
        heartbeat.usages = self.usages();
        heartbeat.unfit = self.context.disk_monitor.unfit().unwrap_or_default();
        from_node::Message::Heartbeat(heartbeat)
    }

    fn assign(&self, assignment: &Assignment) {
        match decode::assignment(assignment) {
            Ok(assigned) => {
                let _ = self.loop_events.send(NodeLoopEvent::Assigned(assigned));
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "the assignment is left aside");
            }
        }
    }

    fn faults(&self, heartbeat: u64) -> Vec<NodeFault> {
        let faults = self.context.health.send(heartbeat).into_iter();
        let faults = faults.map(|(at_unix_ms, fault)| NodeFault {
            at_unix_ms,
            fault_json: serde_json::to_string(&fault).expect("a fault is JSON"),
        });
        faults.collect()
    }

    fn usages(&self) -> Vec<TaskUsage> {
        let usages = self.context.usage_sampler.take().into_iter();
        let usages = usages.map(|(task, usage)| TaskUsage {
            task_id: task.to_string(),
            usage_json: serde_json::to_string(&usage).expect("a usage is JSON"),
        });
        usages.collect()
    }

    fn grant(&self, pulse: &SessionHeartbeats) {
        let metrics = &self.context.metrics;
        metrics.heard(pulse.acknowledged_ms, pulse.lease_ms);
        if let Err(error) = self.lease.grant(pulse.acknowledged_ms, pulse.lease_ms) {
            tracing::error!(%error, "cannot extend the lease; tasks will stop when it ends");
        }
    }

    fn hello(&self) -> Hello {
        Hello {
            node_name: self.config.node_name.clone(),
            join_token: self.config.join_token.clone(),
            capacity_json: self.capacity_json.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            generation: self.context.generation.load(Ordering::Relaxed),
            boot_id: boot_id(),
            identity: self.context.identity.clone(),
            unfit: self.context.disk_monitor.unfit().unwrap_or_default(),
            takes_parts: true,
            credential: self.context.credential.clone(),
            erases: true,
            opens_remote: true,
        }
    }
}

impl SessionHeartbeats {
    fn new(welcome: &Welcome, hello_ms: u64, welcome_ms: u64) -> Self {
        Self {
            lease_ms: welcome.lease_ms,
            heartbeat_ms: welcome.heartbeat_ms.max(1),
            number: 0,
            sent: VecDeque::new(),
            acknowledged_ms: hello_ms,
            heard_ms: welcome_ms,
        }
    }

    fn beat(&mut self, now_ms: u64) -> Heartbeat {
        self.number += 1;
        self.sent.push_back((self.number, now_ms));
        Heartbeat {
            number: self.number,
            faults: Vec::new(),
            usages: Vec::new(),
            unfit: String::new(),
        }
    }

    /// Records an acknowledgement; returns whether that heartbeat was outstanding.
    fn acknowledge(&mut self, number: u64, now_ms: u64) -> bool {
        let mut is_newer = false;
        while let Some((sent, sent_ms)) = self
            .sent
            .front()
            .copied()
            .filter(|(sent, _)| *sent <= number)
        {
            self.sent.pop_front();
            if sent == number {
                self.acknowledged_ms = sent_ms;
                self.heard_ms = now_ms;
                is_newer = true;
            }
        }
        is_newer
    }

    /// Whether the session had no answer for half of the lease. It is then closed, so that a new
    /// session can use the other half. The time counts from the last answer and not, as the lease,
    /// from its request. A slow scheduler is as slow in a new session, and has more work.
    fn is_silent(&self, now_ms: u64) -> bool {
        let patience_ms = (self.lease_ms / 2).max(self.heartbeat_ms * 2);
        now_ms.saturating_sub(self.heard_ms) > patience_ms
    }
}

/// Returns the longest pause after an error.
fn longest_pause_ms(error: &SessionError) -> u64 {
    match error {
        SessionError::Stream(status) if status.code() == tonic::Code::Unavailable => {
            LONGEST_SEARCH_MS
        }
        _ => LONGEST_PAUSE_MS,
    }
}

async fn welcome(incoming: &mut Streaming<ToNode>) -> Result<Welcome, SessionError> {
    match next(incoming).await? {
        to_node::Message::Welcome(welcome) => Ok(welcome),
        _ => Err(SessionError::NoWelcome),
    }
}

/// Returns the next message of a known type.
async fn next(incoming: &mut Streaming<ToNode>) -> Result<to_node::Message, SessionError> {
    loop {
        match incoming.message().await {
            Ok(Some(ToNode {
                message: Some(message),
            })) => return Ok(message),
            Ok(Some(ToNode { message: None })) => {}
            Ok(None) => return Err(SessionError::Closed),
            Err(status) => return Err(SessionError::Stream(Box::new(status))),
        }
    }
}

/// Sends a message. Fails if the scheduler does not read within a time limit, because heartbeats
/// use the same stream.
async fn send(
    outgoing: &mpsc::Sender<FromNode>,
    message: from_node::Message,
) -> Result<(), SessionError> {
    let sent = outgoing
        .send_timeout(
            FromNode {
                message: Some(message),
            },
            PATIENCE,
        )
        .await;
    sent.map_err(|error| match error {
        mpsc::error::SendTimeoutError::Timeout(_) => SessionError::Silent,
        mpsc::error::SendTimeoutError::Closed(_) => SessionError::Closed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_counts_from_sending_of_newest_acknowledged_heartbeat() {
        let welcome = Welcome {
            node_id: String::new(),
            lease_ms: 1_000,
            heartbeat_ms: 100,
            usage_ms: 0,
            report_all: false,
        };
        let mut pulse = SessionHeartbeats::new(&welcome, 50, 60);
        assert_eq!(pulse.acknowledged_ms, 50, "the Hello counts");
        for now_ms in [100, 200, 300] {
            pulse.beat(now_ms);
        }
        assert!(pulse.acknowledge(2, 310));
        assert_eq!(pulse.acknowledged_ms, 200);
        assert!(
            !pulse.acknowledge(1, 320),
            "an older one takes nothing away"
        );
        assert!(
            !pulse.acknowledge(9, 330),
            "one that was never sent extends nothing"
        );
        assert_eq!(pulse.acknowledged_ms, 200);
        assert!(!pulse.is_silent(810));
        assert!(pulse.is_silent(811));
    }

    #[test]
    fn session_with_late_answers_is_kept() {
        let welcome = Welcome {
            node_id: String::new(),
            lease_ms: 1_000,
            heartbeat_ms: 100,
            usage_ms: 0,
            report_all: false,
        };
        // Nearly half of the lease has passed with the `Hello`.
        let mut pulse = SessionHeartbeats::new(&welcome, 0, 450);
        pulse.beat(450);
        pulse.beat(550);
        assert!(!pulse.is_silent(900), "it was asked 450 ms ago");
        assert!(pulse.acknowledge(1, 930));
        assert_eq!(pulse.acknowledged_ms, 450);
        assert!(!pulse.is_silent(1_400));
        assert!(pulse.is_silent(1_431));
    }

    /// Number of tries before a lease ends.
    fn tries_in(lease_ms: u64, error: &SessionError) -> usize {
        let pauses = std::iter::successors(Some(FIRST_PAUSE_MS), |pause_ms| {
            Some((pause_ms * 2).min(longest_pause_ms(error)))
        });
        let ends = pauses.scan(0, |end_ms, pause_ms| {
            *end_ms += pause_ms;
            Some(*end_ms)
        });
        ends.take_while(|end_ms| *end_ms < lease_ms).count()
    }

    /// One of two or three schedulers leads, and the dialled one is random.
    #[test]
    fn lease_suffices_to_find_the_leader() {
        let waits = tonic::Status::unavailable("this scheduler is not the leader");
        let waits = SessionError::Stream(Box::new(waits));
        assert!(tries_in(10_000, &waits) >= 24, "(2/3)^24 is 1 in 17,000");
        assert!(tries_in(10_000, &SessionError::Closed) <= 8);
    }
}
