//! `POST /studies`: the document, its search space and its job are checked and stored; the
//! scheduler starts the study.

use super::wire;
use crate::auth::Caller;
use crate::body::ParsedBody;
use crate::clock;
use crate::idempotency::{self, IdempotencyCheck};
use crate::problem::{ApiError, ProblemKind};
use crate::query::{FromQuery, Params, Query};
use crate::state::ApiState;
use crate::tenant_rules::RestrictedParts;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use muster_model::id::StudyId;
use muster_model::study::{StudyPhase, StudySpec};
use muster_model::view::{StudyView, TrialCounts};
use muster_store::StoreError;
use muster_store::study::{self, NewStudy};
use uuid::Uuid;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CreateParams {
    /// Check the document and answer with the study, without creating it.
    #[param(required = false, default = false)]
    pub dry_run: bool,
}

impl FromQuery for CreateParams {
    const NAMES: &'static [&'static str] = &["dry_run"];

    fn take(query: &mut Query) -> Self {
        Self {
            dry_run: query.one("dry_run", "true or false").unwrap_or(false),
        }
    }
}

/// Create a study
///
/// The document may be JSON or YAML. Each error of the search space, the search or the trials' job
/// names its field. A request that is repeated with the same `Idempotency-Key` within 24 hours gets
/// the answer of the first one, with the header `Idempotency-Replayed: true`, and creates nothing.
#[utoipa::path(
    post, path = "/studies", operation_id = "createStudy", tag = "studies",
    params(
        CreateParams,
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters, chosen by the client; one for each study"),
    ),
    request_body(
        content((StudySpec = "application/json"), (StudySpec = "application/yaml")),
        description = "The study document, version `muster/v1`",
    ),
    responses(
        (status = 201, description = "Created", body = StudyView, headers(("Location" = String, description = "Path of the study"))),
        (status = 200, description = "`dry_run`: the document is valid; the id is all zeros and nothing was created", body = StudyView),
    ),
)]
#[tracing::instrument(name = "api.study.create", skip_all)]
pub async fn create(
    State(app): State<ApiState>,
    caller: Caller,
    Params(params): Params<CreateParams>,
    headers: HeaderMap,
    document: ParsedBody<StudySpec>,
) -> Result<Response, ApiError> {
    let key = idempotency::key(&headers)?;
    let mut document = checked(document).await?;
    let restricted = RestrictedParts::of_study(&document.value);
    if params.dry_run {
        if !restricted.is_empty() {
            let mut tx = app.begin(&caller).await?;
            let priority = restricted.check(&app, &mut tx, &caller).await?;
            document.value.set_priority(priority);
        }
        let imagined = imagined(&caller, document.value);
        return Ok((StatusCode::OK, axum::Json(imagined)).into_response());
    }
    let mut tx = app.begin(&caller).await?;
    // A job and a study under one key are different requests.
    let request: [&[u8]; 2] = [b"study", &document.bytes];
    let once = match idempotency::claim(&mut tx, &caller, key, &request, "study").await? {
        IdempotencyCheck::First(once) => once,
        IdempotencyCheck::Again(answered) => {
            return Ok(answered.answer(|one: StudyView| Some(place(one.id))));
        }
    };
    let priority = restricted.check(&app, &mut tx, &caller).await?;
    if !restricted.is_empty() {
        document.value.set_priority(priority);
    }
    let new = NewStudy {
        id: clock::new_id().into(),
        tenant_id: caller.tenant_id,
        created_by: caller.user_id,
        document: document.value,
    };
    study::insert(&mut tx, &new, clock::now()).await?;
    let shown = wire::shown(&mut tx, &caller, new.id).await?;
    let (status, body) = (StatusCode::CREATED, wire::written(&shown));
    once.keep(&mut tx, &caller, status, &body).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(idempotency::answer(status, Some(&place(new.id)), body))
}

fn place(id: StudyId) -> String {
    format!("/api/v1/studies/{id}")
}

/// Validates the document on a blocking thread. With many parameters and a large job this takes
/// long.
async fn checked(document: ParsedBody<StudySpec>) -> Result<ParsedBody<StudySpec>, ApiError> {
    let checked = tokio::task::spawn_blocking(move || match document.value.validate() {
        Ok(_) => Ok(document),
        Err(errors) => Err(ApiError::of_fields(ProblemKind::InvalidStudy, errors)),
    });
    match checked.await {
        Ok(checked) => checked,
        Err(broken) => std::panic::resume_unwind(broken.into_panic()),
    }
}

fn imagined(caller: &Caller, document: StudySpec) -> StudyView {
    StudyView {
        id: Uuid::nil().into(),
        tenant: caller.tenant_name.clone(),
        name: document.name.clone(),
        labels: document.labels.clone(),
        phase: StudyPhase::Created,
        trials: TrialCounts {
            limit: document.search.trials,
            ..TrialCounts::default()
        },
        best: Vec::new(),
        events: 0,
        created_by: caller.user_name.clone(),
        created_at: clock::now(),
        finished_at: None,
        document,
    }
}
