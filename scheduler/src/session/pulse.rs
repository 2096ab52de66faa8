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

/// Handle of a session.
#[derive(Debug, Clone)]
pub struct Pulse(mpsc::Sender<Beat>);

#[derive(Debug)]
struct Beat {
    node: NodeId,
    came: Instant,
    /// Whether the node is up; dropped if the heartbeat could not be written.
    is_up: oneshot::Sender<bool>,
}

/// Reason why a heartbeat was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Missed {
    #[error("the node counts as lost by now")]
    Lost,
    #[error("a heartbeat could not be kept")]
    Unkept,
}

impl Pulse {
    /// Writes until the last handle is dropped; needs a tokio runtime. A heartbeat that cannot be
    /// written is retried for `patience` before its session ends. Reconnects of all nodes at once
    /// would overload a database that has just recovered.
    #[must_use]
    pub fn keep(pool: StorePool, patience: Duration) -> Self {
        let (sender, beats) = mpsc::channel(MOST);
        tokio::spawn(keep(pool, beats, patience));
        Self(sender)
    }

    /// Returns when the heartbeat is stored.
    ///
    /// # Errors
    /// [`Missed`]; the node must dial in again.
    pub async fn beat(&self, node: NodeId) -> Result<(), Missed> {
        let (is_up, answer) = oneshot::channel();
        let came = clock::instant();
        let sent = self.0.send(Beat { node, came, is_up }).await;
        sent.map_err(|_| Missed::Unkept)?;
        match answer.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Missed::Lost),
            Err(_) => Err(Missed::Unkept),
        }
    }
}

/// Pause before the same heartbeats are written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    /// New heartbeats end it, because they do not wait for a locked row.
    Locked(Duration),
    /// The database did not answer.
    Away,
}

impl Pause {
    /// Pause after a transaction; `are_locked` is whether it skipped locked rows.
    fn after(self, are_locked: bool) -> Self {
        match self {
            Self::Locked(pause) if are_locked => Self::Locked((pause * 2).min(LOCKED_LONG)),
            Self::Locked(_) | Self::Away => Self::Locked(LOCKED),
        }
    }
}

async fn keep(pool: StorePool, mut beats: mpsc::Receiver<Beat>, patience: Duration) {
    let (mut together, mut pause) = (Vec::new(), Pause::Locked(LOCKED));
    while gather(&mut beats, &mut together, pause).await {
        let nodes: BTreeSet<NodeId> = together.iter().map(|beat: &Beat| beat.node).collect();
        let touched = retry::on_conflict(|| touch(&pool, &nodes));
        let why = match tokio::time::timeout(ANSWER, touched).await {
            Ok(Ok(touched)) => {
                together = answer(together, &touched);
                together.retain(|beat| beat.came.elapsed() < patience);
                pause = pause.after(!together.is_empty());
                continue;
            }
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("no answer within {} s", ANSWER.as_secs()),
        };
        tracing::warn!(error = %why, nodes = nodes.len(), "heartbeats could not be kept yet");
        together.retain(|beat| beat.came.elapsed() < patience);
        pause = Pause::Away;
    }
}

/// Answers the sessions. Returns the heartbeats of locked rows.
fn answer(together: Vec<Beat>, touched: &HeartbeatBatchResult) -> Vec<Beat> {
    let (locked, told): (Vec<Beat>, Vec<Beat>) = together
        .into_iter()
        .partition(|beat| touched.locked.contains(&beat.node));
    for beat in told {
        // The session may have ended.
        let _ = beat.is_up.send(touched.up.contains(&beat.node));
    }
    locked
}

/// After a pause, adds the arrived heartbeats to those that are not written yet. Removes heartbeats
/// of ended sessions. Returns whether a session is left.
async fn gather(beats: &mut mpsc::Receiver<Beat>, together: &mut Vec<Beat>, pause: Pause) -> bool {
    together.retain(|beat| !beat.is_up.is_closed());
    if together.is_empty() {
        return beats.recv_many(together, MOST).await > 0;
    }
    match pause {
        Pause::Away => tokio::time::sleep(AWAY).await,
        // Ends also when no session is left.
        Pause::Locked(pause) => {
            if let Ok(Some(beat)) = tokio::time::timeout(pause, beats.recv()).await {
                together.push(beat);
            }
        }
    }
    while together.len() < MOST
        && let Ok(beat) = beats.try_recv()
    {
        together.push(beat);
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
    use super::{LOCKED, LOCKED_LONG, Pause};
    use std::time::Duration;

    #[test]
    fn locked_row_is_retried_a_few_times_per_second() {
        let mut pause = Pause::Locked(LOCKED);
        let mut waited = Duration::ZERO;
        let mut tries = 0;
        while let (Pause::Locked(next), true) = (pause, waited < Duration::from_secs(10)) {
            (waited, tries) = (waited + next, tries + 1);
            pause = pause.after(true);
        }
        assert!((10..40).contains(&tries), "{tries} in ten seconds");
        assert_eq!(pause, Pause::Locked(LOCKED_LONG));
        assert_eq!(pause.after(false), Pause::Locked(LOCKED));
    }
}
