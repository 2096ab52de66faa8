//! Heartbeats of all sessions: those that come while others are being written go into one transaction together. A transaction for each had
//! two hundred nodes wait for connections until their leases were over. A row that somebody has locked is passed over and tried again, so that it
//! delays nobody else.

use super::chain;
use crate::clock;
use crate::retry;
use muster_model::id::NodeId;
use muster_store::StoreError;
use muster_store::node::Touched;
use muster_store::pool::Pool;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Into one transaction; more would hold the rows of so many nodes for longer.
const MOST: usize = 1_000;
/// How soon a row that somebody has locked is tried again; each time after twice as long, up to three times a second.
const LOCKED: Duration = Duration::from_millis(20);
const LOCKED_LONG: Duration = Duration::from_millis(320);
/// How soon all are tried again where the database did not answer.
const AWAY: Duration = Duration::from_millis(500);
/// A connection that says nothing for so long is given up for another.
const ANSWER: Duration = Duration::from_secs(5);

/// Every session has one.
#[derive(Debug, Clone)]
pub struct Pulse(mpsc::Sender<Beat>);

#[derive(Debug)]
struct Beat {
    node: NodeId,
    came: Instant,
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
    /// Writes until no session is left; needs a tokio runtime. A heartbeat that cannot be written is tried again for `patience`, and only then
    /// costs its node the session: all nodes that dial in anew at one time are more than a database needs that has just come back.
    #[must_use]
    pub fn keep(pool: Pool, patience: Duration) -> Self {
        let (sender, beats) = mpsc::channel(MOST);
        tokio::spawn(keep(pool, beats, patience));
        Self(sender)
    }

    /// Returns once it is written that the node was heard.
    ///
    /// # Errors
    /// [`Missed`]: the node is to dial in anew.
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

/// Before the same heartbeats are written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    /// Others' heartbeats end it: they wait for no row that somebody has locked.
    Locked(Duration),
    /// The database did not answer.
    Away,
}

impl Pause {
    /// After a transaction that has passed over locked rows, or over none.
    fn after(self, are_locked: bool) -> Self {
        match self {
            Self::Locked(pause) if are_locked => Self::Locked((pause * 2).min(LOCKED_LONG)),
            Self::Locked(_) | Self::Away => Self::Locked(LOCKED),
        }
    }
}

async fn keep(pool: Pool, mut beats: mpsc::Receiver<Beat>, patience: Duration) {
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

/// Tells who waits; those whose rows somebody has locked are left.
fn answer(together: Vec<Beat>, touched: &Touched) -> Vec<Beat> {
    let (locked, told): (Vec<Beat>, Vec<Beat>) = together
        .into_iter()
        .partition(|beat| touched.locked.contains(&beat.node));
    for beat in told {
        // The session may have ended meanwhile.
        let _ = beat.is_up.send(touched.up.contains(&beat.node));
    }
    locked
}

/// Puts the heartbeats that have come to those that are still to be written, after a pause; of these the ones for whom nobody waits any more
/// are left out. Whether there can be any.
async fn gather(beats: &mut mpsc::Receiver<Beat>, together: &mut Vec<Beat>, pause: Pause) -> bool {
    together.retain(|beat| !beat.is_up.is_closed());
    if together.is_empty() {
        return beats.recv_many(together, MOST).await > 0;
    }
    match pause {
        Pause::Away => tokio::time::sleep(AWAY).await,
        // Ended where no session is left, too.
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

async fn touch(pool: &Pool, nodes: &BTreeSet<NodeId>) -> Result<Touched, StoreError> {
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
    fn a_row_that_stays_locked_is_tried_a_few_times_a_second() {
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
