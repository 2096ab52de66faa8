//! Remote sessions: joins the stream of an API server with that of the node, if this process leads.
//!
//! The API server proves by a key that it has stored the session. The node proves by its
//! credential that it is the node of the task. This module decides nothing about users.

mod hub;
mod relay;

pub use hub::{RemoteOrders, next};

use crate::clock;
use crate::retry;
use crate::session::{Proof, hash, leads};
use hub::{AttachedNode, Hub};
use muster_model::error_chain::chain;
use muster_model::id::RemoteSessionId;
use muster_model::remote::RemoteEnd;
use muster_proto::session as proto;
use muster_proto::session::remote_piece::Piece;
use muster_proto::session::remote_sessions_server::RemoteSessions;
use muster_store::StoreError;
use muster_store::pool::StorePool;
use muster_store::remote_session::{self, ClaimedSession, SessionEnd};
use muster_store::secret::AskingNode;
use relay::{PieceSender, Relay};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument as _;

/// Maximum number of sessions of all tenants. Transport windows bound the memory of each.
const MAX_SESSIONS: usize = 128;
/// Maximum time from the start of a stream to its first piece.
const FIRST_WITHIN: Duration = Duration::from_secs(10);
/// Maximum time from the order to the node until it attaches.
const ATTACH_WITHIN: Duration = Duration::from_secs(10);
/// Interval at which sessions without a process are looked for.
const ABANDONED_EVERY: Duration = Duration::from_secs(60);
/// Frames between the two streams of a session, in each direction.
const QUEUE: usize = 2;

/// Frames to one party.
type Pieces = Pin<Box<dyn futures::Stream<Item = Result<proto::RemotePiece, Status>> + Send>>;

/// gRPC service.
#[derive(Debug, Clone)]
pub struct RemoteRelay {
    pool: StorePool,
    hub: Hub,
    leader: watch::Receiver<bool>,
    places: Arc<Semaphore>,
}

impl RemoteRelay {
    #[must_use]
    pub fn new(pool: StorePool, leader: watch::Receiver<bool>) -> Self {
        Self {
            pool,
            hub: Hub::default(),
            leader,
            places: Arc::new(Semaphore::new(MAX_SESSIONS)),
        }
    }

    /// Registers the caller as the session of a node that understands remote sessions.
    #[must_use]
    pub fn join(&self, node: muster_model::id::NodeId) -> RemoteOrders {
        self.hub.join(node)
    }

    async fn claim(&self, claim: &proto::ClaimRemote) -> Result<ClaimedSession, Status> {
        let id = session_id(&claim.session_id)?;
        let claimed = retry::on_conflict(|| claim_in(&self.pool, id, &claim.key)).await;
        claimed.map_err(store_status)?.ok_or_else(|| {
            Status::permission_denied(format!(
                "session {id} does not wait for this claim, or its task has ended"
            ))
        })
    }

    /// Claims a session and joins both streams. Returns the frames for the client.
    async fn begin(
        &self,
        claim: &proto::ClaimRemote,
        proof: Option<&Proof>,
        pieces: Streaming<proto::RemotePiece>,
        place: OwnedSemaphorePermit,
    ) -> Result<mpsc::Receiver<Result<proto::RemotePiece, Status>>, Status> {
        let claimed = self.claim(claim).await?;
        proof.into_iter().for_each(Proof::accept);
        let attached = match self.node_of(&claimed).await {
            Ok(attached) => attached,
            Err(refused) => {
                let message = refused.message().to_owned();
                let end = relay::ended(RemoteEnd::Failed { message });
                record_end(&self.pool, claimed.id, &end).await;
                return Err(refused);
            }
        };
        let (sender, outbound) = mpsc::channel(QUEUE);
        self.carry_out(claimed, attached, (pieces, sender), place);
        Ok(outbound)
    }

    /// Orders the node to attach, and waits for it.
    async fn node_of(&self, claimed: &ClaimedSession) -> Result<AttachedNode, Status> {
        let attached = self.hub.order(claimed, clock::now());
        let attached = tokio::time::timeout(ATTACH_WITHIN, attached).await;
        let refused = match attached {
            Ok(Some(attached)) => return Ok(attached),
            Ok(None) => {
                "the task's node has no session with the scheduler now, or its executor is of an older release"
            }
            Err(_) => "the task's node did not open its stream within 10 s",
        };
        self.hub.forget(claimed.id);
        Err(Status::failed_precondition(refused))
    }

    async fn is_of(&self, attach: &proto::AttachRemote) -> Result<RemoteSessionId, Status> {
        let id = session_id(&attach.session_id)?;
        let refused = || {
            tracing::warn!(
                node.name = attach.node_name,
                session.id = %id,
                "an executor is refused: no session waits for it"
            );
            Status::permission_denied("no remote session waits for this node under this key")
        };
        let node = self.hub.waits(id, &attach.key).ok_or_else(refused)?;
        let asking = AskingNode {
            name: &attach.node_name,
            credential: &hash(&attach.credential),
        };
        let mut conn = muster_store::pool::begin(&self.pool)
            .await
            .map_err(store_status)?;
        let is_node = remote_session::is_node(&mut conn, node, asking).await;
        if !is_node.map_err(store_status)? {
            return Err(refused());
        }
        Ok(id)
    }

    /// Runs the claimed session to its end, and records the end.
    fn carry_out(
        &self,
        claimed: ClaimedSession,
        attached: AttachedNode,
        client: (Streaming<proto::RemotePiece>, PieceSender),
        place: OwnedSemaphorePermit,
    ) {
        let (pool, leader) = (self.pool.clone(), self.leader.clone());
        let span = tracing::info_span!("scheduler.remote", session.id = %claimed.id, task.id = %claimed.task);
        let relay = Relay {
            client,
            node: (attached.pieces, attached.sender),
            expires_in: hub::left(&claimed, clock::now()),
            leader,
        };
        tokio::spawn(
            async move {
                let end = relay.run().await;
                tracing::info!(end = %end.end, "a remote session ended");
                record_end(&pool, claimed.id, &end).await;
                drop(place);
            }
            .instrument(span),
        );
    }
}

#[tonic::async_trait]
impl RemoteSessions for RemoteRelay {
    type ClientStream = Pieces;
    type AttachStream = Pieces;

    async fn client(
        &self,
        request: Request<Streaming<proto::RemotePiece>>,
    ) -> Result<Response<Pieces>, Status> {
        leads(&self.leader)?;
        let proof = request.extensions().get::<Proof>().cloned();
        let mut pieces = request.into_inner();
        let Piece::Claim(claim) = first(&mut pieces).await? else {
            return Err(Status::invalid_argument("the first piece is Claim"));
        };
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| {
            Status::resource_exhausted(format!(
                "{MAX_SESSIONS} remote sessions are open in the cluster, which is the limit"
            ))
        })?;
        let relay = self.clone();
        let begin = async move { relay.begin(&claim, proof.as_ref(), pieces, place).await };
        // Also to its end if the API server leaves meanwhile, so that the end is recorded.
        let begun = tokio::spawn(begin.in_current_span()).await;
        let outbound = begun.map_err(|error| Status::internal(error.to_string()))??;
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound))))
    }

    async fn attach(
        &self,
        request: Request<Streaming<proto::RemotePiece>>,
    ) -> Result<Response<Pieces>, Status> {
        leads(&self.leader)?;
        let proof = request.extensions().get::<Proof>().cloned();
        let mut pieces = request.into_inner();
        let Piece::Attach(attach) = first(&mut pieces).await? else {
            return Err(Status::invalid_argument("the first piece is Attach"));
        };
        let id = self.is_of(&attach).await?;
        proof.iter().for_each(Proof::accept);
        let (sender, outbound) = mpsc::channel(QUEUE);
        let attached = AttachedNode { pieces, sender };
        if !self.hub.attach(id, attached) {
            return Err(Status::permission_denied(
                "the remote session has a stream already, or has ended",
            ));
        }
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound))))
    }
}

/// Records the ends of sessions that no process carries out: at the start of a term those of
/// earlier terms, later those of API servers that were killed.
pub async fn end_abandoned(pool: &StorePool) {
    let mut is_first = true;
    loop {
        match retry::on_conflict(|| end_in_store(pool, is_first)).await {
            Ok(0) => {}
            Ok(ended) => {
                tracing::info!(ended, "remote sessions without a process are ended");
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "remote sessions without a process stay open");
            }
        }
        // Also after a failure: a later pass would end sessions that this process carries out.
        // Those of earlier terms then end when they expire.
        is_first = false;
        tokio::time::sleep(ABANDONED_EVERY).await;
    }
}

async fn end_in_store(pool: &StorePool, is_first: bool) -> Result<u64, StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    let now = clock::now();
    let ended = if is_first {
        remote_session::end_all(&mut tx, now).await?
    } else {
        remote_session::end_lost(&mut tx, now).await?
    };
    tx.commit().await.map_err(StoreError::from)?;
    Ok(ended)
}

async fn claim_in(
    pool: &StorePool,
    id: RemoteSessionId,
    key: &str,
) -> Result<Option<ClaimedSession>, StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    let claimed = remote_session::claim(&mut tx, id, &hash(key), clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(claimed)
}

async fn record_end(pool: &StorePool, id: RemoteSessionId, end: &SessionEnd) {
    if let Err(error) = retry::on_conflict(|| end_in(pool, id, end)).await {
        tracing::warn!(error = %chain(&error), session.id = %id, "the end of a remote session is not recorded");
    }
}

async fn end_in(pool: &StorePool, id: RemoteSessionId, end: &SessionEnd) -> Result<(), StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    remote_session::end(&mut tx, id, end, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}

async fn first(pieces: &mut Streaming<proto::RemotePiece>) -> Result<Piece, Status> {
    let first = tokio::time::timeout(FIRST_WITHIN, pieces.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no piece within 10 s"))??;
    first
        .and_then(|first| first.piece)
        .ok_or_else(|| Status::invalid_argument("the stream has no first piece"))
}

fn session_id(text: &str) -> Result<RemoteSessionId, Status> {
    text.parse()
        .map_err(|_| Status::invalid_argument("session_id is not a UUID"))
}

fn store_status(error: StoreError) -> Status {
    tracing::warn!(error = %chain(&error), "a remote session could not be read");
    Status::unavailable("the store is not reachable now; try again")
}
