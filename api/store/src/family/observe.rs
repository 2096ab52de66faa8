//! Records the speed of a job on its present placement.

use super::goodput::{self, MeasuredAt};
use super::node_speed::{self, OnNode};
use super::{HALF_LIFE_S, NEWEST_SAMPLES};
use crate::error::StoreError;
use crate::int_convert::{signed, signed32, unsigned32};
use muster_model::family::Family;
use muster_model::id::{JobId, NodeId, TenantId};
use muster_model::progress::Sample;
use muster_model::spec::JobSpec;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use time::OffsetDateTime;

/// Rule of a job whose coordinator chooses the batch.
pub(crate) struct ChosenBatches {
    /// Steps after which the job ends at the latest, if steps end it.
    pub steps: Option<u64>,
}

impl ChosenBatches {
    /// Reads the rule from the job's document; `None` for other rules.
    pub(crate) async fn of(
        conn: &mut PgConnection,
        job: JobId,
    ) -> Result<Option<Self>, StoreError> {
        let spec = sqlx::query_scalar!(
            r#"select spec as "spec: Json<JobSpec>" from job
               where id = $1 and spec #>> '{engine,batch_rule}' = 'goodput'"#,
            job.0
        )
        .fetch_optional(conn)
        .await?;
        Ok(spec.map(|spec| Self {
            steps: spec.0.max_steps(),
        }))
    }
}

/// Where the workers of a job's present revision are.
struct Placement {
    workers: u32,
    nodes: u32,
    /// One of the nodes.
    node: NodeId,
    gpu_kind: String,
}

/// Adds samples to the speeds by placement, in updates per second, or in steps if the coordinator
/// chooses the batch. The caller has locked the job's row.
///
/// A sample of another number of workers than the present one is not used: the job was resized
/// since, and its nodes are not known. Nothing is recorded while workers are on GPUs of different
/// kinds.
pub(crate) async fn observe<'a>(
    conn: &mut PgConnection,
    (tenant, job, revision): (TenantId, JobId, u64),
    samples: impl Iterator<Item = &'a Sample> + Clone,
    chosen: Option<&ChosenBatches>,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let all = samples.clone();
    let mut speeds: BTreeMap<(u32, u32), (f64, u64)> = BTreeMap::new();
    for sample in samples.filter(|sample| sample.steps_per_s > 0.0) {
        let (sum, count) = speeds
            .entry((sample.workers, sample.ps_shards))
            .or_default();
        *sum += speed_of(sample, chosen.is_some());
        *count += 1;
    }
    if speeds.is_empty() {
        return Ok(());
    }
    let Some(placement) = placement(conn, job, revision).await? else {
        return Ok(());
    };
    speeds.retain(|&(workers, _), _| workers == placement.workers);
    if speeds.is_empty() {
        return Ok(());
    }
    let Some(family) = kept_key(conn, job).await? else {
        return Ok(());
    };
    for ((workers, ps_shards), (sum, count)) in speeds {
        sqlx::query!(
            "insert into placed_speed as old
                 (job_id, gpu_kind, workers, ps_shards, nodes, tenant_id, family, steps_per_s, weight, samples, observed_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8::float8 / $9::bigint, least($9::bigint, $10::float8), $9, $11)
             on conflict (job_id, gpu_kind, workers, ps_shards, nodes) do update
                set (steps_per_s, weight) = (
                        select (old.steps_per_s * kept + $8) / (kept + $9), least(kept + $9, $10)
                        from (select old.weight * power(0.5::float8,
                                  greatest(extract(epoch from $11::timestamptz - old.observed_at), 0)::float8 / $12::float8) as kept) aged),
                    family = excluded.family, samples = old.samples + $9, observed_at = excluded.observed_at",
            job.0,
            placement.gpu_kind,
            signed32(workers),
            signed32(ps_shards),
            signed32(placement.nodes),
            tenant.0,
            family,
            sum,
            signed(count),
            NEWEST_SAMPLES,
            now,
            HALF_LIFE_S
        )
        .execute(&mut *conn)
        .await?;
        // The updates of chosen batches differ, so they do not compare nodes.
        if placement.nodes == 1 && chosen.is_none() {
            let on = OnNode {
                tenant,
                job,
                family: &family,
                node: placement.node,
                gpu_kind: &placement.gpu_kind,
                size: (workers, ps_shards),
            };
            node_speed::observe(conn, &on, (sum, count), now).await?;
        }
    }
    let Some(chosen) = chosen else {
        return Ok(());
    };
    let at = MeasuredAt {
        tenant,
        job,
        family: &family,
        gpu_kind: &placement.gpu_kind,
        workers: placement.workers,
        nodes: placement.nodes,
    };
    goodput::observe(conn, &at, all.clone(), now).await?;
    match chosen.steps {
        Some(steps) => goodput::noise(conn, (tenant, job, &family), steps, all).await,
        None => Ok(()),
    }
}

/// Speed of a sample: updates per second. The worth of an update is not part of it, because it
/// changes during the training. If the coordinator chooses the batch, the updates of one size
/// differ too, and the speed is in steps.
pub(crate) fn speed_of(sample: &Sample, chooses_batch: bool) -> f64 {
    if chooses_batch {
        sample.steps_per_s
    } else {
        sample.updates_per_s()
    }
}

/// Returns where the workers are; `None` if none is placed or their GPUs are of different kinds.
/// The kind of a node is that of its first GPU, as in the snapshot of a round
/// ([`muster_model::node::Node::gpus`]).
async fn placement(
    conn: &mut PgConnection,
    job: JobId,
    revision: u64,
) -> Result<Option<Placement>, StoreError> {
    let row = sqlx::query!(
        r#"select count(*)::integer as "workers!", count(distinct t.node_id)::integer as "nodes!", min(muster_gpu_kind(n.capacity, n.notice)) as first,
                  max(muster_gpu_kind(n.capacity, n.notice)) as last,
                  (array_agg(t.node_id))[1] as node
           from task t
           join node n on n.id = t.node_id
           where t.job_id = $1 and t.revision = $2 and t.role = 'worker' and t.released_at is null"#,
        job.0,
        signed(revision)
    )
    .fetch_one(conn)
    .await?;
    let kind = row.first.filter(|first| row.last.as_ref() == Some(first));
    Ok(kind.zip(row.node).map(|(gpu_kind, node)| Placement {
        workers: unsigned32(row.workers),
        nodes: unsigned32(row.nodes),
        node: node.into(),
        gpu_kind,
    }))
}

/// Returns the key of the job's family and keeps it in the job's row, which the caller has locked.
/// Releases before families did not store it.
async fn kept_key(conn: &mut PgConnection, job: JobId) -> Result<Option<String>, StoreError> {
    let kept = sqlx::query_scalar!("select family from job where id = $1", job.0)
        .fetch_one(&mut *conn)
        .await?;
    if kept.is_some() {
        return Ok(kept);
    }
    let key = key_of(conn, job).await?;
    sqlx::query!("update job set family = $2 where id = $1", job.0, key)
        .execute(conn)
        .await?;
    Ok(key)
}

/// Returns the key of the job's family, computed from its whole document. `None` if a document of
/// an earlier release trains nothing that has a family.
pub(crate) async fn key_of(
    conn: &mut PgConnection,
    job: JobId,
) -> Result<Option<String>, StoreError> {
    let spec = sqlx::query_scalar!(
        r#"select spec as "spec: Json<JobSpec>" from job where id = $1"#,
        job.0
    )
    .fetch_one(conn)
    .await?;
    Ok(Family::of(&spec.0).map(|family| family.key()))
}
