//! Heartbeats of all sessions: those that come while others are being written go into one transaction together. A transaction for each had
//! two hundred nodes wait for connections until their leases were over.

use super::chain;
use crate::clock;
use crate::retry;
use muster_model::id::NodeId;
use muster_store::StoreError;
use muster_store::pool::Pool;
use std::collections::BTreeSet;
use tokio::sync::{mpsc, oneshot};

/// Into one transaction; more would hold the rows of so many nodes for longer.
const MOST: usize = 1_000;

/// Every session has one.
#[derive(Debug, Clone)]
pub struct Pulse(mpsc::Sender<Beat>);

#[derive(Debug)]
struct Beat {
    node: NodeId,
    /// Whether the node is up; dropped if that could not be written.
    is_up: oneshot::Sender<bool>,
}

/// What became of a heartbeat that was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Missed {
    #[error("the node counts as lost by now")]
    Lost,
    #[error("a heartbeat could not be kept")]
    Unkept,
}

impl Pulse {
    /// Writes until no session is left; needs a tokio runtime.
    #[must_use]
    pub fn keep(pool: Pool) -> Self {
        let (sender, beats) = mpsc::channel(MOST);
        tokio::spawn(keep(pool, beats));
        Self(sender)
    }

    /// Returns once it is written that the node was heard.
    ///
    /// # Errors
    /// [`Missed`]: the node is to dial in anew.
    pub async fn beat(&self, node: NodeId) -> Result<(), Missed> {
        let (is_up, answer) = oneshot::channel();
        let sent = self.0.send(Beat { node, is_up }).await;
        sent.map_err(|_| Missed::Unkept)?;
        match answer.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Missed::Lost),
            Err(_) => Err(Missed::Unkept),
        }
    }
}

async fn keep(pool: Pool, mut beats: mpsc::Receiver<Beat>) {
    let mut together = Vec::new();
    while beats.recv_many(&mut together, MOST).await > 0 {
        let nodes: BTreeSet<NodeId> = together.iter().map(|beat| beat.node).collect();
        match retry::on_conflict(|| touch(&pool, &nodes)).await {
            Ok(up) => {
                for beat in together.drain(..) {
                    // The session may have ended meanwhile.
                    let _ = beat.is_up.send(up.contains(&beat.node));
                }
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), nodes = nodes.len(), "heartbeats could not be kept");
                together.clear();
            }
        }
    }
}

async fn touch(pool: &Pool, nodes: &BTreeSet<NodeId>) -> Result<BTreeSet<NodeId>, StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    let up = muster_store::node::touch(&mut tx, nodes, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(up)
}
