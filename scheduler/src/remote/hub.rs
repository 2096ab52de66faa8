//! Nodes in session that understand remote sessions, and sessions that wait for their node.

use super::relay::PieceSender;
use crate::clock;
use crate::session::{hash, same_secret};
use muster_model::id::{NodeId, RemoteSessionId};
use muster_proto::session as proto;
use muster_store::membership::SecretHash;
use muster_store::remote_session::ClaimedSession;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::{mpsc, oneshot};
use tonic::Streaming;

/// Orders to one node that its session has not sent yet.
const ORDERS: usize = 8;

/// State that node sessions and remote sessions share.
#[derive(Debug, Default, Clone)]
pub struct Hub {
    state: Arc<Mutex<HubState>>,
}

#[derive(Debug, Default)]
struct HubState {
    /// Newest session of each node whose executor supports orders.
    nodes: BTreeMap<NodeId, mpsc::Sender<proto::OpenRemote>>,
    waiting: BTreeMap<RemoteSessionId, WaitingSession>,
}

#[derive(Debug)]
struct WaitingSession {
    node: NodeId,
    key: SecretHash,
    attached: oneshot::Sender<AttachedNode>,
}

/// Stream of a node for one session.
#[derive(Debug)]
pub struct AttachedNode {
    pub pieces: Streaming<proto::RemotePiece>,
    pub sender: PieceSender,
}

/// Orders to the node of one node session.
#[derive(Debug)]
pub struct RemoteOrders(mpsc::Receiver<proto::OpenRemote>);

/// Next order for the node. Waits for ever if the executor does not support orders, or if a newer
/// session of the node receives them.
pub async fn next(orders: &mut Option<RemoteOrders>) -> proto::OpenRemote {
    let next = match orders {
        Some(RemoteOrders(orders)) => orders.recv().await,
        None => None,
    };
    match next {
        Some(order) => order,
        None => std::future::pending().await,
    }
}

impl Hub {
    pub fn join(&self, node: NodeId) -> RemoteOrders {
        let (sender, orders) = mpsc::channel(ORDERS);
        self.lock().nodes.insert(node, sender);
        RemoteOrders(orders)
    }

    /// Orders the node of a session to attach, and waits until it has. Returns `None` if the node
    /// has no session that takes the order.
    pub async fn order(
        &self,
        claimed: &ClaimedSession,
        now: OffsetDateTime,
    ) -> Option<AttachedNode> {
        let key = clock::secret();
        let (attached, attaches) = oneshot::channel();
        let order = proto::OpenRemote {
            session_id: claimed.id.to_string(),
            key: key.clone(),
            task_id: claimed.task.to_string(),
            action_json: serde_json::to_string(&claimed.action).expect("an action is JSON"),
            longest_ms: u64::try_from(left(claimed, now).as_millis()).unwrap_or(u64::MAX),
        };
        {
            let mut state = self.lock();
            let node = state.nodes.get(&claimed.node)?;
            node.try_send(order).ok()?;
            let waiting = WaitingSession {
                node: claimed.node,
                key: hash(&key),
                attached,
            };
            state.waiting.insert(claimed.id, waiting);
        }
        attaches.await.ok()
    }

    /// Returns the node for which the session waits, if the key is that of the order.
    pub fn waits(&self, id: RemoteSessionId, key: &str) -> Option<NodeId> {
        let state = self.lock();
        let waiting = state.waiting.get(&id)?;
        same_secret(&hash(key), &waiting.key).then_some(waiting.node)
    }

    /// Gives the node's stream to the session. Returns `false` if it does not wait any more.
    pub fn attach(&self, id: RemoteSessionId, attached: AttachedNode) -> bool {
        let waiting = self.lock().waiting.remove(&id);
        waiting.is_some_and(|waiting| waiting.attached.send(attached).is_ok())
    }

    pub fn forget(&self, id: RemoteSessionId) {
        self.lock().waiting.remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the rest of the session's longest duration.
pub fn left(claimed: &ClaimedSession, now: OffsetDateTime) -> Duration {
    Duration::try_from(claimed.expires_at - now).unwrap_or_default()
}
