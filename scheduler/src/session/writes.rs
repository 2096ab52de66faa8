//! Writes of sessions, each in its own transaction.

use super::assignment::Unsendable;
use crate::clock;
use muster_model::fault::NodeFault;
use muster_model::id::{NodeId, TaskId};
use muster_model::packing::UsageReport;
use muster_store::StoreError;
use muster_store::pool::StorePool;
use time::OffsetDateTime;

/// Stores GPU use. Uses its own transaction, because rows of jobs must be locked before the node's
/// row.
pub(super) async fn keep_usages(
    pool: &StorePool,
    node: NodeId,
    used: &[(TaskId, UsageReport)],
) -> Result<(), StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    muster_store::packing::record(&mut tx, node, used, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}

/// `None` for an empty text of the wire.
pub(super) fn said(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Records why the node takes no new tasks.
pub(super) async fn set_unfit(
    pool: &StorePool,
    node: NodeId,
    unfit: &str,
) -> Result<(), StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    muster_store::fault::set_unfit(&mut tx, node, said(unfit), clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}

/// Ends a job that cannot be sent to its nodes.
pub(super) async fn cannot_be_sent(pool: &StorePool, job: &Unsendable) -> Result<(), StoreError> {
    use muster_store::assignment;
    let mut tx = muster_store::pool::begin(pool).await?;
    assignment::cannot_be_sent(&mut tx, job.job, &job.to_string(), clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}

/// Charges GPU errors to the node.
pub(super) async fn charge(
    pool: &StorePool,
    node: NodeId,
    faults: &[(OffsetDateTime, NodeFault)],
) -> Result<(), StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    muster_store::fault::charge_hardware(&mut tx, node, faults, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}

/// Stores a report.
pub(super) async fn record(
    pool: &StorePool,
    node: NodeId,
    report: &muster_store::report::NodeReport,
) -> Result<(), StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    muster_store::report::record(&mut tx, node, report, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}
