//! Tenants. Listing and changing them needs `tenant_scope::admin`; without it only the tenant in
//! scope is visible.

use crate::error::StoreError;
use crate::int_convert::{signed32, unsigned, unsigned32};
use muster_model::id::TenantId;
use muster_model::tenant::{
    Tenant, TenantPods, TenantPodsChange, TenantPreemption, TenantPreemptionChange,
};
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use uuid::Uuid;

struct TenantSqlRow {
    id: Uuid,
    name: String,
    gpu_quota: Option<i32>,
    weight: f64,
    pods: Json<TenantPods>,
    preemption: Json<TenantPreemption>,
    shares_families: bool,
    interactive: bool,
}

impl From<TenantSqlRow> for Tenant {
    fn from(row: TenantSqlRow) -> Self {
        Self {
            id: row.id.into(),
            name: row.name,
            gpu_quota: row.gpu_quota.map(unsigned32),
            weight: row.weight,
            pods: row.pods.0,
            preemption: row.preemption.0,
            shares_families: row.shares_families,
            interactive: row.interactive,
        }
    }
}

/// Stores a tenant.
///
/// # Errors
/// [`StoreError::Statement`]; its `is_taken` is true if the name exists.
pub async fn create(
    conn: &mut PgConnection,
    tenant: &Tenant,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into tenant (id, name, gpu_quota, weight, pods, created_at, preemption, shares_families, interactive) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        tenant.id.0,
        tenant.name,
        tenant.gpu_quota.map(signed32),
        tenant.weight,
        Json(&tenant.pods) as _,
        now,
        Json(&tenant.preemption) as _,
        tenant.shares_families,
        tenant.interactive
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns all visible tenants, ordered by name.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(conn: &mut PgConnection) -> Result<Vec<Tenant>, StoreError> {
    let rows = sqlx::query_as!(
        TenantSqlRow,
        r#"select id, name, gpu_quota, weight, pods as "pods: Json<TenantPods>", preemption as "preemption: Json<TenantPreemption>", shares_families, interactive from tenant where deleted_at is null order by name"#
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Tenant::from).collect())
}

/// Returns a tenant; `None` if it is not visible or was deleted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn get(conn: &mut PgConnection, id: TenantId) -> Result<Option<Tenant>, StoreError> {
    let row = sqlx::query_as!(
        TenantSqlRow,
        r#"select id, name, gpu_quota, weight, pods as "pods: Json<TenantPods>", preemption as "preemption: Json<TenantPreemption>", shares_families, interactive from tenant where id = $1 and deleted_at is null"#,
        id.0
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Tenant::from))
}

/// Returns the tenant of this name; `None` if it is not visible or was deleted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn by_name(conn: &mut PgConnection, name: &str) -> Result<Option<Tenant>, StoreError> {
    let row = sqlx::query_as!(
        TenantSqlRow,
        r#"select id, name, gpu_quota, weight, pods as "pods: Json<TenantPods>", preemption as "preemption: Json<TenantPreemption>", shares_families, interactive from tenant where name = $1 and deleted_at is null"#,
        name
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Tenant::from))
}

/// Does the same as [`by_name`], and locks the row. Until the transaction ends no other transaction
/// begins work for the tenant; those that have begun are awaited. Needs `tenant_scope::admin`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn closed_by_name(
    conn: &mut PgConnection,
    name: &str,
) -> Result<Option<Tenant>, StoreError> {
    let row = sqlx::query_as!(
        TenantSqlRow,
        r#"select id, name, gpu_quota, weight, pods as "pods: Json<TenantPods>", preemption as "preemption: Json<TenantPreemption>", shares_families, interactive from tenant where name = $1 and deleted_at is null for update"#,
        name
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Tenant::from))
}

/// Current use of a tenant's jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InUse {
    /// Number of GPUs or CPU slots.
    pub gpus: u32,
    /// Number of jobs that hold any.
    pub jobs: u32,
}

/// Returns the use of each tenant that holds anything: the tenant in scope, or all tenants with
/// `tenant_scope::admin`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn in_use(conn: &mut PgConnection) -> Result<BTreeMap<TenantId, InUse>, StoreError> {
    let rows = sqlx::query!(
        r#"select tenant_id as "tenant_id!", gpus as "gpus!", jobs as "jobs!" from muster_tenant_use()"#
    )
    .fetch_all(conn)
    .await?;
    let used = rows.into_iter().map(|row| {
        let gpus = u32::try_from(row.gpus).unwrap_or(u32::MAX);
        let jobs = u32::try_from(row.jobs).unwrap_or(u32::MAX);
        (row.tenant_id.into(), InUse { gpus, jobs })
    });
    Ok(used.collect())
}

/// Returns the numbers of jobs and studies of the tenant in scope that have not ended. A finished
/// study with waiting orders counts, because they may restart it.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn open_work(conn: &mut PgConnection) -> Result<(u64, u64), StoreError> {
    let row = sqlx::query!(
        r#"select (select count(*) from job where phase not in ('succeeded', 'failed', 'cancelled')) as "jobs!",
                  (select count(*) from study s
                   where s.deleted_at is null
                     and (s.phase <> 'finished' or exists (select from study_order o where o.study_id = s.id))) as "studies!""#
    )
    .fetch_one(conn)
    .await?;
    Ok((unsigned(row.jobs), unsigned(row.studies)))
}

/// Deletes a tenant: its tokens are refused and lists omit it. Its rows are kept. Returns `false`
/// if it does not exist or was deleted before. Needs `tenant_scope::admin`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn delete(
    conn: &mut PgConnection,
    id: TenantId,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "update tenant set deleted_at = $2 where id = $1 and deleted_at is null",
        id.0,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Restores a deleted tenant with all its rows and returns its id. Returns `None` if no tenant of
/// that name was deleted. The caller must revoke its tokens (`token::revoke_all`), because the
/// deletion made them invalid.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn revive(conn: &mut PgConnection, name: &str) -> Result<Option<TenantId>, StoreError> {
    let id = sqlx::query_scalar!(
        "update tenant set deleted_at = null where name = $1 and deleted_at is not null returning id",
        name
    )
    .fetch_optional(conn)
    .await?;
    Ok(id.map(TenantId::from))
}

/// Change of a tenant; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantUpdate {
    /// `Some(None)` removes the limit.
    pub gpu_quota: Option<Option<u32>>,
    pub weight: Option<f64>,
    /// Given fields replace those of the stored row.
    pub pods: Option<TenantPodsChange>,
    /// Given caps replace those of the stored row.
    pub preemption: Option<TenantPreemptionChange>,
    pub shares_families: Option<bool>,
    pub interactive: Option<bool>,
}

/// Changes a tenant and wakes the next round. Returns the changed tenant; `None` if it does not
/// exist or may not be changed.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn change(
    conn: &mut PgConnection,
    id: TenantId,
    change: TenantUpdate,
) -> Result<Option<Tenant>, StoreError> {
    let row = sqlx::query_as!(
        TenantSqlRow,
        r#"with changed as (
             update tenant set gpu_quota = case when $2 then $3 else gpu_quota end, weight = coalesce($4, weight), pods = pods || coalesce($5::jsonb, '{}'),
                    preemption = jsonb_strip_nulls(preemption || coalesce($6::jsonb, '{}')), shares_families = coalesce($7, shares_families), interactive = coalesce($8, interactive)
             where id = $1 and deleted_at is null returning id, name, gpu_quota, weight, pods, preemption, shares_families, interactive),
              woken as (select pg_notify('muster_rounds', '') from changed)
         select id as "id!", name as "name!", gpu_quota, weight as "weight!", pods as "pods!: Json<TenantPods>",
                preemption as "preemption!: Json<TenantPreemption>", shares_families as "shares_families!", interactive as "interactive!" from changed left join woken on true"#,
        id.0,
        change.gpu_quota.is_some(),
        change.gpu_quota.flatten().map(signed32),
        change.weight,
        change.pods.as_ref().map(Json) as _,
        change.preemption.as_ref().map(Json) as _,
        change.shares_families,
        change.interactive
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Tenant::from))
}
