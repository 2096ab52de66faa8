//! Templates of tenants.

use crate::error::StoreError;
use crate::event;
use crate::int_convert::unsigned;
use crate::limit;
use muster_model::actor::Actor;
use muster_model::event::Event;
use muster_model::id::TenantId;
use muster_model::template::TemplateDocument;
use muster_model::view::TemplateView;
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;

/// Creates or replaces a template, appends an event and returns the version.
///
/// # Errors
/// [`StoreError::Exceeded`] if it is new and the tenant has the maximum number. The caller then
/// rolls the transaction back.
pub async fn put(
    conn: &mut PgConnection,
    (tenant, name): (TenantId, &str),
    document: &TemplateDocument,
    by: &Actor,
    now: OffsetDateTime,
) -> Result<u64, StoreError> {
    limit::hold(conn, tenant).await?;
    let others = sqlx::query_scalar!(
        r#"select count(*) as "others!" from template where name <> $1"#,
        name
    )
    .fetch_one(&mut *conn)
    .await?;
    let version = sqlx::query_scalar!(
        "insert into template (tenant_id, name, document, version, created_at, updated_at, updated_by)
         values ($1, $2, $3, 1, $4, $4, $5)
         on conflict (tenant_id, name) do update
            set document = excluded.document, version = template.version + 1,
                updated_at = excluded.updated_at, updated_by = excluded.updated_by
         returning version",
        tenant.0,
        name,
        Json(document) as _,
        now,
        Json(by) as _
    )
    .fetch_one(&mut *conn)
    .await?;
    let version = unsigned(version);
    let is_new = version == 1;
    if is_new {
        let most = limit::of(conn, tenant).await?.templates;
        limit::below("templates", most, unsigned(others))?;
    }
    let event = Event::TemplateSet {
        name: name.to_owned(),
        version,
        by: by.clone(),
    };
    event::append_of_tenant(conn, tenant, event, now).await?;
    Ok(version)
}

/// Deletes a template and appends an event. Its jobs stay. Returns `false` if it does not exist.
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
    let version = sqlx::query_scalar!(
        "delete from template where name = $1 returning version",
        name
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(version) = version else {
        return Ok(false);
    };
    let event = Event::TemplateDeleted {
        name: name.to_owned(),
        version: unsigned(version),
        by: by.clone(),
    };
    event::append_of_tenant(conn, tenant, event, now).await?;
    Ok(true)
}

/// Deletes all templates of the tenant in scope, which is being deleted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn delete_all(conn: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query!("delete from template").execute(conn).await?;
    Ok(())
}

/// Returns the templates of the tenant in scope by name.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(conn: &mut PgConnection) -> Result<Vec<TemplateView>, StoreError> {
    named(conn, None).await
}

/// Returns a template.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn get(conn: &mut PgConnection, name: &str) -> Result<Option<TemplateView>, StoreError> {
    Ok(named(conn, Some(name)).await?.pop())
}

async fn named(
    conn: &mut PgConnection,
    name: Option<&str>,
) -> Result<Vec<TemplateView>, StoreError> {
    let rows = sqlx::query!(
        r#"select name, document as "document: Json<TemplateDocument>", version, created_at, updated_at,
                  updated_by as "updated_by: Json<Actor>"
           from template where $1::text is null or name = $1 order by name collate "C""#,
        name
    )
    .fetch_all(conn)
    .await?;
    let templates = rows.into_iter().map(|row| TemplateView {
        name: row.name,
        document: row.document.0,
        version: unsigned(row.version),
        created_at: row.created_at,
        updated_at: row.updated_at,
        updated_by: row.updated_by.0,
    });
    Ok(templates.collect())
}
