//! What sessions write, each in a transaction of its own.

use super::assignment::Unsendable;
use crate::clock;
use muster_model::fault::NodeFault;
use muster_model::id::{NodeId, TaskId};
use muster_model::packing::UsageReport;
use muster_store::StoreError;
use muster_store::pool::Pool;
use time::OffsetDateTime;

/// In a transaction of its own: the node's row is locked after jobs', never before.
pub(super) async fn keep_usages(
    pool: &Pool,
    node: NodeId,
    used: &[(TaskId, UsageReport)],
) -> Result<(), StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    muster_store::packing::record(&mut tx, node, used, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}

/// `None` of what is empty on the wire.
pub(super) fn said(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Notes why the node takes no new tasks.
pub(super) async fn set_unfit(pool: &Pool, node: NodeId, unfit: &str) -> Result<(), StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    muster_store::fault::set_unfit(&mut tx, node, said(unfit), clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}

/// Ends a job that cannot be sent to its nodes.
pub(super) async fn cannot_be_sent(pool: &Pool, job: &Unsendable) -> Result<(), StoreError> {
    use muster_store::assignment;
    let mut tx = muster_store::pool::begin(pool).await?;
    assignment::cannot_be_sent(&mut tx, job.job, &job.to_string(), clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}

/// Charges the node's errors of its GPUs.
pub(super) async fn charge(
    pool: &Pool,
    node: NodeId,
    faults: &[(OffsetDateTime, NodeFault)],
) -> Result<(), StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    muster_store::fault::charge_hardware(&mut tx, node, faults, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}

/// Keeps a report.
pub(super) async fn record(
    pool: &Pool,
    node: NodeId,
    report: &muster_store::report::NodeReport,
) -> Result<(), StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    muster_store::report::record(&mut tx, node, report, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}
