//! `POST /studies/{id}/pause`, `resume`, `extend` and `cancel`: orders of users. The scheduler
//! carries them out shortly after.

use super::wire;
use crate::auth::Caller;
use crate::body::ParsedBody;
use crate::idempotency::{self, IdempotencyCheck};
use crate::problem::ApiError;
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use muster_model::id::StudyId;
use muster_model::study::{MAX_TRIALS, StudyOrder};
use muster_model::view::{StudyExtension, StudyView};
use muster_store::{PgConnection, StoreError};

type StudyResponse = Result<(StatusCode, Json<StudyView>), ApiError>;

/// Pause a study
///
/// No trial starts, and none continues to its next rung. Running trials train to the end of their
/// rung.
#[utoipa::path(
    post, path = "/studies/{id}/pause", operation_id = "pauseStudy", tag = "studies",
    params(("id" = StudyId, Path, description = "The study")),
    responses((status = 202, description = "Accepted; the scheduler carries it out shortly after", body = StudyView)),
)]
pub async fn pause(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<StudyId>,
    Params(()): Params<()>,
) -> StudyResponse {
    state(&app, &caller, id, "pause", StudyOrder::Pause).await
}

/// Resume a paused study
#[utoipa::path(
    post, path = "/studies/{id}/resume", operation_id = "resumeStudy", tag = "studies",
    params(("id" = StudyId, Path, description = "The study")),
    responses((status = 202, description = "Accepted; the scheduler carries it out shortly after", body = StudyView)),
)]
pub async fn resume(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<StudyId>,
    Params(()): Params<()>,
) -> StudyResponse {
    state(&app, &caller, id, "resume", StudyOrder::Resume).await
}

/// Extend a study by more trials
///
/// A finished study continues; a cancelled study does not, even if some of its trials still run. A
/// request that is repeated with the same `Idempotency-Key` within 24 hours gets the answer of the
/// first one, with the header `Idempotency-Replayed: true`, and adds nothing.
#[utoipa::path(
    post, path = "/studies/{id}/extend", operation_id = "extendStudy", tag = "studies",
    params(
        ("id" = StudyId, Path, description = "The study"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters, chosen by the client; one for each extension"),
    ),
    request_body = StudyExtension,
    responses((status = 202, description = "Accepted; the scheduler carries it out shortly after", body = StudyView)),
)]
pub async fn extend(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<StudyId>,
    Params(()): Params<()>,
    headers: HeaderMap,
    body: ParsedBody<StudyExtension>,
) -> Result<Response, ApiError> {
    let key = idempotency::key(&headers)?;
    let trials = body.value.trials;
    let mut tx = app.begin(&caller).await?;
    let request: [&[u8]; 3] = [b"extend", id.0.as_bytes(), &body.bytes];
    let once = match idempotency::claim(&mut tx, &caller, key, &request, "extension").await? {
        IdempotencyCheck::First(once) => once,
        IdempotencyCheck::Again(answered) => return Ok(answered.answer(|_: StudyView| None)),
    };
    if trials == 0 {
        let limit = wire::shown(&mut tx, &caller, id).await?.trials.limit;
        return Err(wire::too_many(0, limit, MAX_TRIALS.saturating_sub(limit)));
    }
    let order = StudyOrder::Extend { trials };
    let shown = stated(&mut tx, &caller, id, "extend", order).await?;
    let (status, body) = (StatusCode::ACCEPTED, wire::written(&shown));
    once.keep(&mut tx, &caller, status, &body).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(idempotency::answer(status, None, body))
}

/// Cancel a study
///
/// Its trials stop; their results and checkpoints stay.
#[utoipa::path(
    post, path = "/studies/{id}/cancel", operation_id = "cancelStudy", tag = "studies",
    params(("id" = StudyId, Path, description = "The study")),
    responses((status = 202, description = "Accepted; the scheduler carries it out shortly after", body = StudyView)),
)]
pub async fn cancel(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<StudyId>,
    Params(()): Params<()>,
) -> StudyResponse {
    state(&app, &caller, id, "cancel", StudyOrder::Cancel).await
}

async fn state(
    app: &ApiState,
    caller: &Caller,
    id: StudyId,
    verb: &str,
    order: StudyOrder,
) -> StudyResponse {
    let mut tx = app.begin(caller).await?;
    let shown = stated(&mut tx, caller, id, verb, order).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok((StatusCode::ACCEPTED, Json(shown)))
}

/// Stores the order; the caller commits.
async fn stated(
    conn: &mut PgConnection,
    caller: &Caller,
    id: StudyId,
    verb: &str,
    order: StudyOrder,
) -> Result<StudyView, ApiError> {
    wire::order(conn, id, &[order], verb, "one that is not over").await?;
    wire::shown(conn, caller, id).await
}
