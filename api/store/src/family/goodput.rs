//! Times of updates and gradient noise of jobs whose coordinator chooses the batch
//! (`batch_rule: goodput`).

use super::{DAY_S, HALF_LIFE_S, LEAST_WEIGHT, NEWEST_ROWS, NEWEST_SAMPLES};
use crate::error::StoreError;
use crate::int_convert::{signed32, unsigned32};
use muster_model::id::{JobId, TenantId};
use muster_model::progress::{COURSE_PARTS, Sample, course_part};
use sqlx::PgConnection;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use uuid::Uuid;

/// Number of classes of batches per doubling.
const CLASSES_PER_DOUBLING: f64 = 4.0;
/// Maximum number of jobs of a family whose gradient noise is read, the newest.
const NEWEST_COURSES: i64 = 16;

/// Mean time of an update of a job, or of the jobs of a family, with one class of batches.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateTime {
    /// Model of the GPUs.
    pub gpu_kind: String,
    pub workers: u32,
    /// Number of nodes on which the workers were.
    pub nodes: u32,
    /// Examples of an update over all workers.
    pub batch: f64,
    pub update_s: f64,
    /// Seconds of an update that wait for the exchange.
    pub exchange_s: f64,
    /// Weight in samples. It falls with age in steps of a day.
    pub samples: f64,
}

/// Reads an [`UpdateTime`] from a row. Each statement has a row type of its own.
macro_rules! update_time {
    ($row:ident) => {
        UpdateTime {
            gpu_kind: $row.gpu_kind,
            workers: unsigned32($row.workers),
            nodes: unsigned32($row.nodes),
            batch: $row.batch,
            update_s: $row.update_s,
            exchange_s: $row.exchange_s,
            samples: $row.samples,
        }
    };
}

/// Sums over the samples of one class of batches.
#[derive(Debug, Clone, Copy, Default)]
struct ClassSum {
    batch: f64,
    update_s: f64,
    exchange_s: f64,
    samples: f64,
}

/// Where a job's samples were measured.
pub(super) struct MeasuredAt<'a> {
    pub tenant: TenantId,
    pub job: JobId,
    pub family: &'a str,
    pub gpu_kind: &'a str,
    pub workers: u32,
    pub nodes: u32,
}

/// Adds samples to the times of updates. Those of another number of workers are not used.
pub(super) async fn observe<'a>(
    conn: &mut PgConnection,
    at: &MeasuredAt<'_>,
    samples: impl Iterator<Item = &'a Sample>,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let mut classes: BTreeMap<i32, ClassSum> = BTreeMap::new();
    for sample in samples.filter(|sample| sample.workers == at.workers) {
        let Some(batch) = sample.batch().filter(|batch| *batch >= 1.0) else {
            continue;
        };
        let sum = classes.entry(class(batch)).or_default();
        sum.batch += batch;
        sum.update_s += 1.0 / sample.updates_per_s();
        sum.exchange_s += sample.exchange_ms.unwrap_or(0.0) / 1_000.0;
        sum.samples += 1.0;
    }
    for (class, sum) in classes {
        sqlx::query!(
            "insert into update_time as old
                 (job_id, gpu_kind, workers, nodes, batch_class, tenant_id, family, batch, update_s, exchange_s, weight, observed_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8::float8 / $11::float8, $9::float8 / $11, $10::float8 / $11, least($11, $12::float8), $13)
             on conflict (job_id, gpu_kind, workers, nodes, batch_class) do update
                set (batch, update_s, exchange_s, weight) = (
                        select (old.batch * kept + $8) / (kept + $11), (old.update_s * kept + $9) / (kept + $11),
                               (old.exchange_s * kept + $10) / (kept + $11), least(kept + $11, $12)
                        from (select old.weight * power(0.5::float8,
                                  greatest(extract(epoch from $13::timestamptz - old.observed_at), 0)::float8 / $14::float8) as kept) aged),
                    family = excluded.family, observed_at = excluded.observed_at",
            at.job.0,
            at.gpu_kind,
            signed32(at.workers),
            signed32(at.nodes),
            class,
            at.tenant.0,
            at.family,
            sum.batch,
            sum.update_s,
            sum.exchange_s,
            sum.samples,
            NEWEST_SAMPLES,
            now,
            HALF_LIFE_S
        )
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "a batch is at most 65,536")]
fn class(batch: f64) -> i32 {
    (batch.log2() * CLASSES_PER_DOUBLING).round() as i32
}

/// Records the gradient noise of samples over the course of a job with `steps` steps.
pub(super) async fn noise<'a>(
    conn: &mut PgConnection,
    (tenant, job, family): (TenantId, JobId, &str),
    steps: u64,
    samples: impl Iterator<Item = &'a Sample>,
) -> Result<(), StoreError> {
    let mut parts: BTreeMap<u32, f64> = BTreeMap::new();
    for sample in samples {
        let noise = sample.noise_scale.filter(|noise| noise.is_finite());
        let Some(noise) = noise else { continue };
        let known = parts
            .entry(course_part(sample.step, steps))
            .or_insert(noise);
        *known = f64::midpoint(*known, noise);
    }
    for (part, noise) in parts {
        sqlx::query!(
            "insert into course_noise as old (job_id, part, tenant_id, family, noise_scale) values ($1, $2, $3, $4, $5)
             on conflict (job_id, part) do update
                set noise_scale = (old.noise_scale + excluded.noise_scale) / 2, family = excluded.family",
            job.0,
            signed32(part),
            tenant.0,
            family,
            noise
        )
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

/// Reads the times of updates of families, ordered by kind, size and batch.
pub(super) async fn times(
    conn: &mut PgConnection,
    (tenants, families): (&[Uuid], &[String]),
    now: OffsetDateTime,
) -> Result<Vec<((TenantId, String), UpdateTime)>, StoreError> {
    let rows = sqlx::query!(
        r#"select given.tenant_id as "tenant_id!", given.family as "family!", p.gpu_kind as "gpu_kind!", p.workers as "workers!",
                  p.nodes as "nodes!", sum(p.kept) as "samples!", sum(p.kept * p.batch) / sum(p.kept) as "batch!",
                  sum(p.kept * p.update_s) / sum(p.kept) as "update_s!", sum(p.kept * p.exchange_s) / sum(p.kept) as "exchange_s!"
           from unnest($1::uuid[], $2::text[]) as given (tenant_id, family)
           cross join lateral (
               select *, weight * power(0.5::float8, floor(greatest(extract(epoch from $3::timestamptz - observed_at), 0)::float8 / $5) * $5 / $6::float8) as kept
               from update_time
               where tenant_id = any(muster_family_tenants(given.tenant_id)) and family = given.family
               order by job_id desc limit $4) p
           where p.kept > 0
           group by given.tenant_id, given.family, p.gpu_kind, p.workers, p.nodes, p.batch_class
           having sum(p.kept) >= $7::float8
           order by given.tenant_id, given.family, p.gpu_kind, p.workers, p.nodes, p.batch_class"#,
        tenants,
        families,
        now,
        NEWEST_ROWS,
        DAY_S,
        HALF_LIFE_S,
        LEAST_WEIGHT
    )
    .fetch_all(conn)
    .await?;
    let times = rows.into_iter().map(|row| {
        let time = update_time!(row);
        ((row.tenant_id.into(), row.family), time)
    });
    Ok(times.collect())
}

/// Reads the gradient noise of families by part of the course: the mean over their newest jobs, in
/// examples.
pub(super) async fn noises(
    conn: &mut PgConnection,
    (tenants, families): (&[Uuid], &[String]),
) -> Result<Vec<((TenantId, String), (u32, f64))>, StoreError> {
    let rows = sqlx::query!(
        r#"select given.tenant_id as "tenant_id!", given.family as "family!", p.part as "part!", avg(p.noise_scale) as "noise_scale!"
           from unnest($1::uuid[], $2::text[]) as given (tenant_id, family)
           cross join lateral (
               select part, noise_scale from course_noise
               where tenant_id = any(muster_family_tenants(given.tenant_id)) and family = given.family
               order by job_id desc limit $3) p
           group by given.tenant_id, given.family, p.part
           order by given.tenant_id, given.family, p.part"#,
        tenants,
        families,
        NEWEST_COURSES * i64::from(COURSE_PARTS)
    )
    .fetch_all(conn)
    .await?;
    let noises = rows.into_iter().map(|row| {
        let noise = (unsigned32(row.part), row.noise_scale);
        ((row.tenant_id.into(), row.family), noise)
    });
    Ok(noises.collect())
}

/// Reads the times of updates of jobs, ordered by job, kind, size and batch.
pub(crate) async fn times_of_jobs(
    conn: &mut PgConnection,
    jobs: &[Uuid],
    now: OffsetDateTime,
) -> Result<Vec<(JobId, UpdateTime)>, StoreError> {
    let rows = sqlx::query!(
        r#"select p.job_id as "job_id!", p.gpu_kind as "gpu_kind!", p.workers as "workers!", p.nodes as "nodes!",
                  p.batch as "batch!", p.update_s as "update_s!", p.exchange_s as "exchange_s!",
                  p.weight * power(0.5::float8, floor(greatest(extract(epoch from $2::timestamptz - p.observed_at), 0)::float8 / $3) * $3 / $4::float8) as "samples!"
           from unnest($1::uuid[]) as given (id)
           join update_time p on p.job_id = given.id
           order by p.job_id, p.gpu_kind, p.workers, p.nodes, p.batch_class"#,
        jobs,
        now,
        DAY_S,
        HALF_LIFE_S
    )
    .fetch_all(conn)
    .await?;
    let times = rows.into_iter().map(|row| {
        let time = update_time!(row);
        (row.job_id.into(), time)
    });
    Ok(times.collect())
}
