//! Versions of all nodes' assignments, read once for all sessions when something has changed. When each session looked for itself, every
//! change was a transaction for each node of the cluster, and those of two hundred nodes left no connection to anybody else.

use super::chain;
use muster_model::id::NodeId;
use muster_store::StoreError;
use muster_store::pool::{Pool, in_time};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;

type All = BTreeMap<NodeId, u64>;

/// Every session has one.
#[derive(Debug, Clone)]
pub struct Generations(watch::Receiver<All>);

impl Generations {
    /// Begins to follow them, until no session is left that could ask; needs a tokio runtime. `every` is how soon a change is seen of which
    /// nobody was woken.
    #[must_use]
    pub fn follow(pool: Pool, assignments: watch::Receiver<u64>, every: Duration) -> Self {
        let (sender, receiver) = watch::channel(All::new());
        tokio::spawn(follow(pool, assignments, every, sender));
        Self(receiver)
    }

    /// Whether this generation is that of the node's assignment. Another may be lower: the database can lose commits.
    pub fn is_newest(&mut self, node: NodeId, sent: u64) -> bool {
        let all = self.0.borrow_and_update();
        all.get(&node).is_none_or(|newest| *newest == sent)
    }

    /// Returns when something has changed of any node since [`Self::is_newest`] was asked.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The process ends.
            std::future::pending::<()>().await;
        }
    }
}

async fn follow(
    pool: Pool,
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

async fn read(pool: &Pool) -> Result<All, StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    muster_store::node::generations(&mut tx).await
}
