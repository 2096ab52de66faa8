//! `PATCH /jobs/{id}`.

use super::wire;
use crate::auth::Caller;
use crate::body::ParsedBody;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use crate::tenant_rules::StatedPriority;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use muster_model::id::JobId;
use muster_model::job::Intent;
use muster_model::spec::{FieldError, JobSpec};
use muster_model::view::{JobChange, JobView};
use muster_store::edit::{self, LockedJob};
use muster_store::{PgConnection, StoreError, job, priority_class};

/// Change a job's size range and priority
///
/// Allowed while the job waits or runs. Above a new maximum a running job shrinks in the next
/// scheduling round; a job that must restart for that does so once it can be placed again at once.
/// Below a new minimum the job continues at its size. It grows into GPUs that no job of the same or
/// a higher priority waits for.
///
/// With priority classes, a new priority must lie in the range of the job's class, or without one
/// in the range of a class that the caller may use. `priority_class` gives the job another class. A
/// number alone removes a class that was deleted.
///
/// With `edits`, the change is refused if the job was changed since. The size of a trial cannot be
/// changed, and with `batch_rule` `adascale` the minimum cannot. A change without effect is
/// accepted.
#[utoipa::path(
    patch, path = "/jobs/{id}", operation_id = "editJob", tag = "jobs", params(("id" = JobId, Path, description = "The job")),
    request_body = JobChange,
    responses((status = 202, description = "Changed; takes effect in the next scheduling round", body = JobView)),
)]
#[tracing::instrument(name = "api.job.edit", skip_all, fields(job.id = %id))]
pub async fn edit(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(()): Params<()>,
    document: ParsedBody<JobChange>,
) -> Result<(StatusCode, Json<JobView>), ApiError> {
    let change = document.value;
    if change.is_nothing() {
        let error = FieldError {
            field: "workers".to_owned(),
            value: "nothing".to_owned(),
            expected: "required: workers, ps_shards, priority or priority_class".to_owned(),
        };
        return Err(ApiError::of_fields(ProblemKind::InvalidBody, vec![error]));
    }
    let mut tx = app.begin(&caller).await?;
    let editing = edit::begin(&mut tx, id)
        .await?
        .ok_or_else(|| ApiError::no_job(id))?;
    is_open(&editing, &change)?;
    let invalid = |errors| ApiError::of_fields(ProblemKind::InvalidJob, errors);
    let mut spec = editing.spec.changed(&change).map_err(invalid)?;
    // A number that the job has already stays, also if its class was narrowed.
    if StatedPriority::of_job(&spec) != StatedPriority::of_job(&editing.spec) {
        if change.priority_class.is_none() {
            drop_deleted_class(&mut tx, &mut spec).await?;
        }
        let stated = StatedPriority::of_job(&spec);
        let resolved = stated.resolve(&mut tx, &caller).await?;
        spec.priority = Some(resolved.map_err(|error| invalid(vec![error]))?);
    }
    if spec != editing.spec {
        edit::write(
            &mut tx,
            &editing,
            &spec,
            Some(&caller.actor()),
            clock::now(),
        )
        .await?;
    }
    let row = job::get(&mut tx, id)
        .await?
        .ok_or_else(|| ApiError::no_job(id))?;
    tx.commit().await.map_err(StoreError::from)?;
    let view = wire::job(row, &caller.tenant_name);
    Ok((StatusCode::ACCEPTED, Json(view)))
}

/// Removes the class from the document if it was deleted.
async fn drop_deleted_class(conn: &mut PgConnection, spec: &mut JobSpec) -> Result<(), StoreError> {
    let Some(name) = &spec.priority_class else {
        return Ok(());
    };
    let classes = priority_class::list(conn).await?;
    if classes.iter().all(|class| class.name != *name) {
        spec.priority_class = None;
    }
    Ok(())
}

/// Whether the job can be changed, and has not changed since the caller read it.
fn is_open(editing: &LockedJob, change: &JobChange) -> Result<(), ApiError> {
    let phase = editing.phase.as_str();
    if editing.phase.is_terminal() {
        let detail = format!("the job is {phase}; a change needs one that has not ended");
        return Err(ApiError::new(ProblemKind::WrongPhase, detail));
    }
    if editing.intent == Intent::Cancel {
        let detail = format!(
            "the job is {phase} and being cancelled, which is final; the change comes too late"
        );
        return Err(ApiError::new(ProblemKind::WrongPhase, detail));
    }
    if let Some(study) = editing.study {
        let detail =
            format!("the job is a trial of study {study}, which says how large its trials are");
        return Err(ApiError::new(ProblemKind::WrongPhase, detail));
    }
    match change.edits {
        Some(read) if read != editing.edits => {
            let detail = format!(
                "the job was changed {} times by now and {read} times when it was read; read it again",
                editing.edits
            );
            Err(ApiError::new(ProblemKind::EditedMeanwhile, detail))
        }
        _ => Ok(()),
    }
}
