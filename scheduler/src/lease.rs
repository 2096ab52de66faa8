//! Node loss: a node that was silent for longer than its lease and the grace has stopped its tasks itself, so they count as gone.

use crate::clock;
use crate::config::Config;
use crate::retry;
use crate::session::chain;
use muster_store::StoreError;
use muster_store::pool::Pool;
use std::time::Duration;
use tokio::sync::watch;

/// Looks for lost nodes until this process stops leading. The first look comes one lease after the start, so that nodes which
/// outlived a restart of the scheduler can dial in first.
pub async fn run(pool: &Pool, config: &Config, mut leader: watch::Receiver<bool>) {
    let lost_after = Duration::from_millis(config.lost_after_ms());
    let mut pause = Duration::from_millis(config.lease_ms);
    loop {
        tokio::select! {
            _ = leader.wait_for(|leads| !leads) => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = Duration::from_millis(config.heartbeat_ms);
        match retry::on_conflict(|| mark_lost(pool, lost_after)).await {
            Ok(nodes) => {
                for node in nodes {
                    tracing::warn!(node.id = %node.id, node.name = %node.name, "node lost");
                }
            }
            Err(error) => tracing::warn!(error = %chain(&error), "could not look for lost nodes"),
        }
    }
}

async fn mark_lost(
    pool: &Pool,
    lost_after: Duration,
) -> Result<Vec<muster_model::node::Node>, StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    let lost = muster_store::node::lost(&mut tx, clock::now(), lost_after).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(lost)
}
