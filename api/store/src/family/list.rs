//! What is known of a tenant's families, and how it is forgotten.

use super::{HALF_LIFE_S, LEAST_WEIGHT, NEWEST_ROWS};
use crate::error::StoreError;
use crate::int_convert::{unsigned, unsigned32};
use muster_model::family::Family;
use muster_model::id::JobId;
use muster_model::spec::JobSpec;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use time::OffsetDateTime;

/// A family of the tenant in scope.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyRow {
    /// Key of the family.
    pub family: String,
    /// Newest job with measurements; the place in the list.
    pub newest_job: JobId,
    /// Short description, from the document of the family's newest job.
    pub title: String,
    /// Number of jobs with measurements, deleted ones included until their rows are removed.
    pub jobs: u64,
    /// Ordered by kind and size.
    pub speeds: Vec<FamilySpeedRow>,
}

/// Mean speed of a family on one placement.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilySpeedRow {
    /// Model of the GPUs.
    pub gpu_kind: String,
    pub workers: u32,
    pub ps_shards: u32,
    /// Number of nodes on which the workers were.
    pub nodes: u32,
    /// Updates per second, as rounds use it.
    pub steps_per_s: f64,
    /// Number of jobs in the mean.
    pub jobs: u64,
    /// Number of samples, however old.
    pub samples: u64,
    /// Weight in samples, by age.
    pub weight: f64,
    pub observed_at: OffsetDateTime,
}

/// Returns at most `most` families of the tenant in scope, the one with the newest job first. They
/// follow the family whose newest job is `after`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(
    conn: &mut PgConnection,
    after: Option<JobId>,
    most: u32,
    now: OffsetDateTime,
) -> Result<Vec<FamilyRow>, StoreError> {
    let newest = sqlx::query!(
        r#"select found.family as "family!", found.jobs as "jobs!", found.newest as "newest!", j.spec as "spec!: Json<JobSpec>"
           from (
               select family, count(distinct job_id) as jobs, max(job_id::text)::uuid as newest
               from placed_speed
               group by family having $1::uuid is null or max(job_id::text) < $1::uuid::text
               order by max(job_id::text) desc limit $2) found
           join job j on j.id = found.newest
           order by found.newest desc"#,
        after.map(|after| after.0),
        i64::from(most)
    )
    .fetch_all(&mut *conn)
    .await?;
    let keys: Vec<String> = newest.iter().map(|row| row.family.clone()).collect();
    let mut speeds = speeds(conn, &keys, now).await?;
    let families = newest.into_iter().map(|row| FamilyRow {
        title: Family::of(&row.spec.0).map_or_else(String::new, |one| one.title().to_owned()),
        jobs: unsigned(row.jobs),
        newest_job: row.newest.into(),
        speeds: speeds.remove(&row.family).unwrap_or_default(),
        family: row.family,
    });
    Ok(families.collect())
}

async fn speeds(
    conn: &mut PgConnection,
    families: &[String],
    now: OffsetDateTime,
) -> Result<BTreeMap<String, Vec<FamilySpeedRow>>, StoreError> {
    let rows = sqlx::query!(
        r#"select given.family as "family!", p.gpu_kind as "gpu_kind!", p.workers as "workers!", p.ps_shards as "ps_shards!", p.nodes as "nodes!",
                  count(*) as "jobs!", sum(p.samples)::bigint as "samples!", sum(p.kept) as "weight!", max(p.observed_at) as "observed_at!",
                  exp(sum(p.kept * ln(p.steps_per_s)) / sum(p.kept)) as "steps_per_s!"
           from unnest($1::text[]) as given (family)
           cross join lateral (
               select *, weight * power(0.5::float8, greatest(extract(epoch from $2::timestamptz - observed_at), 0)::float8 / $4::float8) as kept
               from placed_speed where family = given.family order by job_id desc limit $3) p
           where p.kept > 0 and p.steps_per_s > 0
           group by given.family, p.gpu_kind, p.workers, p.ps_shards, p.nodes
           having sum(p.kept) >= $5::float8
           order by given.family, p.gpu_kind, p.workers, p.ps_shards, p.nodes"#,
        families,
        now,
        NEWEST_ROWS,
        HALF_LIFE_S,
        LEAST_WEIGHT
    )
    .fetch_all(conn)
    .await?;
    let mut speeds: BTreeMap<String, Vec<FamilySpeedRow>> = BTreeMap::new();
    for row in rows {
        speeds.entry(row.family).or_default().push(FamilySpeedRow {
            gpu_kind: row.gpu_kind,
            workers: unsigned32(row.workers),
            ps_shards: unsigned32(row.ps_shards),
            nodes: unsigned32(row.nodes),
            steps_per_s: row.steps_per_s,
            jobs: unsigned(row.jobs),
            samples: unsigned(row.samples),
            weight: row.weight,
            observed_at: row.observed_at,
        });
    }
    Ok(speeds)
}

/// Deletes what is known of a family of the tenant in scope, and returns the number of jobs whose
/// measurements were deleted. Running jobs keep their own speeds by size.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn forget(conn: &mut PgConnection, family: &str) -> Result<u64, StoreError> {
    let jobs = sqlx::query_scalar!(
        r#"with times as (delete from update_time where family = $1),
                noises as (delete from course_noise where family = $1),
                on_nodes as (delete from node_speed where family = $1),
                gone as (delete from placed_speed where family = $1 returning job_id)
           select count(distinct job_id) as "jobs!" from gone"#,
        family
    )
    .fetch_one(conn)
    .await?;
    Ok(unsigned(jobs))
}
