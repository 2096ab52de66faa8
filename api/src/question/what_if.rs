//! `POST /what-if`.

use super::ask::ask;
use crate::auth::{Admin, Caller};
use crate::body::ParsedBody;
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use crate::tenant_rules::{StatedPriority, within};
use axum::Json;
use axum::extract::State;
use muster_model::question::{Answer, Question};
use muster_model::spec::FieldError;
use muster_model::view::{WhatIf, WhatIfView};
use muster_store::{PgConnection, StoreError, tenant, tenant_scope};

/// Predict the effects of more nodes, other quotas or more jobs
///
/// For administrators, because the answer names jobs of every tenant. Nothing is changed. The
/// cluster is simulated with all changes together and without them, with the same random numbers.
#[utoipa::path(
    post, path = "/what-if", operation_id = "whatIf", tag = "rounds",
    request_body = WhatIf,
    responses((status = 200, description = "The predicted effects", body = WhatIfView)),
)]
#[tracing::instrument(name = "api.what_if", skip_all)]
pub async fn what_if(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Params(()): Params<()>,
    document: ParsedBody<WhatIf>,
) -> Result<Json<WhatIfView>, ApiError> {
    let mut changes = document.value;
    if let Err(errors) = changes.validate() {
        return Err(ApiError::of_fields(ProblemKind::InvalidBody, errors));
    }
    let mut tx = app.begin(&caller).await?;
    tenant_scope::admin(&mut tx).await?;
    let mut wrong = Vec::new();
    for (field, name) in tenants(&changes) {
        if tenant::by_name(&mut tx, name).await?.is_none() {
            wrong.push(FieldError {
                field,
                value: format!("{name:?}"),
                expected: "the name of a tenant".to_owned(),
            });
        }
    }
    if wrong.is_empty() {
        wrong = resolve_priorities(&mut tx, &caller, &mut changes).await?;
    }
    drop(tx);
    if !wrong.is_empty() {
        return Err(ApiError::of_fields(ProblemKind::InvalidBody, wrong));
    }
    match ask(&app, &caller, Question::WhatIf { changes }).await? {
        Answer::WhatIf { comparison } => Ok(Json(comparison)),
        Answer::Plan { .. } | Answer::Refused { .. } | Answer::Failed { .. } => Err(ApiError::new(
            ProblemKind::Internal,
            "the scheduler answered another question",
        )),
    }
}

/// Sets the priorities of the assumed jobs. Returns one error per priority that the caller may not
/// use.
async fn resolve_priorities(
    conn: &mut PgConnection,
    caller: &Caller,
    changes: &mut WhatIf,
) -> Result<Vec<FieldError>, StoreError> {
    let mut errors = Vec::new();
    for (index, assumed) in changes.jobs.iter_mut().enumerate() {
        let tenant = assumed.tenant.as_deref().unwrap_or(&caller.tenant_name);
        let stated = StatedPriority::of_job(&assumed.job);
        match stated.resolve_for(conn, caller, tenant).await? {
            Ok(priority) => assumed.job.priority = Some(priority),
            Err(error) => errors.push(within(&format!("jobs[{index}].job."), error)),
        }
    }
    Ok(errors)
}

/// Returns every named tenant with its field.
fn tenants(changes: &WhatIf) -> Vec<(String, &str)> {
    let quotas = changes.quotas.iter().enumerate();
    let quotas =
        quotas.map(|(index, quota)| (format!("quotas[{index}].tenant"), quota.tenant.as_str()));
    let jobs = changes.jobs.iter().enumerate();
    let jobs = jobs
        .filter_map(|(index, job)| Some((format!("jobs[{index}].tenant"), job.tenant.as_deref()?)));
    quotas.chain(jobs).collect()
}
