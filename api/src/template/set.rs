//! `PUT /templates/{name}`.

use super::found;
use crate::auth::Caller;
use crate::body::ParsedBody;
use crate::body::parse;
use crate::clock;
use crate::job::submit;
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use muster_model::spec::JobSpec;
use muster_model::template::TemplateDocument;
use muster_model::view::TemplateView;
use muster_store::{StoreError, template};

/// Create or replace a template
///
/// If each parameter has a default or choices, the job document with these values must be valid;
/// errors of the kind `invalid-job` name its fields. Secrets, code and other objects of the tenant
/// are checked at each submission.
#[utoipa::path(
    put, path = "/templates/{name}", operation_id = "setTemplate", tag = "templates",
    params(("name" = String, Path, description = "Name of the template: 1 to 63 characters of a-z, 0-9 and '-'")),
    request_body(
        content((TemplateDocument = "application/json"), (TemplateDocument = "application/yaml")),
        description = "Parameters and the job document",
    ),
    responses((status = 200, description = "Created or replaced", body = TemplateView)),
)]
#[tracing::instrument(name = "api.template.set", skip_all, fields(template = name))]
pub async fn set(
    State(app): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Params(()): Params<()>,
    body: ParsedBody<TemplateDocument>,
) -> Result<Json<TemplateView>, ApiError> {
    ApiError::check_label(&name)?;
    let document = body.value;
    let invalid = |errors| ApiError::of_fields(ProblemKind::InvalidBody, errors);
    document.validate().map_err(invalid)?;
    if let Some(values) = document.example() {
        let filled = document.fill(&values).map_err(invalid)?;
        let job: JobSpec = parse::of_value(&filled)?;
        submit::validate(&job)?;
    }
    let mut tx = app.begin(&caller).await?;
    let at = (caller.tenant_id, name.as_str());
    template::put(&mut tx, at, &document, &caller.actor(), clock::now()).await?;
    let stored = found(&mut tx, &name).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(Json(stored))
}
