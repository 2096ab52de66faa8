//! Orders to erase files, and the node's answers.

use super::{NodeSession, SessionEnd, decode};
use crate::clock;
use crate::erasure::Orders;
use crate::retry;
use muster_model::id::JobId;
use muster_proto::session as proto;
use muster_store::StoreError;
use muster_store::erasure::PendingErasure;
use muster_store::pool::StorePool;
use tonic::Status;

/// Maximum length of a node's error in the log.
const MAX_ERROR_CHARS: usize = 500;

impl NodeSession {
    /// Handles the answer to an order.
    pub(super) async fn erased(&self, erased: &proto::Erased) -> Result<(), SessionEnd> {
        let job = decode::job_id("erased.job_id", &erased.job_id)?;
        let Some(orders) = &self.erasures else {
            return Err(Status::invalid_argument("this node was not told to erase files").into());
        };
        if !orders.has(job) {
            return Ok(());
        }
        if !erased.error.is_empty() {
            let error: String = erased.error.chars().take(MAX_ERROR_CHARS).collect();
            tracing::warn!(node.id = %self.node, job.id = %job, error, "files of a deleted job are left; the order is repeated");
            return Ok(());
        }
        retry::on_conflict(|| note_erased(&self.pool, job)).await?;
        orders.forget(job);
        tracing::info!(node.id = %self.node, job.id = %job, "files of a deleted job are erased");
        Ok(())
    }
}

/// Next order for the node. Waits for ever if the executor does not support orders.
pub(super) async fn next(erasures: &mut Option<Orders>) -> PendingErasure {
    match erasures {
        Some(orders) => orders.next().await,
        None => std::future::pending().await,
    }
}

async fn note_erased(pool: &StorePool, job: JobId) -> Result<(), StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    muster_store::erasure::done(&mut tx, job, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}
