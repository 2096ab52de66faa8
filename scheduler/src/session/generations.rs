//! Generations of all nodes' assignments, read once per change for all sessions. With a query per
//! session every change would cost one transaction per node, which exhausts the connections of a
//! large cluster.

use muster_model::error_chain::chain;
use muster_model::id::NodeId;
use muster_store::StoreError;
use muster_store::pool::{StorePool, in_time};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;

type All = BTreeMap<NodeId, u64>;

/// Handle of a session.
#[derive(Debug, Clone)]
pub struct Generations(watch::Receiver<All>);

impl Generations {
    /// Follows the generations until the last handle is dropped; needs a tokio runtime. `every`
    /// limits the delay of a change without a wake-up.
    #[must_use]
    pub fn follow(pool: StorePool, assignments: watch::Receiver<u64>, every: Duration) -> Self {
        let (sender, receiver) = watch::channel(All::new());
        tokio::spawn(follow(pool, assignments, every, sender));
        Self(receiver)
    }

    /// Whether `sent` is the generation of the node's assignment. The current one can be lower,
    /// because the database can lose commits.
    pub fn is_newest(&mut self, node: NodeId, sent: u64) -> bool {
        let all = self.0.borrow_and_update();
        all.get(&node).is_none_or(|newest| *newest == sent)
    }

    /// Returns when the generation of any node has changed since [`Self::is_newest`].
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The process ends.
            std::future::pending::<()>().await;
        }
    }
}

async fn follow(
    pool: StorePool,
    mut assignments: watch::Receiver<u64>,
    every: Duration,
    sender: watch::Sender<All>,
) {
    loop {
        assignments.mark_unchanged();
        match in_time(read(&pool)).await {
            Ok(all) => {
                sender.send_if_modified(|known| {
                    let are_news = *known != all;
                    *known = all;
                    are_news
                });
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "whose assignments have changed is not known");
            }
        }
        tokio::select! {
            () = sender.closed() => return,
            woken = tokio::time::timeout(every, assignments.changed()) => {
                if matches!(woken, Ok(Err(_))) {
                    return;
                }
            }
        }
    }
}

async fn read(pool: &StorePool) -> Result<All, StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    muster_store::node::generations(&mut tx).await
}
