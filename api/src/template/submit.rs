//! `POST /templates/{name}/submit`.

use super::found;
use crate::auth::Caller;
use crate::body::ParsedBody;
use crate::body::parse;
use crate::idempotency::{self, IdempotencyCheck};
use crate::job::submit::{self, Submission, SubmitParams};
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use muster_model::spec::JobSpec;
use muster_model::template::TEMPLATE_LABEL;
use muster_model::view::{JobView, TemplateValues};
use muster_store::{PgConnection, StoreError};

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
    let request: [&[u8]; 3] = [b"template", name.as_bytes(), &body.bytes];
    let mut tx = app.begin(&caller).await?;
    if params.dry_run {
        let spec = filled(&mut tx, &name, &body.value).await?;
        drop(tx);
        let submission = Submission {
            key,
            request: &request,
            dry_run: true,
        };
        return submit::carry_out(&app, &caller, submission, spec).await;
    }
    // Before the template is read: a repetition gets its answer also after a change of the
    // template.
    let once = match idempotency::claim(&mut tx, &caller, key, &request, "job").await? {
        IdempotencyCheck::First(once) => once,
        IdempotencyCheck::Again(answered) => {
            return Ok(answered.answer(|job: JobView| Some(submit::place(job.id))));
        }
    };
    let new = submit::new_job(&caller, filled(&mut tx, &name, &body.value).await?)?;
    let stored = submit::begun(&app, &mut tx, &caller, new).await?;
    let (id, body) = submit::written(&caller, stored);
    once.keep(&mut tx, &caller, StatusCode::CREATED, &body)
        .await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(submit::created(&app, id, body))
}

/// Returns the job document of a template with these values and the label of the template.
async fn filled(
    conn: &mut PgConnection,
    name: &str,
    values: &TemplateValues,
) -> Result<JobSpec, ApiError> {
    let template = found(conn, name).await?;
    let filled = template.document.fill(&values.parameters);
    let filled = filled.map_err(|errors| ApiError::of_fields(ProblemKind::InvalidBody, errors))?;
    let mut spec: JobSpec = parse::of_value(&filled)?;
    let (label, name) = (TEMPLATE_LABEL.to_owned(), name.to_owned());
    spec.labels.insert(label, name);
    Ok(spec)
}
