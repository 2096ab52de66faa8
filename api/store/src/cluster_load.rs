//! Queue length and capacity over all tenants, for autoscalers. Contains no names of tenants or
//! jobs.

use crate::error::StoreError;
use crate::int_convert::unsigned;
use sqlx::PgConnection;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterLoad {
    pub waiting: Vec<WaitReasonLoad>,
    /// GPUs of the nodes that are up, including closed nodes; CPU slots on nodes without GPUs.
    pub gpus: u64,
    pub held_gpus: u64,
    /// GPUs that take no new tasks. Counts all GPUs of drained, excluded or closed nodes that are
    /// up, and on the other nodes the GPUs that pods outside Muster hold.
    pub closed_gpus: u64,
}

/// Jobs with one wait reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitReasonLoad {
    /// Name of the reason as in `muster_model::wait::Wait`, for example `waiting_for_gpus`.
    pub reason: String,
    pub jobs: u64,
    /// Sum of the GPUs of the jobs' smallest gangs.
    pub gpus: u64,
}

/// Returns the waiting demand and the capacity of the whole cluster.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn cluster_load(conn: &mut PgConnection) -> Result<ClusterLoad, StoreError> {
    let waiting = sqlx::query!(
        r#"select reason as "reason!", jobs as "jobs!", gpus as "gpus!" from muster_demand() order by reason"#
    )
    .fetch_all(&mut *conn)
    .await?;
    let there = sqlx::query!(
        r#"select coalesce(sum(jsonb_array_length(capacity -> 'gpus')), 0)::bigint as "gpus!",
                  (select count(*) from muster_held_gpus() held join node at on at.id = held.node_id where at.state = 'up' and held.lane = 0) as "held!",
                  coalesce(sum(case when drained or excluded_at is not null or coalesce(notice ->> 'closed', 'open') <> 'open'
                      then jsonb_array_length(capacity -> 'gpus')
                      else least(coalesce((notice ->> 'taken')::bigint, 0), jsonb_array_length(capacity -> 'gpus')) end), 0)::bigint as "closed!"
           from node where state = 'up'"#
    )
    .fetch_one(conn)
    .await?;
    let waiting = waiting.into_iter().map(|row| WaitReasonLoad {
        reason: row.reason,
        jobs: unsigned(row.jobs),
        gpus: unsigned(row.gpus),
    });
    Ok(ClusterLoad {
        waiting: waiting.collect(),
        gpus: unsigned(there.gpus),
        held_gpus: unsigned(there.held),
        closed_gpus: unsigned(there.closed),
    })
}
