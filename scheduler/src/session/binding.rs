//! Binds an executor to its node, after its proofs were checked.

use super::join::{self, Admission};
use super::writes::said;
use crate::clock;
use muster_model::id::NodeId;
use muster_model::node::Capacity;
use muster_proto::session as proto;
use muster_store::membership::{self, SecretHash};
use muster_store::{PgConnection, StoreError};
use tonic::Status;

/// Result of an admission.
pub(super) struct AdmissionResult {
    pub admission: Admission,
    /// SHA-256 of the presented credential.
    pub credential: Option<SecretHash>,
    /// By a one-time token.
    pub is_once: bool,
    /// The node's credential so far.
    pub before: Option<Vec<u8>>,
}

/// Binds the executor to the node, or returns the reason of the refusal.
pub(super) async fn bind(
    tx: &mut PgConnection,
    hello: &proto::Hello,
    entry: &AdmissionResult,
    capacity: &Capacity,
) -> Result<Result<SessionWelcome, Status>, StoreError> {
    use muster_store::{node, restored};
    let (name, identity, now) = (&hello.node_name, &hello.identity, clock::now());
    let lost = restored::lost_generations(tx, name, hello.generation).await?;
    if node::is_held_by_another(tx, name, identity).await? {
        return Ok(Err(Status::unavailable(format!(
            "{name} has tasks that this executor does not know: its data folder is a new one. It is let in once they count as lost"
        ))));
    }
    let node = node::hello(tx, clock::id().into(), name, capacity, now).await?;
    node::identify(tx, node.id, identity).await?;
    muster_store::fault::set_unfit(tx, node.id, said(&hello.unfit), now).await?;
    if let (Admission::Binds, Some(own)) = (entry.admission, &entry.credential) {
        let before = entry.before.as_deref();
        let is_bound = membership::bind(tx, (node.id, name), own, before, now).await?;
        let token = join::hash(&hello.join_token);
        let is_used = !entry.is_once || membership::use_join_token(tx, &token, now).await?;
        if !is_bound || !is_used {
            return Ok(Err(Status::unavailable(
                "another executor joined under this name at the same time; try again",
            )));
        }
    }
    if lost > 0 {
        restored::outrun(tx, node.id, hello.generation).await?;
        tracing::warn!(
            node.name = name,
            held = hello.generation,
            lost,
            "the database has lost commits that the node knows of; its generation is raised above the node's"
        );
    }
    Ok(Ok(SessionWelcome {
        node: node.id,
        has_lost: lost > 0,
    }))
}

/// Result of a Hello.
pub(super) struct SessionWelcome {
    pub node: NodeId,
    /// The database lacks commits that the node has seen.
    pub has_lost: bool,
}
