//! Loads the speeds by placement for a round.

use super::goodput::{self, UpdateTime};
use super::{DAY_S, HALF_LIFE_S, LEAST_WEIGHT, NEWEST_ROWS};
use crate::error::StoreError;
use crate::int_convert::unsigned32;
use muster_model::id::{JobId, TenantId};
use sqlx::PgConnection;
use std::collections::{BTreeMap, BTreeSet};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// Time after which the families are read again. A round between uses those of an earlier round.
const REFRESH: Duration = Duration::seconds(5);
/// Time after which the tenants' families that show how GPU kinds compare are chosen again.
const REFRESH_COMPARING: Duration = Duration::seconds(60);
/// Maximum number of rows of a tenant among which these families are searched, the newest.
const COMPARED_ROWS: i64 = 2_000;
/// Maximum number of these families per tenant, the newest.
const COMPARING_FAMILIES: i64 = 16;

/// Mean speed of a job, or of the jobs of a family, on one placement.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedSpeed {
    /// Model of the GPUs.
    pub gpu_kind: String,
    pub workers: u32,
    pub ps_shards: u32,
    /// Number of nodes on which the workers were.
    pub nodes: u32,
    /// Updates per second.
    pub steps_per_s: f64,
    /// Weight in samples. It falls with age in steps of a day, so that the snapshots of rounds
    /// without new samples are equal.
    pub samples: f64,
}

/// What is known of one family.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilySpeeds {
    pub tenant: TenantId,
    /// Key of the family.
    pub family: String,
    /// Ordered by kind and size.
    pub speeds: Vec<PlacedSpeed>,
    /// Times of updates, where the coordinators choose the batch.
    pub times: Vec<UpdateTime>,
    /// Gradient noise in examples by part of the course, in order.
    pub noises: Vec<(u32, f64)>,
    /// Sums over its newest jobs.
    pub restarts: RestartTotals,
}

/// Sums over the measured stops and starts of a job, or of the jobs of a family.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RestartTotals {
    /// Number of completed stops that were ordered while the job ran.
    pub stops: u32,
    /// Sum of the times from the order to the exit of the last task, in seconds.
    pub stop_s: f64,
    /// Number of starts after which the coordinator reported that it trains.
    pub starts: u32,
    /// Sum of the times from the start to that report, in seconds.
    pub start_s: f64,
    /// Number of these starts that resumed from a checkpoint.
    pub resumed: u32,
    /// Number of steps that were repeated.
    pub lost_steps: f64,
}

/// What is known of a family that was read.
#[derive(Debug, Clone, Default)]
struct KnownFamily {
    speeds: Vec<PlacedSpeed>,
    times: Vec<UpdateTime>,
    noises: Vec<(u32, f64)>,
    restarts: RestartTotals,
}

/// Families read by earlier rounds.
#[derive(Debug, Default)]
pub(crate) struct FamilyCache {
    read_at: Option<OffsetDateTime>,
    known: BTreeMap<(TenantId, String), KnownFamily>,
    compared_at: Option<OffsetDateTime>,
    comparing: BTreeMap<TenantId, Vec<String>>,
}

impl FamilyCache {
    /// Returns what is known of `wanted` families, and of further families of their tenants that
    /// were measured on several kinds if `compares_kinds`. Families without measurements are
    /// omitted. Ordered by tenant and key.
    pub(crate) async fn load(
        &mut self,
        conn: &mut PgConnection,
        mut wanted: BTreeSet<(TenantId, String)>,
        compares_kinds: bool,
        now: OffsetDateTime,
    ) -> Result<Vec<FamilySpeeds>, StoreError> {
        if compares_kinds {
            let tenants = wanted.iter().map(|(tenant, _)| *tenant).collect();
            wanted.extend(self.comparing(conn, tenants, now).await?);
        }
        if self.read_at.is_none_or(|at| now - at >= REFRESH) {
            self.known.clear();
            self.read_at = Some(now);
        }
        self.known.retain(|family, _| wanted.contains(family));
        let missing: Vec<_> = wanted
            .into_iter()
            .filter(|family| !self.known.contains_key(family))
            .collect();
        if !missing.is_empty() {
            self.known.extend(read(conn, missing, now).await?);
        }
        let known = self.known.iter();
        let known = known.filter(|(_, known)| !known.speeds.is_empty());
        let families = known.map(|((tenant, family), known)| FamilySpeeds {
            tenant: *tenant,
            family: family.clone(),
            speeds: known.speeds.clone(),
            times: known.times.clone(),
            noises: known.noises.clone(),
            restarts: known.restarts,
        });
        Ok(families.collect())
    }

    /// Returns families of these tenants that were measured on several kinds of GPUs.
    async fn comparing(
        &mut self,
        conn: &mut PgConnection,
        tenants: BTreeSet<TenantId>,
        now: OffsetDateTime,
    ) -> Result<Vec<(TenantId, String)>, StoreError> {
        if self
            .compared_at
            .is_none_or(|at| now - at >= REFRESH_COMPARING)
        {
            self.comparing.clear();
            self.compared_at = Some(now);
        }
        let missing: Vec<Uuid> = tenants
            .iter()
            .filter(|tenant| !self.comparing.contains_key(tenant))
            .map(|tenant| tenant.0)
            .collect();
        if !missing.is_empty() {
            let rows = sqlx::query!(
                r#"select given.tenant_id as "tenant_id!", found.family as "family!"
                   from unnest($1::uuid[]) as given (tenant_id)
                   cross join lateral (
                       select family from (
                           select family, gpu_kind, job_id from placed_speed
                           where tenant_id = given.tenant_id order by job_id desc limit $2) newest
                       group by family having count(distinct gpu_kind) > 1
                       order by max(job_id::text) desc limit $3) found"#,
                &missing,
                COMPARED_ROWS,
                COMPARING_FAMILIES
            )
            .fetch_all(conn)
            .await?;
            for tenant in missing {
                self.comparing.entry(tenant.into()).or_default();
            }
            for row in rows {
                let of_tenant = self.comparing.entry(row.tenant_id.into()).or_default();
                of_tenant.push(row.family);
            }
        }
        let of_tenants = tenants.into_iter().flat_map(|tenant| {
            let families = self.comparing.get(&tenant).into_iter().flatten();
            families.map(move |family| (tenant, family.clone()))
        });
        Ok(of_tenants.collect())
    }
}

/// Reads families; one without measurements has no speeds.
async fn read(
    conn: &mut PgConnection,
    wanted: Vec<(TenantId, String)>,
    now: OffsetDateTime,
) -> Result<BTreeMap<(TenantId, String), KnownFamily>, StoreError> {
    let tenants: Vec<Uuid> = wanted.iter().map(|(tenant, _)| tenant.0).collect();
    let families: Vec<String> = wanted.iter().map(|(_, family)| family.clone()).collect();
    let rows = sqlx::query!(
        r#"select given.tenant_id as "tenant_id!", given.family as "family!", p.gpu_kind as "gpu_kind!", p.workers as "workers!",
                  p.ps_shards as "ps_shards!", p.nodes as "nodes!", sum(p.kept) as "weight!",
                  exp(sum(p.kept * ln(p.steps_per_s)) / sum(p.kept)) as "steps_per_s!"
           from unnest($1::uuid[], $2::text[]) as given (tenant_id, family)
           cross join lateral (
               select gpu_kind, workers, ps_shards, nodes, steps_per_s,
                      weight * power(0.5::float8, floor(greatest(extract(epoch from $3::timestamptz - observed_at), 0)::float8 / $5) * $5 / $6::float8) as kept
               from placed_speed
               where tenant_id = any(muster_family_tenants(given.tenant_id)) and family = given.family
               order by job_id desc limit $4) p
           where p.kept > 0 and p.steps_per_s > 0
           group by given.tenant_id, given.family, p.gpu_kind, p.workers, p.ps_shards, p.nodes
           having sum(p.kept) >= $7::float8
           order by given.tenant_id, given.family, p.gpu_kind, p.workers, p.ps_shards, p.nodes"#,
        &tenants,
        &families,
        now,
        NEWEST_ROWS,
        DAY_S,
        HALF_LIFE_S,
        LEAST_WEIGHT
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut read = restarts(conn, &tenants, &families).await?;
    for row in rows {
        let of_family = read.entry((row.tenant_id.into(), row.family)).or_default();
        of_family.speeds.push(PlacedSpeed {
            gpu_kind: row.gpu_kind,
            workers: unsigned32(row.workers),
            ps_shards: unsigned32(row.ps_shards),
            nodes: unsigned32(row.nodes),
            steps_per_s: row.steps_per_s,
            samples: row.weight,
        });
    }
    let given = (&*tenants, &*families);
    for (family, time) in goodput::times(conn, given, now).await? {
        read.entry(family).or_default().times.push(time);
    }
    for (family, noise) in goodput::noises(conn, given).await? {
        read.entry(family).or_default().noises.push(noise);
    }
    Ok(read)
}

/// Reads the stops and starts of families; each family has an entry.
async fn restarts(
    conn: &mut PgConnection,
    tenants: &[Uuid],
    families: &[String],
) -> Result<BTreeMap<(TenantId, String), KnownFamily>, StoreError> {
    let rows = sqlx::query!(
        r#"select given.tenant_id as "tenant_id!", given.family as "family!",
                  coalesce(sum(j.stops), 0)::bigint as "stops!", coalesce(sum(j.stop_s), 0)::float8 as "stop_s!",
                  coalesce(sum(j.starts), 0)::bigint as "starts!", coalesce(sum(j.start_s), 0)::float8 as "start_s!",
                  coalesce(sum(j.resumed), 0)::bigint as "resumed!", coalesce(sum(j.lost_steps), 0)::float8 as "lost_steps!"
           from unnest($1::uuid[], $2::text[]) as given (tenant_id, family)
           left join lateral (
               select distinct job_id from (
                   select job_id from placed_speed
                   where tenant_id = any(muster_family_tenants(given.tenant_id)) and family = given.family
                   order by job_id desc limit $3) newest) p on true
           left join job j on j.id = p.job_id
           group by given.tenant_id, given.family"#,
        tenants,
        families,
        NEWEST_ROWS
    )
    .fetch_all(conn)
    .await?;
    let known = rows.into_iter().map(|row| {
        let restarts = RestartTotals {
            stops: count(row.stops),
            stop_s: row.stop_s,
            starts: count(row.starts),
            start_s: row.start_s,
            resumed: count(row.resumed),
            lost_steps: row.lost_steps,
        };
        let known = KnownFamily {
            restarts,
            ..KnownFamily::default()
        };
        ((row.tenant_id.into(), row.family), known)
    });
    Ok(known.collect())
}

/// A sum of counts, which are at least 0.
fn count(sum: i64) -> u32 {
    u32::try_from(sum.max(0)).unwrap_or(u32::MAX)
}

/// Returns the speeds of jobs, ordered by job, kind and size.
pub(crate) async fn of_jobs(
    conn: &mut PgConnection,
    jobs: &[Uuid],
    now: OffsetDateTime,
) -> Result<Vec<(JobId, PlacedSpeed)>, StoreError> {
    let rows = sqlx::query!(
        r#"select p.job_id as "job_id!", p.gpu_kind as "gpu_kind!", p.workers as "workers!", p.ps_shards as "ps_shards!",
                  p.nodes as "nodes!", p.steps_per_s as "steps_per_s!",
                  p.weight * power(0.5::float8, floor(greatest(extract(epoch from $2::timestamptz - p.observed_at), 0)::float8 / $3) * $3 / $4::float8) as "samples!"
           from unnest($1::uuid[]) as given (id)
           join placed_speed p on p.job_id = given.id
           order by p.job_id, p.gpu_kind, p.workers, p.ps_shards, p.nodes"#,
        jobs,
        now,
        DAY_S,
        HALF_LIFE_S
    )
    .fetch_all(conn)
    .await?;
    let speeds = rows.into_iter().map(|row| {
        let speed = PlacedSpeed {
            gpu_kind: row.gpu_kind,
            workers: unsigned32(row.workers),
            ps_shards: unsigned32(row.ps_shards),
            nodes: unsigned32(row.nodes),
            steps_per_s: row.steps_per_s,
            samples: row.samples,
        };
        (row.job_id.into(), speed)
    });
    // Old rows stay, with little weight. Without them the speeds by size, which do not age, would
    // count instead.
    Ok(speeds.collect())
}
