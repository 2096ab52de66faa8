//! Secrets of tenants. This crate has no key: it stores and returns ciphertexts.

use crate::error::StoreError;
use crate::event;
use crate::int_convert::{signed, unsigned};
use crate::limit;
use crate::membership::SecretHash;
use muster_model::actor::Actor;
use muster_model::event::Event;
use muster_model::id::{TaskId, TenantId};
use muster_model::spec::SecretRef;
use muster_model::view::SecretView;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeSet;
use time::OffsetDateTime;

/// Encrypted value of one version of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRow {
    pub name: String,
    pub version: u64,
    pub key_id: String,
    pub nonce: Vec<u8>,
    pub ciphertext: Vec<u8>,
}

/// Secrets that a task may receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSecrets {
    pub tenant: TenantId,
    /// Names in the document, each once.
    pub names: BTreeSet<String>,
    /// Those that exist.
    pub rows: Vec<SecretRow>,
}

/// A node that asks for the secrets of its task.
#[derive(Debug, Clone, Copy)]
pub struct AskingNode<'a> {
    pub name: &'a str,
    pub credential: &'a SecretHash,
}

/// Open work that names a secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretUsers {
    pub jobs: Vec<String>,
    pub studies: Vec<String>,
}

/// Returns the version that the next value of a secret gets, and prevents other transactions from
/// writing secrets of the tenant until this one ends.
///
/// # Errors
/// [`StoreError::Exceeded`] if the secret is new and the tenant has the maximum number.
pub async fn next_version(
    conn: &mut PgConnection,
    tenant: TenantId,
    name: &str,
) -> Result<u64, StoreError> {
    limit::hold(conn, tenant).await?;
    let row = sqlx::query!(
        r#"select count(*) as "all!", max(version) filter (where name = $1) as version from secret"#,
        name
    )
    .fetch_one(&mut *conn)
    .await?;
    if let Some(version) = row.version {
        return Ok(unsigned(version) + 1);
    }
    let most = limit::of(conn, tenant).await?.secrets;
    limit::below("secrets", most, unsigned(row.all))?;
    Ok(1)
}

/// Stores a version and appends an event. The caller has called [`next_version`].
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn put(
    conn: &mut PgConnection,
    tenant: TenantId,
    row: &SecretRow,
    by: &Actor,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into secret (tenant_id, name, version, key_id, nonce, ciphertext, created_at, updated_at, updated_by)
         values ($1, $2, $3, $4, $5, $6, $7, $7, $8)
         on conflict (tenant_id, name) do update
            set version = excluded.version, key_id = excluded.key_id, nonce = excluded.nonce,
                ciphertext = excluded.ciphertext, updated_at = excluded.updated_at, updated_by = excluded.updated_by",
        tenant.0,
        row.name,
        signed(row.version),
        row.key_id,
        row.nonce,
        row.ciphertext,
        now,
        Json(by) as _
    )
    .execute(&mut *conn)
    .await?;
    let event = Event::SecretSet {
        name: row.name.clone(),
        version: row.version,
        by: by.clone(),
    };
    event::append_of_tenant(conn, tenant, event, now).await
}

/// Deletes a secret and appends an event. Returns `false` if it does not exist.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn delete(
    conn: &mut PgConnection,
    tenant: TenantId,
    name: &str,
    by: &Actor,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let version = sqlx::query_scalar!("delete from secret where name = $1 returning version", name)
        .fetch_optional(&mut *conn)
        .await?;
    let Some(version) = version else {
        return Ok(false);
    };
    let event = Event::SecretDeleted {
        name: name.to_owned(),
        version: unsigned(version),
        by: by.clone(),
    };
    event::append_of_tenant(conn, tenant, event, now).await?;
    Ok(true)
}

/// Deletes all secrets of the tenant in scope, which is being deleted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn delete_all(conn: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query!("delete from secret").execute(conn).await?;
    Ok(())
}

/// Returns the secrets of the tenant in scope by name, without values.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(conn: &mut PgConnection) -> Result<Vec<SecretView>, StoreError> {
    let rows = sqlx::query!(
        r#"with jobs as (
             select named ->> 'name' as name, count(distinct j.id) as used
             from job j cross join jsonb_array_elements(j.spec #> '{command,secrets}') named
             where j.spec #> '{command,secrets}' is not null and j.finished_at is null and j.deleted_at is null
             group by 1
           ), studies as (
             select named ->> 'name' as name, count(distinct s.id) as used
             from study s cross join jsonb_array_elements(s.document::jsonb #> '{job,command,secrets}') named
             where s.finished_at is null and s.deleted_at is null
               and jsonb_typeof(s.document::jsonb #> '{job,command,secrets}') = 'array'
             group by 1
           )
           select secret.name, version, created_at, updated_at, updated_by as "updated_by: Json<Actor>",
                  coalesce(jobs.used, 0) as "jobs!", coalesce(studies.used, 0) as "studies!"
           from secret left join jobs on jobs.name = secret.name left join studies on studies.name = secret.name
           order by secret.name collate "C""#
    )
    .fetch_all(conn)
    .await?;
    let secrets = rows.into_iter().map(|row| SecretView {
        name: row.name,
        version: unsigned(row.version),
        created_at: row.created_at,
        updated_at: row.updated_at,
        updated_by: row.updated_by.0,
        open_jobs: unsigned(row.jobs),
        open_studies: unsigned(row.studies),
    });
    Ok(secrets.collect())
}

/// Returns the names of all secrets of the tenant in scope.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn known(conn: &mut PgConnection) -> Result<BTreeSet<String>, StoreError> {
    let names = sqlx::query_scalar!("select name from secret")
        .fetch_all(conn)
        .await?;
    Ok(names.into_iter().collect())
}

/// Returns up to `most` names each of open jobs and studies of the tenant in scope that name a
/// secret.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn users(
    conn: &mut PgConnection,
    name: &str,
    most: u32,
) -> Result<SecretUsers, StoreError> {
    let jobs = sqlx::query_scalar!(
        r#"select distinct name from job
           where spec #> '{command,secrets}' is not null and finished_at is null and deleted_at is null
             and spec #> '{command,secrets}' @> jsonb_build_array(jsonb_build_object('name', $1::text))
           order by name limit $2"#,
        name,
        i64::from(most)
    )
    .fetch_all(&mut *conn)
    .await?;
    let studies = sqlx::query_scalar!(
        r#"select distinct name from study
           where finished_at is null and deleted_at is null
             and document::jsonb #> '{job,command,secrets}' @> jsonb_build_array(jsonb_build_object('name', $1::text))
           order by name limit $2"#,
        name,
        i64::from(most)
    )
    .fetch_all(conn)
    .await?;
    Ok(SecretUsers { jobs, studies })
}

/// Returns the secrets of a task for its node, for the scheduler. `None` unless the node has this
/// credential and this task of its job's present revision, and the task is neither stopping nor
/// gone.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn of_task(
    conn: &mut PgConnection,
    node: AskingNode<'_>,
    (task, revision): (TaskId, u64),
) -> Result<Option<TaskSecrets>, StoreError> {
    let found = sqlx::query!(
        r#"select t.tenant_id, coalesce(j.spec #> '{command,secrets}', '[]') as "secrets!: Json<Vec<SecretRef>>"
           from task t
           join job j on j.id = t.job_id and j.revision = t.revision
           join node n on n.id = t.node_id
           where t.id = $1 and t.revision = $2 and t.phase not in ('stopping', 'ending', 'released')
             and n.name = $3 and n.credential_sha256 = $4 and n.removed_at is null"#,
        task.0,
        signed(revision),
        node.name,
        node.credential.as_slice()
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(found) = found else {
        return Ok(None);
    };
    let names: BTreeSet<String> = found
        .secrets
        .0
        .into_iter()
        .map(|secret| secret.name)
        .collect();
    let asked: Vec<String> = names.iter().cloned().collect();
    let rows = sqlx::query_as!(
        SecretSqlRow,
        "select name, version, key_id, nonce, ciphertext from secret where tenant_id = $1 and name = any($2)",
        found.tenant_id,
        &asked
    )
    .fetch_all(conn)
    .await?;
    Ok(Some(TaskSecrets {
        tenant: found.tenant_id.into(),
        names,
        rows: rows.into_iter().map(SecretRow::from).collect(),
    }))
}

/// Returns up to 100 secrets of the tenant in scope that another key than `key_id` encrypts, after
/// `after` by name, and locks them.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn of_other_keys(
    conn: &mut PgConnection,
    key_id: &str,
    after: &str,
) -> Result<Vec<SecretRow>, StoreError> {
    let rows = sqlx::query_as!(
        SecretSqlRow,
        r#"select name, version, key_id, nonce, ciphertext from secret
           where key_id <> $1 and name collate "C" > $2 order by name collate "C" limit 100 for update"#,
        key_id,
        after
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(SecretRow::from).collect())
}

/// Replaces the ciphertext of a version by that of another key. The version stays.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn reencrypt(conn: &mut PgConnection, row: &SecretRow) -> Result<(), StoreError> {
    sqlx::query!(
        "update secret set key_id = $3, nonce = $4, ciphertext = $5 where name = $1 and version = $2",
        row.name,
        signed(row.version),
        row.key_id,
        row.nonce,
        row.ciphertext
    )
    .execute(conn)
    .await?;
    Ok(())
}

struct SecretSqlRow {
    name: String,
    version: i64,
    key_id: String,
    nonce: Vec<u8>,
    ciphertext: Vec<u8>,
}

impl From<SecretSqlRow> for SecretRow {
    fn from(row: SecretSqlRow) -> Self {
        Self {
            name: row.name,
            version: unsigned(row.version),
            key_id: row.key_id,
            nonce: row.nonce,
            ciphertext: row.ciphertext,
        }
    }
}
