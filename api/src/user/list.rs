//! `GET /users`.

use crate::auth::Admin;
use crate::clock;
use crate::problem::ApiError;
use crate::query::{self, PageParams, Params};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::view::{Page, UserView};
use muster_store::{tenant, tenant_scope, user};

/// List users by tenant and name
///
/// For administrators. With the number of tokens of each user that are neither revoked nor expired.
#[utoipa::path(
    get, path = "/users", operation_id = "listUsers", tag = "tokens", params(PageParams),
    responses((status = 200, description = "A page of users", body = Page<UserView>)),
)]
pub async fn list(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<UserView>>, ApiError> {
    let now = clock::now();
    let mut tx = app.begin(&caller).await?;
    tenant_scope::admin(&mut tx).await?;
    let mut rows = Vec::new();
    for tenant in tenant::list(&mut tx).await? {
        // Tokens are visible only in the scope of their tenant, also for administrators.
        tenant_scope::tenant(&mut tx, tenant.id).await?;
        let users = user::list(&mut tx, tenant.id, now).await?;
        rows.extend(users.into_iter().map(|user| UserView {
            id: user.id,
            name: user.name,
            tenant: tenant.name.clone(),
            tokens: user.tokens,
            created_at: user.created_at,
        }));
    }
    let after = params.after.unwrap_or_default();
    rows.sort_by_key(place);
    rows.retain(|user| place(user) > after);
    Ok(Json(query::page(rows, params.limit, place, |user| user)))
}

/// Returns the user's place in the list.
fn place(user: &UserView) -> String {
    format!("{}/{}", user.tenant, user.name)
}
