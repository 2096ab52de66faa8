//! Requests for a checkpoint before a stop (`job.asked_at`). A request begins with the stop, in
//! `plan::commit`. Its end lets all tasks of the job stop.

use crate::error::StoreError;
use crate::int_convert::signed;
use muster_model::checkpoint::RequestResult;
use muster_model::id::{JobId, NodeId};
use muster_model::task::{Role, Task};
use sqlx::PgConnection;
use std::collections::BTreeSet;
use uuid::Uuid;

/// Records the result of a job's request and ends it. Returns the nodes of the job, whose tasks now
/// stop. The caller has locked the job's row.
///
/// # Errors
/// [`StoreError::Statement`].
pub(crate) async fn ended(
    conn: &mut PgConnection,
    job: JobId,
    result: RequestResult,
    waited_ms: u64,
) -> Result<BTreeSet<NodeId>, StoreError> {
    let answer_ms = match result {
        // A task may write any number into its reports.
        RequestResult::Reported { .. } => Some(signed(waited_ms.min(i64::MAX.unsigned_abs()))),
        RequestResult::Ended | RequestResult::TimedOut => None,
    };
    sqlx::query!(
        "update job set asked_at = null, answer_ms = $2 where id = $1",
        job.0,
        answer_ms
    )
    .execute(&mut *conn)
    .await?;
    nodes_of(conn, &[job.0]).await
}

/// Nodes of the jobs that are asked for a checkpoint and whose rank 0 is among the tasks, which are
/// released. It cannot answer any more, so the job's other tasks stop now.
///
/// # Errors
/// [`StoreError::Statement`].
pub(crate) async fn unanswered(
    conn: &mut PgConnection,
    released: impl Iterator<Item = &Task>,
) -> Result<BTreeSet<NodeId>, StoreError> {
    let lost = released.filter(|task| task.role == Role::Worker { rank: 0 });
    let jobs: Vec<Uuid> = lost.map(|task| task.job_id.0).collect();
    if jobs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let asked = sqlx::query_scalar!(
        "select id from job where id = any($1) and asked_at is not null",
        &jobs
    )
    .fetch_all(&mut *conn)
    .await?;
    nodes_of(conn, &asked).await
}

/// Nodes that have unreleased tasks of the jobs.
async fn nodes_of(conn: &mut PgConnection, jobs: &[Uuid]) -> Result<BTreeSet<NodeId>, StoreError> {
    if jobs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let nodes = sqlx::query_scalar!(
        "select distinct node_id from task where job_id = any($1) and released_at is null",
        jobs
    )
    .fetch_all(conn)
    .await?;
    Ok(nodes.into_iter().map(NodeId).collect())
}
