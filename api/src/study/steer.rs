//! `POST /studies/{id}/pause`, `resume`, `extend` and `cancel`: what a user wants of a study. The scheduler takes it in within moments.

use super::wire;
use crate::auth::Caller;
use crate::body::Document;
use crate::clock;
use crate::problem::Refusal;
use crate::query::{Named, Params};
use crate::state::App;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use muster_model::id::StudyId;
use muster_model::study::{MAX_TRIALS, StudyOrder};
use muster_model::view::{StudyExtension, StudyView};
use muster_store::StoreError;
use muster_store::study::{self, Outcome};

type Stated = Result<(StatusCode, Json<StudyView>), Refusal>;

/// Pause a study
///
/// No trial starts or trains on to its next rung; those that train, train on as far as they were told to.
#[utoipa::path(
    post, path = "/studies/{id}/pause", operation_id = "pauseStudy", tag = "studies",
    params(("id" = StudyId, Path, description = "The study")),
    responses((status = 202, description = "Stated; the scheduler obeys", body = StudyView)),
)]
pub async fn pause(
    State(app): State<App>,
    caller: Caller,
    Named(id): Named<StudyId>,
    Params(()): Params<()>,
) -> Stated {
    state(&app, &caller, id, "pause", StudyOrder::Pause).await
}

/// Let a paused study go on
#[utoipa::path(
    post, path = "/studies/{id}/resume", operation_id = "resumeStudy", tag = "studies",
    params(("id" = StudyId, Path, description = "The study")),
    responses((status = 202, description = "Stated; the scheduler obeys", body = StudyView)),
)]
pub async fn resume(
    State(app): State<App>,
    caller: Caller,
    Named(id): Named<StudyId>,
    Params(()): Params<()>,
) -> Stated {
    state(&app, &caller, id, "resume", StudyOrder::Resume).await
}

/// Give a study more trials
///
/// One that has finished goes on; one that was told to end, even if some of its trials still run, does not.
#[utoipa::path(
    post, path = "/studies/{id}/extend", operation_id = "extendStudy", tag = "studies",
    params(("id" = StudyId, Path, description = "The study")), request_body = StudyExtension,
    responses((status = 202, description = "Stated; the scheduler obeys", body = StudyView)),
)]
pub async fn extend(
    State(app): State<App>,
    caller: Caller,
    Named(id): Named<StudyId>,
    Params(()): Params<()>,
    body: Document<StudyExtension>,
) -> Stated {
    let trials = body.value.trials;
    if trials == 0 {
        let limit = wire::shown(&mut app.begin(&caller).await?, &caller, id)
            .await?
            .trials
            .limit;
        return Err(wire::too_many(0, limit, MAX_TRIALS.saturating_sub(limit)));
    }
    state(&app, &caller, id, "extend", StudyOrder::Extend { trials }).await
}

/// End a study
///
/// Its trials stop; what they have measured and their checkpoints stay.
#[utoipa::path(
    post, path = "/studies/{id}/cancel", operation_id = "cancelStudy", tag = "studies",
    params(("id" = StudyId, Path, description = "The study")),
    responses((status = 202, description = "Stated; the scheduler obeys", body = StudyView)),
)]
pub async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Named(id): Named<StudyId>,
    Params(()): Params<()>,
) -> Stated {
    state(&app, &caller, id, "cancel", StudyOrder::Cancel).await
}

async fn state(app: &App, caller: &Caller, id: StudyId, verb: &str, order: StudyOrder) -> Stated {
    let mut tx = app.begin(caller).await?;
    let asked = match order {
        StudyOrder::Extend { trials } => trials,
        _ => 0,
    };
    match study::order(&mut tx, id, &[order], clock::now()).await? {
        Outcome::Done => {}
        Outcome::TooMany { limit, most } => return Err(wire::too_many(asked, limit, most)),
        Outcome::Busy { waiting } => return Err(wire::busy(waiting)),
        Outcome::Refused { phase } => {
            let needed = "one that is not over";
            return Err(wire::wrong_phase(phase, verb, needed));
        }
        Outcome::NotFound => return Err(wire::missing(id)),
    }
    let shown = wire::shown(&mut tx, caller, id).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok((StatusCode::ACCEPTED, Json(shown)))
}
