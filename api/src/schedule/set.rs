//! `PUT /schedules/{name}`.

use super::timing::Timing;
use super::{fire, found, wire};
use crate::auth::Caller;
use crate::body::ParsedBody;
use crate::clock;
use crate::job::submit;
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use muster_model::schedule::ScheduleDocument;
use muster_model::spec::FieldError;
use muster_model::view::ScheduleView;
use muster_store::StoreError;
use muster_store::schedule::{self, NewSchedule};

/// Create or replace a schedule
///
/// The job's document is checked as at a submission; errors of the kind `invalid-job` name its
/// fields. The jobs belong to the caller. A local time that the clock leaves out runs at the next
/// instant, and a repeated one once; with `*` in the hours the times follow the real time. The
/// first planned time is after the request. A paused schedule stays paused. An administrator that
/// acts for another tenant cannot store schedules, because the jobs belong to a user of the tenant.
#[utoipa::path(
    put, path = "/schedules/{name}", operation_id = "setSchedule", tag = "schedules",
    params(("name" = String, Path, description = "Name of the schedule: 1 to 63 characters of a-z, 0-9 and '-'")),
    request_body(
        content((ScheduleDocument = "application/json"), (ScheduleDocument = "application/yaml")),
        description = "Times, rules and the job's document",
    ),
    responses((status = 200, description = "Created or replaced", body = ScheduleView)),
)]
#[tracing::instrument(name = "api.schedule.set", skip_all, fields(schedule = name))]
pub async fn set(
    State(app): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Params(()): Params<()>,
    body: ParsedBody<ScheduleDocument>,
) -> Result<Json<ScheduleView>, ApiError> {
    ApiError::check_label(&name)?;
    if caller.tenant_id != caller.home() {
        let detail = "the jobs of a schedule belong to a user of its tenant; a member of the tenant stores it";
        return Err(ApiError::new(ProblemKind::Forbidden, detail));
    }
    let document = body.value;
    let now = clock::now();
    let invalid = |errors| ApiError::of_fields(ProblemKind::InvalidBody, errors);
    let timing = Timing::parse(&document.cron, &document.time_zone).map_err(invalid)?;
    let next_at = timing
        .next_after(now)
        .ok_or_else(|| invalid(vec![never(&document.cron)]))?;
    let mut job = fire::labelled(document.job.clone(), &name);
    submit::validate(&job)?;
    // The limit of GPUs of interactive jobs applies to each submission, not to the stored document.
    job.interactive = None;
    let mut tx = app.begin(&caller).await?;
    submit::checked(&app, &mut tx, &caller, &mut job).await?;
    let new = NewSchedule {
        tenant: caller.tenant_id,
        name: &name,
        user: caller.user_id,
        document: &document,
        next_at,
    };
    schedule::put(&mut tx, &new, &caller.actor(), now).await?;
    let row = found(&mut tx, &name).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(Json(wire::schedule(row)))
}

fn never(cron: &str) -> FieldError {
    FieldError {
        field: "cron".to_owned(),
        value: format!("{cron:?}"),
        expected: "an expression that matches a date of the next 8 years".to_owned(),
    }
}
