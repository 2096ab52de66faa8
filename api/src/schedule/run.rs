//! `POST /schedules/{name}/run`.

use super::{fire, found};
use crate::auth::Caller;
use crate::clock;
use crate::idempotency;
use crate::idempotency::IdempotencyCheck;
use crate::job::submit;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use muster_model::view::JobView;
use muster_store::{StoreError, schedule};

/// Submit a job of a schedule now
///
/// Also while the schedule is paused, and without its rule for overlaps. The job belongs to the
/// caller. The planned times do not change.
#[utoipa::path(
    post, path = "/schedules/{name}/run", operation_id = "runSchedule", tag = "schedules",
    params(
        ("name" = String, Path, description = "Name of the schedule"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters, chosen by the client; one for each submission"),
    ),
    responses((status = 201, description = "Submitted", body = JobView, headers(("Location" = String, description = "Path of the job")))),
)]
#[tracing::instrument(name = "api.schedule.run", skip_all, fields(schedule = name, job.id))]
pub async fn run(
    State(app): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Params(()): Params<()>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let key = idempotency::key(&headers)?;
    let mut tx = app.begin(&caller).await?;
    let request: [&[u8]; 2] = [b"schedule", name.as_bytes()];
    let once = match idempotency::claim(&mut tx, &caller, key, &request, "job").await? {
        IdempotencyCheck::First(once) => once,
        IdempotencyCheck::Again(answered) => {
            return Ok(answered.answer(|job: JobView| Some(submit::place(job.id))));
        }
    };
    let row = found(&mut tx, &name).await?;
    let new = submit::new_job(&caller, fire::labelled(row.document.job, &name))?;
    // The submitter locks a schedule before it submits; so does this request.
    let open = schedule::lock_open_job(&mut tx, &name).await?;
    let stored = submit::begun(&app, &mut tx, &caller, new).await?;
    let at = (caller.tenant_id, name.as_str());
    schedule::record_job(&mut tx, at, (stored.id, open), clock::now()).await?;
    let (id, body) = submit::written(&caller, stored);
    once.keep(&mut tx, &caller, StatusCode::CREATED, &body)
        .await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(submit::created(&app, id, body))
}
