//! `PATCH /tenants/{name}`.

use super::wire;
use crate::auth::Admin;
use crate::body::ParsedBody;
use crate::clock;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use muster_model::view::{TenantChange, TenantView};
use muster_store::{StoreError, limit, tenant, tenant_scope};

/// Change a tenant's quota, weight, pods, limits, caps on preemption, families and remote sessions
///
/// For administrators. Takes effect in the next scheduling round: jobs above a lowered quota stop
/// with a checkpoint. The weight is the tenant's share of a full cluster relative to other tenants.
/// `pods` applies to later submissions; jobs and studies that were submitted before keep their
/// pods. Work that is open above a lowered limit stays open. `preemption` caps what job documents
/// demand: later documents above a cap are refused, and earlier ones count as if they stated it.
/// `shares_families` applies to forecasts and decisions within seconds. `interactive` applies to
/// new remote sessions at once, and ends open ones within 30 s if it is false.
#[utoipa::path(
    patch, path = "/tenants/{name}", operation_id = "changeTenant", tag = "tenants",
    params(("name" = String, Path, description = "Name of the tenant")),
    request_body = TenantChange,
    responses((status = 200, description = "Changed", body = TenantView)),
)]
#[tracing::instrument(name = "api.tenant.change", skip_all, fields(tenant.name = name))]
pub async fn change(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Path(name): Path<String>,
    Params(()): Params<()>,
    document: ParsedBody<TenantChange>,
) -> Result<Json<TenantView>, ApiError> {
    let TenantChange {
        gpu_quota,
        weight,
        pods,
        limits,
        preemption,
        shares_families,
        interactive,
    } = document.value;
    wire::check_quota(gpu_quota.flatten())?;
    wire::check_weight(weight)?;
    wire::check_pods_change(pods.as_ref())?;
    wire::check_limits_change(limits.as_ref())?;
    wire::check_preemption_change(preemption.as_ref())?;
    let is_nothing = gpu_quota.is_none()
        && weight.is_none()
        && pods.is_none()
        && limits.is_none()
        && preemption.is_none()
        && shares_families.is_none()
        && interactive.is_none();
    if is_nothing {
        let expected =
            "required: gpu_quota, weight, pods, limits, preemption, shares_families or interactive";
        return Err(wire::invalid("gpu_quota", "nothing", expected));
    }
    let missing = || ApiError::not_found(format!("tenant {name}"));
    let mut tx = app.begin(&caller).await?;
    tenant_scope::admin(&mut tx).await?;
    let found = tenant::by_name(&mut tx, &name).await?.ok_or_else(missing)?;
    let change = tenant::TenantUpdate {
        gpu_quota,
        weight,
        pods,
        preemption,
        shares_families,
        interactive,
    };
    let changed = tenant::change(&mut tx, found.id, change)
        .await?
        .ok_or_else(missing)?;
    if let Some(limits) = limits {
        let set = limit::all(&mut tx).await?.remove(&found.id);
        limit::write(&mut tx, found.id, &limits.of(set.unwrap_or_default())).await?;
    }
    let all = wire::TenantUsage::read(&mut tx, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(Json(all.tenant(changed)))
}
