//! Writes the heartbeats of all sessions in batches: those that arrive during a transaction share
//! the next one. With one transaction per heartbeat many nodes would wait for connections until
//! their leases expire. A locked row is skipped and retried, so that it does not delay other nodes.

use crate::clock;
use crate::retry;
use muster_model::error_chain::chain;
use muster_model::id::NodeId;
use muster_store::StoreError;
use muster_store::node::HeartbeatBatchResult;
use muster_store::pool::StorePool;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Maximum number of heartbeats per transaction; more would lock the rows for longer.
const MOST: usize = 1_000;
/// First delay until a locked row is retried. It doubles up to `LOCKED_LONG`.
const LOCKED: Duration = Duration::from_millis(20);
const LOCKED_LONG: Duration = Duration::from_millis(320);
/// Delay of the retry if the database did not answer.
const AWAY: Duration = Duration::from_millis(500);
/// Time without an answer after which a connection is replaced.
const ANSWER: Duration = Duration::from_secs(5);

/// Handle through which a session stores its heartbeats.
#[derive(Debug, Clone)]
pub struct HeartbeatHandle(mpsc::Sender<QueuedHeartbeat>);

#[derive(Debug)]
struct QueuedHeartbeat {
    node: NodeId,
    came: Instant,
    /// Whether the node is up; dropped if the heartbeat could not be written.
    is_up: oneshot::Sender<bool>,
}

/// Reason why a heartbeat was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeartbeatError {
    #[error("the node counts as lost by now")]
    Lost,
    #[error("a heartbeat could not be kept")]
    Unkept,
}

impl HeartbeatHandle {
    /// Writes until the last handle is dropped; needs a tokio runtime. A heartbeat that cannot be
    /// written is retried for `patience` before its session ends. Reconnects of all nodes at once
    /// would overload a database that has just recovered.
    #[must_use]
    pub fn keep(pool: StorePool, patience: Duration) -> Self {
        let (sender, heartbeats) = mpsc::channel(MOST);
        tokio::spawn(keep(pool, heartbeats, patience));
        Self(sender)
    }

    /// Returns when the heartbeat is stored.
    ///
    /// # Errors
    /// [`HeartbeatError`]; the node must dial in again.
    pub async fn store(&self, node: NodeId) -> Result<(), HeartbeatError> {
        let (is_up, answer) = oneshot::channel();
        let came = clock::instant();
        let sent = self.0.send(QueuedHeartbeat { node, came, is_up }).await;
        sent.map_err(|_| HeartbeatError::Unkept)?;
        match answer.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(HeartbeatError::Lost),
            Err(_) => Err(HeartbeatError::Unkept),
        }
    }
}

/// Pause before the same heartbeats are written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeartbeatPause {
    /// New heartbeats end it, because they do not wait for a locked row.
    Locked(Duration),
    /// The database did not answer.
    Away,
}

impl HeartbeatPause {
    /// Pause after a transaction; `are_locked` is whether it skipped locked rows.
    fn after(self, are_locked: bool) -> Self {
        match self {
            Self::Locked(pause) if are_locked => Self::Locked((pause * 2).min(LOCKED_LONG)),
            Self::Locked(_) | Self::Away => Self::Locked(LOCKED),
        }
    }
}

async fn keep(
    pool: StorePool,
    mut heartbeats: mpsc::Receiver<QueuedHeartbeat>,
    patience: Duration,
) {
    let (mut together, mut pause) = (Vec::new(), HeartbeatPause::Locked(LOCKED));
    while gather(&mut heartbeats, &mut together, pause).await {
        let nodes: BTreeSet<NodeId> = together
            .iter()
            .map(|heartbeat: &QueuedHeartbeat| heartbeat.node)
            .collect();
        let touched = retry::on_conflict(|| touch(&pool, &nodes));
        let why = match tokio::time::timeout(ANSWER, touched).await {
            Ok(Ok(touched)) => {
                together = answer(together, &touched);
                together.retain(|heartbeat| heartbeat.came.elapsed() < patience);
                pause = pause.after(!together.is_empty());
                continue;
            }
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("no answer within {} s", ANSWER.as_secs()),
        };
        tracing::warn!(error = %why, nodes = nodes.len(), "heartbeats could not be kept yet");
        together.retain(|heartbeat| heartbeat.came.elapsed() < patience);
        pause = HeartbeatPause::Away;
    }
}

/// Answers the sessions. Returns the heartbeats of locked rows.
fn answer(together: Vec<QueuedHeartbeat>, touched: &HeartbeatBatchResult) -> Vec<QueuedHeartbeat> {
    let (locked, told): (Vec<QueuedHeartbeat>, Vec<QueuedHeartbeat>) = together
        .into_iter()
        .partition(|heartbeat| touched.locked.contains(&heartbeat.node));
    for heartbeat in told {
        // The session may have ended.
        let _ = heartbeat.is_up.send(touched.up.contains(&heartbeat.node));
    }
    locked
}

/// After a pause, adds the arrived heartbeats to those that are not written yet. Removes heartbeats
/// of ended sessions. Returns whether a session is left.
async fn gather(
    heartbeats: &mut mpsc::Receiver<QueuedHeartbeat>,
    together: &mut Vec<QueuedHeartbeat>,
    pause: HeartbeatPause,
) -> bool {
    together.retain(|heartbeat| !heartbeat.is_up.is_closed());
    if together.is_empty() {
        return heartbeats.recv_many(together, MOST).await > 0;
    }
    match pause {
        HeartbeatPause::Away => tokio::time::sleep(AWAY).await,
        // Ends also when no session is left.
        HeartbeatPause::Locked(pause) => {
            if let Ok(Some(heartbeat)) = tokio::time::timeout(pause, heartbeats.recv()).await {
                together.push(heartbeat);
            }
        }
    }
    while together.len() < MOST
        && let Ok(heartbeat) = heartbeats.try_recv()
    {
        together.push(heartbeat);
    }
    true
}

async fn touch(
    pool: &StorePool,
    nodes: &BTreeSet<NodeId>,
) -> Result<HeartbeatBatchResult, StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    let touched = muster_store::node::touch(&mut tx, nodes, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(touched)
}

#[cfg(test)]
mod tests {
    use super::{HeartbeatPause, LOCKED, LOCKED_LONG};
    use std::time::Duration;

    #[test]
    fn locked_row_is_retried_a_few_times_per_second() {
        let mut pause = HeartbeatPause::Locked(LOCKED);
        let mut waited = Duration::ZERO;
        let mut tries = 0;
        while let (HeartbeatPause::Locked(next), true) = (pause, waited < Duration::from_secs(10)) {
            (waited, tries) = (waited + next, tries + 1);
            pause = pause.after(true);
        }
        assert!((10..40).contains(&tries), "{tries} in ten seconds");
        assert_eq!(pause, HeartbeatPause::Locked(LOCKED_LONG));
        assert_eq!(pause.after(false), HeartbeatPause::Locked(LOCKED));
    }
}
