//! Jobs that begin from checkpoints of other jobs, and the checkpoints that are retained for them.

use crate::error::StoreError;
use crate::int_convert::{signed, unsigned};
use crate::node;
use muster_model::id::{JobId, NodeId};
use sqlx::PgConnection;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Returns for each job the steps whose checkpoints are retained against its retention policy.
/// One kind is the end of the job's last rung, from which a study may start another trial. The
/// other kind are steps from which an open job begins that has no checkpoint of its own yet.
///
/// # Errors
/// [`StoreError::Statement`].
pub(crate) async fn spared(
    conn: &mut PgConnection,
    jobs: &[Uuid],
) -> Result<BTreeMap<Uuid, BTreeSet<u64>>, StoreError> {
    let rows = sqlx::query!(
        r#"select id as "id!", rung_step as "step!" from job where id = any($1) and rung_step is not null
           union all
           select c.origin_job, c.origin_step from job c
           where c.origin_job = any($1) and c.phase not in ('succeeded', 'failed', 'cancelled')
             and not exists (select from checkpoint k where k.job_id = c.id and k.retained)"#,
        jobs
    )
    .fetch_all(conn)
    .await?;
    let mut spared: BTreeMap<Uuid, BTreeSet<u64>> = BTreeMap::new();
    for row in rows {
        spared.entry(row.id).or_default().insert(unsigned(row.step));
    }
    Ok(spared)
}

/// Returns the same for one job.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn spared_of(conn: &mut PgConnection, job: JobId) -> Result<BTreeSet<u64>, StoreError> {
    let mut spared = spared(conn, &[job.0]).await?;
    Ok(spared.remove(&job.0).unwrap_or_default())
}

/// Informs the nodes of checkpoints that must be retained since the last call, because submitted
/// jobs begin from them. Idempotent; usually there are none.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn tell(conn: &mut PgConnection) -> Result<(), StoreError> {
    let nodes = sqlx::query_scalar!(
        r#"with told as (
               update job set origin_told = true where origin_job is not null and not origin_told returning origin_job
           )
           select distinct t.node_id as "node!" from task t
           where t.released_at is null and t.job_id in (select origin_job from told)"#
    )
    .fetch_all(&mut *conn)
    .await?;
    let nodes: BTreeSet<NodeId> = nodes.into_iter().map(NodeId::from).collect();
    node::bump(conn, &nodes).await
}

/// Returns the newest step in `first..end` of which the job still has a checkpoint.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn newest_between(
    conn: &mut PgConnection,
    job: JobId,
    (first, end): (u64, u64),
) -> Result<Option<u64>, StoreError> {
    let step = sqlx::query_scalar!(
        "select max(step) from checkpoint where job_id = $1 and retained and step >= $2 and step < $3",
        job.0,
        signed(first),
        signed(end)
    )
    .fetch_one(conn)
    .await?;
    Ok(step.map(unsigned))
}
