//! Detection of lost commits: a database that was restored from a backup, or a promoted standby
//! that lagged.
//!
//! A node keeps the generation of its newest assignment on its own disk. A generation above the
//! stored one proves the loss. The difference bounds it: each revision of a job with a task on the
//! node has raised the node's generation at least once.

use crate::error::StoreError;
use crate::int_convert::signed;
use crate::node::generation_of;
use crate::notify::{self, NotifyChannel};
use muster_model::id::NodeId;
use sqlx::PgConnection;

/// Returns the number of lost generations of the node's assignment; 0 if there is no proof of a
/// loss. In case of a loss, the next revision of each open job is raised above any that may have
/// run.
///
/// `held` is the newest generation that the node has accepted. Locks jobs, so it must precede locks
/// of nodes.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn lost_generations(
    conn: &mut PgConnection,
    name: &str,
    held: u64,
) -> Result<u64, StoreError> {
    let known = generation_of(conn, name).await?;
    let lost = held.saturating_sub(known.unwrap_or(0));
    // The data folder of an unknown node probably belongs to another cluster, so it proves nothing
    // about this one's jobs.
    if lost > 0 && known.is_some() {
        sqlx::query!(
            "update job set revision_floor = revision + $1
             where id in (select id from job
                          where phase not in ('succeeded', 'failed', 'cancelled') and deleted_at is null and revision_floor < revision + $1
                          order by id for no key update)",
            signed(lost)
        )
        .execute(conn)
        .await?;
    }
    Ok(lost)
}

/// Raises the node's generation above `held`, so that the node accepts its next assignment.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn outrun(conn: &mut PgConnection, node: NodeId, held: u64) -> Result<(), StoreError> {
    let raised = sqlx::query!(
        "update node set generation = $2 + 1 where id = $1 and generation <= $2",
        node.0,
        signed(held)
    )
    .execute(&mut *conn)
    .await?;
    if raised.rows_affected() > 0 {
        notify::send(conn, &[NotifyChannel::Assignments]).await?;
    }
    Ok(())
}
