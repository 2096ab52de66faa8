//! Erasure: orders nodes to remove the files of deleted jobs. All nodes share the checkpoint store,
//! so any node in session can do it. The scheduler may have no access to it.

use crate::clock;
use crate::passes;
use muster_model::id::{JobId, NodeId};
use muster_store::StoreError;
use muster_store::erasure::{self, PendingErasure};
use muster_store::pool::{self, StorePool};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const PAUSE: Duration = Duration::from_secs(5);
/// Maximum duration of a pass.
const LIMIT: Duration = Duration::from_secs(60);
/// Time for which files stay after their job was deleted. A request that found the job before, to
/// start from its checkpoint, is answered within 30 s.
pub const REST: Duration = Duration::from_secs(40);
/// Time after which an order without success is repeated, on another node if there is one.
const AGAIN: Duration = Duration::from_secs(600);
/// Maximum number of open orders.
const MOST: u32 = 200;

/// Open orders of this process.
#[derive(Debug, Default, Clone)]
pub struct Erasures {
    state: Arc<Mutex<ErasureState>>,
}

#[derive(Debug, Default)]
struct ErasureState {
    /// Newest session of each node that accepts orders.
    sessions: BTreeMap<NodeId, ErasureSession>,
    given: BTreeMap<JobId, ErasureDispatch>,
    /// Node of the latest order; the next order goes to the next node.
    latest: Option<NodeId>,
    sessions_begun: u64,
}

#[derive(Debug)]
struct ErasureSession {
    session: u64,
    orders: mpsc::UnboundedSender<PendingErasure>,
}

#[derive(Debug, Clone, Copy)]
struct ErasureDispatch {
    node: NodeId,
    at: Instant,
}

/// Orders of one session.
#[derive(Debug)]
pub struct Orders {
    of: Erasures,
    node: NodeId,
    session: u64,
    orders: mpsc::UnboundedReceiver<PendingErasure>,
}

impl Erasures {
    /// Registers the caller as the session of `node` that receives orders.
    #[must_use]
    pub fn join(&self, node: NodeId) -> Orders {
        let (sender, orders) = mpsc::unbounded_channel();
        let mut state = self.lock();
        state.sessions_begun += 1;
        let session = state.sessions_begun;
        let place = ErasureSession {
            session,
            orders: sender,
        };
        state.sessions.insert(node, place);
        drop(state);
        Orders {
            of: self.clone(),
            node,
            session,
            orders,
        }
    }

    /// Jobs with an open order; `None` if no node accepts orders.
    fn given(&self, now: Instant) -> Option<Vec<JobId>> {
        let mut state = self.lock();
        state.given.retain(|_, given| now - given.at < AGAIN);
        (!state.sessions.is_empty()).then(|| state.given.keys().copied().collect())
    }

    /// Gives the orders to the nodes in rotation.
    fn give(&self, pending: &[PendingErasure], now: Instant) {
        let mut state = self.lock();
        for order in pending {
            let next = state.latest.and_then(|latest| {
                let after = (Bound::Excluded(latest), Bound::Unbounded);
                state.sessions.range(after).next()
            });
            let Some((node, place)) = next.or_else(|| state.sessions.first_key_value()) else {
                return;
            };
            let node = *node;
            // A session that ends removes its own state.
            let _ = place.orders.send(*order);
            state.latest = Some(node);
            state
                .given
                .insert(order.job, ErasureDispatch { node, at: now });
        }
    }

    fn lock(&self) -> MutexGuard<'_, ErasureState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Orders {
    /// Returns the next order for the node.
    pub async fn next(&mut self) -> PendingErasure {
        match self.orders.recv().await {
            Some(order) => order,
            // A newer session of the node has replaced this one.
            None => std::future::pending().await,
        }
    }

    /// Whether the node has an open order for the job's files.
    #[must_use]
    pub fn has(&self, job: JobId) -> bool {
        let state = self.of.lock();
        let given = state.given.get(&job);
        given.is_some_and(|given| given.node == self.node)
    }

    /// Removes the order of a job whose files are gone according to the store.
    pub fn forget(&self, job: JobId) {
        self.of.lock().given.remove(&job);
    }
}

impl Drop for Orders {
    /// Returns the orders of an ended session, so that other nodes get them.
    fn drop(&mut self) {
        let mut state = self.of.lock();
        let place = state.sessions.get(&self.node);
        if place.is_some_and(|place| place.session == self.session) {
            state.sessions.remove(&self.node);
            state.given.retain(|_, given| given.node != self.node);
        }
    }
}

/// Gives orders until the term ends.
pub async fn run(pool: &StorePool, erasures: &Erasures) {
    loop {
        tokio::time::sleep(PAUSE).await;
        passes::one("erasures", LIMIT, once(pool, erasures, REST)).await;
    }
}

/// Gives the orders for jobs that were deleted more than `rest` ago. Returns their number.
///
/// # Errors
/// [`StoreError`].
pub async fn once(
    pool: &StorePool,
    erasures: &Erasures,
    rest: Duration,
) -> Result<u64, StoreError> {
    let now = clock::instant();
    let Some(given) = erasures.given(now) else {
        return Ok(0);
    };
    let most = MOST.saturating_sub(u32::try_from(given.len()).unwrap_or(MOST));
    if most == 0 {
        return Ok(0);
    }
    let times = (clock::now() - rest, clock::now());
    let mut tx = pool::begin(pool).await?;
    let pending = erasure::pending(&mut tx, times, &given, most).await?;
    tx.commit().await.map_err(StoreError::from)?;
    erasures.give(&pending, now);
    Ok(pending.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use muster_model::id::TenantId;
    use uuid::Uuid;

    fn order(job: u128) -> PendingErasure {
        PendingErasure {
            tenant: TenantId(Uuid::from_u128(1)),
            job: JobId(Uuid::from_u128(job)),
        }
    }

    fn node(number: u128) -> NodeId {
        NodeId(Uuid::from_u128(number))
    }

    #[test]
    fn order_moves_to_other_node_after_session_end_or_timeout() {
        let (erasures, now) = (Erasures::default(), clock::instant());
        assert_eq!(erasures.given(now), None, "no node takes orders");
        let mut one = erasures.join(node(1));
        let mut two = erasures.join(node(2));
        erasures.give(&[order(1), order(2), order(3)], now);
        assert_eq!(one.next().now_or_never(), Some(order(1)));
        assert_eq!(two.next().now_or_never(), Some(order(2)));
        assert_eq!(one.next().now_or_never(), Some(order(3)));
        drop(one);
        assert_eq!(erasures.given(now), Some(vec![order(2).job]));
        erasures.give(&[order(1)], now);
        assert_eq!(two.next().now_or_never(), Some(order(1)));
        assert_eq!(erasures.given(now + AGAIN), Some(Vec::new()));
    }

    #[test]
    fn end_of_older_session_keeps_orders_of_newer_one() {
        let (erasures, now) = (Erasures::default(), clock::instant());
        let older = erasures.join(node(1));
        let mut newer = erasures.join(node(1));
        erasures.give(&[order(1)], now);
        drop(older);
        assert_eq!(newer.next().now_or_never(), Some(order(1)));
        assert_eq!(erasures.given(now), Some(vec![order(1).job]));
    }
}
