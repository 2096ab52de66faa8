//! `DELETE /tenants/{name}`.

use crate::auth::Admin;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use crate::token::administrators::{self, LASTING, TokenRevocation};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use muster_model::tenant::Tenant;
use muster_store::{
    PgConnection, StoreError, schedule, secret, template, tenant, tenant_scope, token,
};
use time::OffsetDateTime;

/// Delete a tenant
///
/// For administrators; not the tenant of their own token. Refused while one of its jobs or studies
/// has not ended, or if no other administrator would remain (409, `last-administrator`). Its tokens
/// are refused from now on, by other API servers within 5 seconds, and nothing new starts for it.
/// It disappears from lists. Its jobs, events, logs, curves and checkpoints stay, and its name is
/// not given to another tenant.
#[utoipa::path(
    delete, path = "/tenants/{name}", operation_id = "deleteTenant", tag = "tenants",
    params(("name" = String, Path, description = "Name of the tenant")),
    responses((status = 204, description = "Deleted")),
)]
#[tracing::instrument(name = "api.tenant.delete", skip_all, fields(tenant.name = name))]
pub async fn delete(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Path(name): Path<String>,
    Params(()): Params<()>,
) -> Result<StatusCode, ApiError> {
    let now = clock::now();
    let mut tx = app.begin(&caller).await?;
    tenant_scope::admin(&mut tx).await?;
    let found = tenant::closed_by_name(&mut tx, &name).await?;
    let found = found.ok_or_else(|| ApiError::not_found(format!("tenant {name}")))?;
    if found.id == caller.home() {
        let detail = format!(
            "tenant {name} is that of the request's token; an administrator of another tenant may delete it"
        );
        return Err(ApiError::new(ProblemKind::WrongPhase, detail));
    }
    others_must_administer(&mut tx, &found, now).await?;
    tenant_scope::tenant(&mut tx, found.id).await?;
    let (jobs, studies) = tenant::open_work(&mut tx).await?;
    if jobs + studies > 0 {
        let detail = format!(
            "jobs ({jobs}) or studies ({studies}) of tenant {name} have not ended; cancel them first"
        );
        return Err(ApiError::new(ProblemKind::WrongPhase, detail));
    }
    secret::delete_all(&mut tx).await?;
    schedule::delete_all(&mut tx).await?;
    template::delete_all(&mut tx).await?;
    tenant::delete(&mut tx, found.id, now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    app.tokens.forget_tenant(found.id);
    Ok(StatusCode::NO_CONTENT)
}

/// Checks that an administrator of another tenant remains. The caller's own token may expire within
/// the hour, while the lasting ones belong to the tenant.
async fn others_must_administer(
    conn: &mut PgConnection,
    found: &Tenant,
    now: OffsetDateTime,
) -> Result<(), ApiError> {
    tenant_scope::tenant(conn, found.id).await?;
    let (until, that) = if token::administers(conn, None, now + LASTING).await? {
        (now + LASTING, "administer for longer than a day")
    } else if token::administers(conn, None, now).await? {
        (now, "administer")
    } else {
        return Ok(());
    };
    if administrators::stay(conn, TokenRevocation::Tenant(found.id), until).await? {
        return Ok(());
    }
    let detail = format!(
        "only tokens of tenant {} {that}, and without them no administrator could create another; create one of another tenant first, with access admin",
        found.name
    );
    Err(ApiError::new(ProblemKind::LastAdministrator, detail))
}
