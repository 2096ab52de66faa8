//! Limits of tenants. They are checked in the transaction that opens something.

use crate::error::StoreError;
use crate::int_convert::unsigned;
use muster_model::id::{TenantId, UserId};
use muster_model::spec::JobSpec;
use muster_model::tenant::{LimitsSet, LimitsUse, TenantLimits};
use serde::Deserialize;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use time::OffsetDateTime;

/// SQLSTATE that the SQL function `muster_refuse` raises.
const EXCEEDED: &str = "MU001";

/// A limit that the change would exceed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, thiserror::Error)]
#[error("limit {limit} of the tenant: {used} of {most} are used, and {asked} more are asked for")]
pub struct TenantLimitExceeded {
    /// Name of a field of [`TenantLimits`].
    pub limit: String,
    pub most: u64,
    pub used: u64,
    pub asked: u64,
}

/// Remaining number of jobs and bytes of documents that may be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenWorkAllowance {
    pub jobs: u64,
    pub bytes: u64,
}

impl OpenWorkAllowance {
    /// Subtracts a job with a document of this size. Returns `false` and subtracts nothing if it
    /// does not fit.
    pub fn take(&mut self, bytes: u64) -> bool {
        let fits = self.jobs > 0 && self.bytes >= bytes;
        if fits {
            self.jobs -= 1;
            self.bytes -= bytes;
        }
        fits
    }
}

/// Prevents other transactions from opening anything for the tenant until this one ends.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn hold(conn: &mut PgConnection, tenant: TenantId) -> Result<(), StoreError> {
    sqlx::query!("select muster_hold_limits($1) as held", tenant.0)
        .fetch_one(conn)
        .await?;
    Ok(())
}

/// Returns the limits of a tenant; the defaults if the tenant is not in scope.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn of(conn: &mut PgConnection, tenant: TenantId) -> Result<TenantLimits, StoreError> {
    let set = set(conn, tenant).await?;
    Ok(set.unwrap_or_default().or_default())
}

async fn set(conn: &mut PgConnection, tenant: TenantId) -> Result<Option<LimitsSet>, StoreError> {
    let row = sqlx::query_scalar!(
        r#"select limits as "limits: Json<LimitsSet>" from tenant where id = $1"#,
        tenant.0
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| row.0))
}

/// Returns the limits of all tenants in scope that have any set.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn all(conn: &mut PgConnection) -> Result<BTreeMap<TenantId, LimitsSet>, StoreError> {
    let rows = sqlx::query!(
        r#"select id, limits as "limits: Json<LimitsSet>" from tenant where limits <> '{}' and deleted_at is null"#
    )
    .fetch_all(conn)
    .await?;
    let set = rows.into_iter().map(|row| (row.id.into(), row.limits.0));
    Ok(set.collect())
}

/// Writes the limits that an administrator has set. Needs `tenant_scope::admin`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn write(
    conn: &mut PgConnection,
    tenant: TenantId,
    set: &LimitsSet,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update tenant set limits = $2 where id = $1",
        tenant.0,
        Json(set) as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns what counts against the limits of the tenant in scope; of all tenants with
/// `tenant_scope::admin`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn used(
    conn: &mut PgConnection,
    now: OffsetDateTime,
) -> Result<BTreeMap<TenantId, LimitsUse>, StoreError> {
    let rows = sqlx::query!(
        r#"select tenant_id as "tenant_id!", open_jobs as "open_jobs!", open_job_bytes as "open_job_bytes!",
                  open_studies as "open_studies!", tokens as "tokens!"
           from muster_limits_use($1)"#,
        now
    )
    .fetch_all(conn)
    .await?;
    let used = rows.into_iter().map(|row| {
        let used = LimitsUse {
            open_jobs: unsigned(row.open_jobs),
            open_job_bytes: unsigned(row.open_job_bytes),
            open_studies: unsigned(row.open_studies),
            tokens: unsigned(row.tokens),
        };
        (row.tenant_id.into(), used)
    });
    Ok(used.collect())
}

/// Returns what the scheduler may open for a tenant, according to committed rows. Another
/// transaction may use it first, so the caller checks again while it holds the limits.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn room(
    conn: &mut PgConnection,
    tenant: TenantId,
) -> Result<OpenWorkAllowance, StoreError> {
    let limits = of(conn, tenant).await?;
    let row = sqlx::query!(
        r#"select jobs as "jobs!", bytes as "bytes!" from muster_open_work($1)"#,
        tenant.0
    )
    .fetch_one(conn)
    .await?;
    Ok(OpenWorkAllowance {
        jobs: limits.open_jobs.saturating_sub(unsigned(row.jobs)),
        bytes: limits.open_job_bytes.saturating_sub(unsigned(row.bytes)),
    })
}

/// Checks whether the tenant in scope may open one more study.
///
/// # Errors
/// [`StoreError::Exceeded`], [`StoreError::Statement`].
pub async fn admit_study(
    conn: &mut PgConnection,
    tenant: TenantId,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    hold(conn, tenant).await?;
    let limits = of(conn, tenant).await?;
    let used = used(conn, now).await?.remove(&tenant).unwrap_or_default();
    below("open_studies", limits.open_studies, used.open_studies)
}

/// Checks whether the tenant in scope may have one more token, for this user.
///
/// # Errors
/// [`StoreError::Exceeded`], [`StoreError::Statement`].
pub async fn admit_token(
    conn: &mut PgConnection,
    tenant: TenantId,
    user: UserId,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    hold(conn, tenant).await?;
    let limits = of(conn, tenant).await?;
    let row = sqlx::query!(
        r#"select count(*) as "all!", count(*) filter (where user_id = $2) as "own!" from api_token
           where tenant_id = $1 and revoked_at is null and (expires_at is null or expires_at > $3)"#,
        tenant.0,
        user.0,
        now
    )
    .fetch_one(conn)
    .await?;
    below("tokens", limits.tokens, unsigned(row.all))?;
    below("user_tokens", limits.user_tokens, unsigned(row.own))
}

/// Checks whether the tenant in scope may open an interactive job with these GPUs. Its GPUs count
/// from the submission, so that a job that waits starts without a further check.
///
/// # Errors
/// [`StoreError::Exceeded`], [`StoreError::Statement`].
pub async fn admit_interactive(
    conn: &mut PgConnection,
    tenant: TenantId,
    gpus: u32,
) -> Result<(), StoreError> {
    hold(conn, tenant).await?;
    let most = of(conn, tenant).await?.interactive_gpus;
    // The index `job_interactive_open` has these conditions.
    let used = sqlx::query_scalar!(
        r#"select coalesce(sum((spec #>> '{resources,worker,gpus}')::bigint), 0)::bigint as "used!" from job
           where tenant_id = $1 and deleted_at is null and spec -> 'interactive' is not null
             and phase not in ('succeeded', 'failed', 'cancelled')"#,
        tenant.0
    )
    .fetch_one(conn)
    .await?;
    let (used, asked) = (unsigned(used), u64::from(gpus));
    if used.saturating_add(asked) <= most {
        return Ok(());
    }
    Err(StoreError::Exceeded(TenantLimitExceeded {
        limit: "interactive_gpus".to_owned(),
        most,
        used,
        asked,
    }))
}

/// Refuses one more if `used` has reached the limit.
///
/// # Errors
/// [`StoreError::Exceeded`].
pub(crate) fn below(limit: &str, most: u64, used: u64) -> Result<(), StoreError> {
    if used < most {
        return Ok(());
    }
    Err(StoreError::Exceeded(TenantLimitExceeded {
        limit: limit.to_owned(),
        most,
        used,
        asked: 1,
    }))
}

/// Converts the error of a statement in which `muster_admit_job` may have refused the job.
pub(crate) fn refused(error: sqlx::Error) -> StoreError {
    let told = match &error {
        sqlx::Error::Database(told) if told.code().as_deref() == Some(EXCEEDED) => told,
        _ => return StoreError::Statement(error),
    };
    match serde_json::from_str(told.message()) {
        Ok(exceeded) => StoreError::Exceeded(exceeded),
        Err(source) => StoreError::Decode {
            what: "a refusal".to_owned(),
            source,
        },
    }
}

/// Returns the counted length of a job's document, in bytes.
#[must_use]
pub fn document_bytes(document: &JobSpec) -> u64 {
    let text = serde_json::to_vec(document).expect("a document is JSON");
    text.len() as u64
}
