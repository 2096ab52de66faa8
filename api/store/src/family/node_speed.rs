//! Speeds of jobs by node, from which the deviation of a node from its GPU kind follows.
//!
//! A row is the mean over the newest samples of one job at one size on one node. The scheduler
//! compares these rows in a loop of its own and writes the deviations into the nodes' rows. So a
//! round reads them with the nodes.

use super::{DAY_S, HALF_LIFE_S, LEAST_WEIGHT, NEWEST_SAMPLES};
use crate::error::StoreError;
use crate::int_convert::{signed, signed32, unsigned32};
use muster_model::id::{JobId, NodeId, TenantId};
use muster_model::node::NodeSpeed;
use sqlx::PgConnection;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use uuid::Uuid;

/// Maximum number of rows of a node that are read, those of the newest jobs.
const NEWEST_ROWS_OF_NODE: i64 = 32;

/// Mean speed of a job at one size on one node of its present GPU kind.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeedOnNode {
    pub node: NodeId,
    pub job: JobId,
    pub tenant: TenantId,
    /// Key of the job's family.
    pub family: String,
    /// Model of the node's GPUs.
    pub gpu_kind: String,
    pub workers: u32,
    pub ps_shards: u32,
    /// Updates per second.
    pub steps_per_s: f64,
    /// Weight in samples. It falls with age in steps of a day.
    pub samples: f64,
}

/// A job at one size on one node.
pub(super) struct OnNode<'a> {
    pub tenant: TenantId,
    pub job: JobId,
    pub family: &'a str,
    pub node: NodeId,
    pub gpu_kind: &'a str,
    /// Workers and PS shards.
    pub size: (u32, u32),
}

/// Adds samples: the sum of their speeds in updates per second, and their number. The caller has
/// locked the job's row.
pub(super) async fn observe(
    conn: &mut PgConnection,
    on: &OnNode<'_>,
    (sum, count): (f64, u64),
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into node_speed as old
             (job_id, node_id, gpu_kind, workers, ps_shards, tenant_id, family, steps_per_s, weight, observed_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8::float8 / $9::bigint, least($9::bigint, $10::float8), $11)
         on conflict (job_id, node_id, gpu_kind, workers, ps_shards) do update
            set (steps_per_s, weight) = (
                    select (old.steps_per_s * kept + $8) / (kept + $9), least(kept + $9, $10)
                    from (select old.weight * power(0.5::float8,
                              greatest(extract(epoch from $11::timestamptz - old.observed_at), 0)::float8 / $12::float8) as kept) aged),
                family = excluded.family, observed_at = excluded.observed_at",
        on.job.0,
        on.node.0,
        on.gpu_kind,
        signed32(on.size.0),
        signed32(on.size.1),
        on.tenant.0,
        on.family,
        sum,
        signed(count),
        NEWEST_SAMPLES,
        now,
        HALF_LIFE_S
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the speeds of the newest jobs on each node, ordered by node and job. Measurements of
/// other GPUs than the node's present ones are omitted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn speeds_on_nodes(
    conn: &mut PgConnection,
    now: OffsetDateTime,
) -> Result<Vec<SpeedOnNode>, StoreError> {
    let rows = sqlx::query!(
        r#"select n.id as "node_id!", s.job_id as "job_id!", s.tenant_id as "tenant_id!", s.family as "family!",
                  s.gpu_kind as "gpu_kind!", s.workers as "workers!", s.ps_shards as "ps_shards!",
                  s.steps_per_s as "steps_per_s!", s.kept as "samples!"
           from node n
           cross join lateral (
               select job_id, tenant_id, family, gpu_kind, workers, ps_shards, steps_per_s,
                      weight * power(0.5::float8, floor(greatest(extract(epoch from $1::timestamptz - observed_at), 0)::float8 / $2) * $2 / $3::float8) as kept
               from node_speed where node_id = n.id order by job_id desc limit $4) s
           where n.removed_at is null and s.gpu_kind = muster_gpu_kind(n.capacity, n.notice) and s.kept >= $5::float8 and s.steps_per_s > 0
           order by n.id, s.job_id, s.workers, s.ps_shards"#,
        now,
        DAY_S,
        HALF_LIFE_S,
        NEWEST_ROWS_OF_NODE,
        LEAST_WEIGHT
    )
    .fetch_all(conn)
    .await?;
    let speeds = rows.into_iter().map(|row| SpeedOnNode {
        node: row.node_id.into(),
        job: row.job_id.into(),
        tenant: row.tenant_id.into(),
        family: row.family,
        gpu_kind: row.gpu_kind,
        workers: unsigned32(row.workers),
        ps_shards: unsigned32(row.ps_shards),
        steps_per_s: row.steps_per_s,
        samples: row.samples,
    });
    Ok(speeds.collect())
}

/// Writes the deviations of all nodes from their GPU kinds: a node that is not given has none.
/// Unchanged rows are not written. Returns the number of changed nodes.
///
/// A node that another transaction changes is skipped. The next call writes it, and no caller waits
/// for a lock here.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn set_deviations(
    conn: &mut PgConnection,
    deviations: &BTreeMap<NodeId, NodeSpeed>,
) -> Result<u64, StoreError> {
    let nodes: Vec<Uuid> = deviations.keys().map(|node| node.0).collect();
    let speeds = deviations.values();
    let percents: Vec<i32> = speeds.clone().map(|one| i32::from(one.percent)).collect();
    let jobs: Vec<i32> = speeds.map(|one| signed32(one.jobs)).collect();
    let done = sqlx::query!(
        "update node set speed_percent = wanted.percent, speed_jobs = wanted.jobs
         from (
             select n.id, given.percent, given.jobs
             from node n
             left join unnest($1::uuid[], $2::integer[], $3::integer[]) as given (id, percent, jobs) on given.id = n.id
             where n.speed_percent is distinct from given.percent or n.speed_jobs is distinct from given.jobs
             order by n.id for no key update of n skip locked) wanted
         where node.id = wanted.id",
        &nodes,
        &percents,
        &jobs
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
