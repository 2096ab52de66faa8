//! Cache of Muster's nodes: one list for all reconciliations, two seconds old at most.

use crate::clock;
use crate::error::Error;
use muster_client::Client;
use muster_model::view::NodeView;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

const FRESH: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub struct NodeCache {
    list: Mutex<CachedNodes>,
}

#[derive(Debug, Default)]
struct CachedNodes {
    /// Time until which the list is used.
    until: Option<Instant>,
    nodes: HashMap<String, NodeView>,
}

impl NodeCache {
    /// # Errors
    /// If the REST interface does not answer.
    pub async fn node(&self, client: &Client, name: &str) -> Result<Option<NodeView>, Error> {
        let list = self.list(client).await?;
        Ok(list.nodes.get(name).cloned())
    }

    /// # Errors
    /// If the REST interface does not answer.
    pub async fn all(&self, client: &Client) -> Result<Vec<NodeView>, Error> {
        let list = self.list(client).await?;
        Ok(list.nodes.values().cloned().collect())
    }

    /// Replaces one node and keeps the others. A new list after each change would mean one list per
    /// node when an operator starts.
    pub async fn learn(&self, node: NodeView) {
        let mut list = self.list.lock().await;
        list.nodes.insert(node.name.clone(), node);
    }

    /// Expires the list after a change with unknown result.
    pub async fn forget(&self) {
        self.list.lock().await.until = None;
    }

    async fn list(
        &self,
        client: &Client,
    ) -> Result<tokio::sync::MutexGuard<'_, CachedNodes>, Error> {
        let mut list = self.list.lock().await;
        let now = clock::monotonic();
        if list.until.is_none_or(|until| now >= until) {
            let nodes = client.nodes().await;
            let nodes = nodes.map_err(Error::muster("nodes were not listed"))?;
            list.nodes = nodes
                .into_iter()
                .map(|node| (node.name.clone(), node))
                .collect();
            list.until = Some(clock::monotonic() + FRESH);
        }
        Ok(list)
    }
}
