//! Node loss: a node that was silent for longer than its lease and grace has stopped its tasks by
//! itself, so they count as gone.
//!
//! Silence is measured by this process's monotonic clock, from the poll that first read the newest
//! heartbeat. Wall clocks are not compared. A clock that is set forward would make every node lost,
//! and a slow one would hide a dead node.

use crate::clock;
use crate::config::SchedulerConfig;
use crate::passes;
use crate::retry;
use muster_model::id::NodeId;
use muster_model::node::Node;
use muster_store::StoreError;
use muster_store::node::NodeHeartbeat;
use muster_store::pool::StorePool;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// Maximum duration of a poll with its retries.
const LIMIT: Duration = Duration::from_secs(60);

/// Polls for lost nodes. The first poll only starts the measurement. A node without a heartbeat
/// since the start of the term is lost after lease and grace.
pub async fn run(pool: &StorePool, config: &SchedulerConfig) {
    let lost_after = Duration::from_millis(config.lost_after_ms());
    let pause = Duration::from_millis(config.heartbeat_ms);
    let mut silence = Silence::default();
    loop {
        let look = once(pool, &mut silence, lost_after, clock::instant);
        for node in passes::one("leases", LIMIT, look).await.unwrap_or_default() {
            tracing::warn!(node.id = %node.id, node.name = %node.name, "node lost");
        }
        tokio::time::sleep(pause).await;
    }
}

/// Polls once and returns the nodes that are lost by it. `instant` reads a monotonic clock.
///
/// # Errors
/// [`StoreError`] if the store cannot be read or written.
pub async fn once(
    pool: &StorePool,
    silence: &mut Silence,
    lost_after: Duration,
    instant: impl Fn() -> Instant,
) -> Result<Vec<Node>, StoreError> {
    let heard = muster_store::pool::in_time(async {
        let mut tx = muster_store::pool::begin(pool).await?;
        muster_store::node::heard(&mut tx).await
    });
    let heard = heard.await?;
    // After the read, so that the measurement never starts before the heartbeat was written.
    let silent = silence.longer_than(lost_after, heard, instant());
    if silent.is_empty() {
        return Ok(Vec::new());
    }
    retry::on_conflict(|| mark_lost(pool, &silent, clock::now())).await
}

async fn mark_lost(
    pool: &StorePool,
    silent: &[NodeHeartbeat],
    now: OffsetDateTime,
) -> Result<Vec<Node>, StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    let lost = muster_store::node::lost(&mut tx, silent, now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(lost)
}

/// Start of the silence of each node that is up.
#[derive(Debug, Default)]
pub struct Silence(BTreeMap<NodeId, Since>);

#[derive(Debug, Clone, Copy)]
struct Since {
    /// As stored; only changes of it count.
    last_seen_at: OffsetDateTime,
    /// Time of the poll that first read it.
    at: Instant,
}

impl Silence {
    /// Nodes that have been silent for `limit`. `heard` was read before `now`.
    pub fn longer_than(
        &mut self,
        limit: Duration,
        heard: Vec<NodeHeartbeat>,
        now: Instant,
    ) -> Vec<NodeHeartbeat> {
        let before = std::mem::take(&mut self.0);
        let mut silent = Vec::new();
        for node in heard {
            let known = before.get(&node.id);
            let known = known.filter(|known| known.last_seen_at == node.last_seen_at);
            let since = known.copied().unwrap_or(Since {
                last_seen_at: node.last_seen_at,
                at: now,
            });
            self.0.insert(node.id, since);
            if now.saturating_duration_since(since.at) >= limit {
                silent.push(node);
            }
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const LOST_AFTER: Duration = Duration::from_secs(21);
    const A: NodeId = NodeId(Uuid::from_u128(1));
    const B: NodeId = NodeId(Uuid::from_u128(2));

    fn heard(id: NodeId, at_s: i64) -> NodeHeartbeat {
        let last_seen_at = OffsetDateTime::from_unix_timestamp(at_s).expect("a time");
        NodeHeartbeat { id, last_seen_at }
    }

    /// Silent nodes of a poll after `after_s` seconds of the monotonic clock.
    fn look(
        silence: &mut Silence,
        after_s: u64,
        nodes: &[NodeHeartbeat],
        begin: Instant,
    ) -> Vec<NodeId> {
        let now = begin + Duration::from_secs(after_s);
        let silent = silence.longer_than(LOST_AFTER, nodes.to_vec(), now);
        silent.into_iter().map(|node| node.id).collect()
    }

    #[test]
    fn wall_clock_step_loses_no_node_with_heartbeats() {
        let (mut silence, begin) = (Silence::default(), clock::instant());
        // Heartbeats every 2 s; the clock steps an hour forward, then two hours back.
        let written_s = [1_000, 1_002, 4_604, 4_606, -2_592, -2_590];
        for (beat, at_s) in (0..).zip(written_s) {
            let silent = look(&mut silence, 2 * beat, &[heard(A, at_s)], begin);
            assert_eq!(silent, [], "at the wall clock's {at_s} s");
        }
    }

    #[test]
    fn node_is_silent_when_newest_heartbeat_is_old() {
        let (mut silence, begin) = (Silence::default(), clock::instant());
        let both = [heard(A, 1_000), heard(B, 1_000)];
        assert_eq!(look(&mut silence, 0, &both, begin), []);
        let b_speaks = [heard(A, 1_000), heard(B, 1_010)];
        assert_eq!(look(&mut silence, 10, &b_speaks, begin), []);
        assert_eq!(look(&mut silence, 20, &b_speaks, begin), []);
        assert_eq!(look(&mut silence, 21, &b_speaks, begin), [A]);
        assert_eq!(look(&mut silence, 31, &b_speaks[1..], begin), [B]);
    }

    #[test]
    fn heartbeat_from_future_does_not_hide_dead_node() {
        let (mut silence, begin) = (Silence::default(), clock::instant());
        // The clock of the previous leader was hours ahead.
        let node = [heard(A, 1_000_000)];
        assert_eq!(look(&mut silence, 0, &node, begin), []);
        assert_eq!(look(&mut silence, 22, &node, begin), [A]);
    }

    #[test]
    fn silence_of_returned_node_starts_again() {
        let (mut silence, begin) = (Silence::default(), clock::instant());
        assert_eq!(look(&mut silence, 0, &[heard(A, 1_000)], begin), []);
        // Lost at one poll, up again by its next Hello.
        assert_eq!(look(&mut silence, 30, &[], begin), []);
        assert_eq!(look(&mut silence, 60, &[heard(A, 1_000)], begin), []);
        assert_eq!(look(&mut silence, 80, &[heard(A, 1_000)], begin), []);
    }
}
