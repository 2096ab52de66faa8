//! `POST /plan`.

use super::ask::ask;
use crate::auth::Caller;
use crate::body::ParsedBody;
use crate::job::origin;
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use crate::tenant_rules::RestrictedParts;
use axum::Json;
use axum::extract::State;
use muster_model::question::{Answer, Question};
use muster_model::spec::JobSpec;
use muster_model::view::PlanView;

/// Predict the effects of a job without submitting it
///
/// The scheduler simulates its real decisions from the present state of the cluster, with and
/// without the job, many times with varied speeds and remaining work. The intervals are right in
/// eight of ten cases, as far as earlier forecasts were. Affected jobs of the tenant are named;
/// those of other tenants are counted.
#[utoipa::path(
    post, path = "/plan", operation_id = "planJob", tag = "jobs",
    request_body(
        content((JobSpec = "application/json"), (JobSpec = "application/yaml")),
        description = "The job document, version `muster/v1`",
    ),
    responses((status = 200, description = "The predicted effects", body = PlanView)),
)]
#[tracing::instrument(name = "api.plan", skip_all)]
pub async fn plan(
    State(app): State<ApiState>,
    caller: Caller,
    Params(()): Params<()>,
    document: ParsedBody<JobSpec>,
) -> Result<Json<PlanView>, ApiError> {
    if let Err(errors) = document.value.validate() {
        return Err(ApiError::of_fields(ProblemKind::InvalidJob, errors));
    }
    let mut job = Box::new(document.value);
    let mut begins = 0;
    let restricted = RestrictedParts::of_job(&job);
    if job.from.is_some() || !restricted.is_empty() {
        let mut tx = app.begin(&caller).await?;
        job.priority = Some(restricted.check(&app, &mut tx, &caller).await?);
        begins = origin::resolve(&mut tx, &mut job).await?;
    }
    match ask(&app, &caller, Question::Plan { job, begins }).await? {
        Answer::Plan { plan } => Ok(Json(plan)),
        Answer::WhatIf { .. } | Answer::Refused { .. } | Answer::Failed { .. } => {
            Err(ApiError::new(
                ProblemKind::Internal,
                "the scheduler answered another question",
            ))
        }
    }
}
