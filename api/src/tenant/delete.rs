//! `DELETE /tenants/{name}`.

use crate::auth::Admin;
use crate::clock;
use crate::problem::{Kind, Refusal};
use crate::query::Params;
use crate::state::App;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use muster_store::{StoreError, scope, tenant};

/// Delete a tenant
///
/// For administrators, and not their own. Refused while any of its jobs or studies has not ended. Its tokens are refused from now on and it is
/// in no list; its jobs, their events, logs, curves and checkpoints stay, and nobody else gets its name.
#[utoipa::path(
    delete, path = "/tenants/{name}", operation_id = "deleteTenant", tag = "tenants",
    params(("name" = String, Path, description = "Name of the tenant")),
    responses((status = 204, description = "Deleted")),
)]
#[tracing::instrument(name = "api.tenant.delete", skip_all, fields(tenant.name = name))]
pub async fn delete(
    State(app): State<App>,
    Admin(caller): Admin,
    Path(name): Path<String>,
    Params(()): Params<()>,
) -> Result<StatusCode, Refusal> {
    let mut tx = app.begin(&caller).await?;
    scope::admin(&mut tx).await?;
    let found = tenant::by_name(&mut tx, &name).await?;
    let found = found.ok_or_else(|| Refusal::not_found(format!("tenant {name}")))?;
    if found.id == caller.tenant_id {
        let detail = format!(
            "tenant {name} is that of the request itself; an administrator of another tenant may delete it"
        );
        return Err(Refusal::new(Kind::WrongPhase, detail));
    }
    scope::tenant(&mut tx, found.id).await?;
    let (jobs, studies) = tenant::open_work(&mut tx).await?;
    if jobs + studies > 0 {
        let detail = format!(
            "jobs ({jobs}) or studies ({studies}) of tenant {name} have not ended; cancel them first"
        );
        return Err(Refusal::new(Kind::WrongPhase, detail));
    }
    tenant::delete(&mut tx, found.id, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    app.tokens.forget_tenant(found.id);
    Ok(StatusCode::NO_CONTENT)
}
