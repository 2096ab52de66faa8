//! `POST /templates/{name}/submit`.

use super::found;
use crate::auth::Caller;
use crate::body::ParsedBody;
use crate::body::parse;
use crate::idempotency;
use crate::job::submit::{self, Submission, SubmitParams};
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use muster_model::spec::JobSpec;
use muster_model::template::TEMPLATE_LABEL;
use muster_model::view::{JobView, TemplateValues};

/// Submit a job from a template
///
/// The job has the filled document and the label `template=NAME`. Unknown and missing parameters,
/// and values of another type, are refused (422 `invalid-body`). The filled document is checked as
/// by `POST /jobs`.
#[utoipa::path(
    post, path = "/templates/{name}/submit", operation_id = "submitTemplate", tag = "templates",
    params(
        ("name" = String, Path, description = "Name of the template"),
        SubmitParams,
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters, chosen by the client; one for each submission"),
    ),
    request_body = TemplateValues,
    responses(
        (status = 201, description = "Submitted", body = JobView, headers(("Location" = String, description = "Path of the job"))),
        (status = 200, description = "`dry_run`: the filled document is valid; the id is all zeros and nothing was submitted", body = JobView),
    ),
)]
#[tracing::instrument(name = "api.template.submit", skip_all, fields(template = name, job.id))]
pub async fn submit(
    State(app): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Params(params): Params<SubmitParams>,
    headers: HeaderMap,
    body: ParsedBody<TemplateValues>,
) -> Result<Response, ApiError> {
    let key = idempotency::key(&headers)?;
    let mut tx = app.begin(&caller).await?;
    let template = found(&mut tx, &name).await?;
    drop(tx);
    let filled = template.document.fill(&body.value.parameters);
    let filled = filled.map_err(|errors| ApiError::of_fields(ProblemKind::InvalidBody, errors))?;
    let mut spec: JobSpec = parse::of_value(&filled)?;
    spec.labels.insert(TEMPLATE_LABEL.to_owned(), name.clone());
    let submission = Submission {
        key,
        request: &[b"template", name.as_bytes(), &body.bytes],
        dry_run: params.dry_run,
    };
    submit::carry_out(&app, &caller, submission, spec).await
}
