//! `GET /templates` and `GET /templates/{name}`.

use super::found;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use muster_model::view::{Page, TemplateView};
use muster_store::template;

/// List the tenant's templates
///
/// By name.
#[utoipa::path(
    get, path = "/templates", operation_id = "listTemplates", tag = "templates",
    responses((status = 200, description = "All templates", body = Page<TemplateView>)),
)]
#[tracing::instrument(name = "api.template.list", skip_all)]
pub async fn list(
    State(app): State<ApiState>,
    caller: Caller,
    Params(()): Params<()>,
) -> Result<Json<Page<TemplateView>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let items = template::list(&mut tx).await?;
    Ok(Json(Page { items, next: None }))
}

/// Get a template
#[utoipa::path(
    get, path = "/templates/{name}", operation_id = "getTemplate", tag = "templates",
    params(("name" = String, Path, description = "Name of the template")),
    responses((status = 200, description = "The template", body = TemplateView)),
)]
#[tracing::instrument(name = "api.template.get", skip_all, fields(template = name))]
pub async fn get(
    State(app): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Params(()): Params<()>,
) -> Result<Json<TemplateView>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    Ok(Json(found(&mut tx, &name).await?))
}
