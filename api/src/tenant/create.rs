//! `POST /tenants`.

use super::wire;
use crate::auth::Admin;
use crate::body::ParsedBody;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use muster_model::spec::{DNS_LABEL_RULE, is_dns_label};
use muster_model::tenant::Tenant;
use muster_model::view::{NewTenant, TenantView};
use muster_store::{StoreError, tenant, tenant_scope};

/// Create a tenant
///
/// For administrators. `POST /tokens` with its name creates its first user and token.
#[utoipa::path(
    post, path = "/tenants", operation_id = "createTenant", tag = "tenants", request_body = NewTenant,
    responses((status = 201, description = "Created", body = TenantView)),
)]
#[tracing::instrument(name = "api.tenant.create", skip_all)]
pub async fn create(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Params(()): Params<()>,
    document: ParsedBody<NewTenant>,
) -> Result<(StatusCode, Json<TenantView>), ApiError> {
    let NewTenant {
        name,
        gpu_quota,
        weight,
        pods,
        preemption,
        shares_families,
        interactive,
    } = document.value;
    if !is_dns_label(&name) {
        return Err(wire::invalid("name", &format!("{name:?}"), DNS_LABEL_RULE));
    }
    wire::check_quota(gpu_quota)?;
    wire::check_weight(Some(weight))?;
    wire::check_pods(&pods)?;
    wire::check_preemption(&preemption)?;
    let new = Tenant {
        id: clock::new_id().into(),
        name,
        gpu_quota,
        weight,
        pods,
        preemption,
        shares_families,
        interactive,
    };
    let mut tx = app.begin(&caller).await?;
    tenant_scope::admin(&mut tx).await?;
    match tenant::create(&mut tx, &new, clock::now()).await {
        Err(error) if error.is_taken() => {
            return Err(ApiError::new(
                ProblemKind::NameTaken,
                format!("there is a tenant {} already, or was one", new.name),
            ));
        }
        done => done?,
    }
    tx.commit().await.map_err(StoreError::from)?;
    Ok((
        StatusCode::CREATED,
        Json(wire::TenantUsage::default().tenant(new)),
    ))
}
