//! Impersonation: an administrator's request with the header `Muster-Tenant: NAME` acts for that
//! tenant. All later code sees that tenant's rows only, as for one of its own users.

use crate::auth::caller::Caller;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::state::ApiState;
use crate::token::wire::user_id;
use axum::http::{HeaderMap, HeaderName, Method};
use muster_store::token::Principal;
use muster_store::{StoreError, tenant, tenant_scope};

pub const HEADER: HeaderName = HeaderName::from_static("muster-tenant");

/// Returns the principal of another tenant if the header names one; `None` for the caller's own.
///
/// In that tenant the administrator acts as the user `NAME@TENANT`, after its own name and tenant,
/// so that members see which administrator it was.
///
/// # Errors
/// A refusal if the caller is not an administrator, or the tenant does not exist.
pub async fn principal(
    app: &ApiState,
    caller: &Caller,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Option<Principal>, ApiError> {
    let Some(value) = headers.get(HEADER) else {
        return Ok(None);
    };
    let name = value.to_str().map_err(|_| {
        ApiError::parameter("Muster-Tenant", &format!("{value:?}"), "a tenant's name")
    })?;
    if name == caller.tenant_name {
        return Ok(None);
    }
    if !caller.is_admin() {
        let detail = format!(
            "Muster-Tenant: {name} needs a token with access admin; this one is of a member of {}",
            caller.tenant_name
        );
        return Err(ApiError::new(ProblemKind::Forbidden, detail));
    }
    let mut tx = app.begin(caller).await?;
    tenant_scope::admin(&mut tx).await?;
    let found = tenant::by_name(&mut tx, name).await?;
    let found = found.ok_or_else(|| ApiError::not_found(format!("tenant {name}")))?;
    let mut acting = Principal {
        tenant_id: found.id,
        tenant_name: found.name,
        ..Principal::clone(caller)
    };
    if *method != Method::GET {
        acting.user_name = named(&caller.user_name, &caller.tenant_name);
    }
    // Only objects that POST creates refer to a user.
    if *method == Method::POST {
        acting.user_id = user_id(&mut tx, found.id, &acting.user_name, clock::now()).await?;
        tx.commit().await.map_err(StoreError::from)?;
    }
    Ok(Some(acting))
}

/// Returns `USER@TENANT`, cut to the longest allowed name of a user.
fn named(user: &str, tenant: &str) -> String {
    const LONGEST: usize = 255;
    let of_user = LONGEST.saturating_sub(1 + tenant.chars().count());
    let user: String = user.chars().take(of_user).collect();
    format!("{user}@{tenant}").chars().take(LONGEST).collect()
}
