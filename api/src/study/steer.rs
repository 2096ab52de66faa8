//! `POST /studies/{id}/pause`, `resume`, `extend` and `cancel`: what a user wants of a study. The scheduler takes it in within moments.

use super::wire;
use crate::auth::Caller;
use crate::body::Document;
use crate::clock;
use crate::problem::{Kind, Refusal};
use crate::query::{Named, Params};
use crate::state::App;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use muster_model::id::StudyId;
use muster_model::spec::FieldError;
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
/// One that has finished goes on.
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
    let mut tx = app.begin(&caller).await?;
    let limit = wire::shown(&mut tx, &caller, id).await?.trials.limit;
    let most = MAX_TRIALS.saturating_sub(limit);
    if !(1..=most).contains(&trials) {
        let error = FieldError {
            field: "trials".to_owned(),
            value: trials.to_string(),
            expected: format!(
                "1 to {most}: a study has {MAX_TRIALS} trials at most, and this one may have {limit}"
            ),
        };
        return Err(Refusal::of_fields(Kind::InvalidBody, vec![error]));
    }
    drop(tx);
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
    match study::order(&mut tx, id, &[order], clock::now()).await? {
        Outcome::Done => {}
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
