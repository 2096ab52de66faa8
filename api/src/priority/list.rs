//! `GET /priority-classes`.

use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{self, PageParams, Params};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::priority::{PriorityClass, PriorityUser};
use muster_model::view::Page;
use muster_store::priority_class;

/// List priority classes by name
///
/// Administrators see all classes. Members see those that they may use, and of the tenants of a
/// class only their own.
#[utoipa::path(
    get, path = "/priority-classes", operation_id = "listPriorityClasses", tag = "priorities", params(PageParams),
    responses((status = 200, description = "A page of classes", body = Page<PriorityClass>)),
)]
pub async fn list(
    State(app): State<ApiState>,
    caller: Caller,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<PriorityClass>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let mut classes = priority_class::list(&mut tx).await?;
    if !caller.is_admin() {
        let user = PriorityUser {
            access: caller.access,
            tenant: &caller.tenant_name,
        };
        classes.retain(|class| class.is_usable(user));
        for class in &mut classes {
            class.tenants.retain(|tenant| *tenant == caller.tenant_name);
        }
    }
    let after = params.after.unwrap_or_default();
    classes.retain(|class| class.name > after);
    Ok(Json(query::page(
        classes,
        params.limit,
        |class| class.name.clone(),
        |class| class,
    )))
}
