//! `POST /studies/{id}/propose`: a searcher outside chooses trials, which the study trains as
//! usual.

use super::wire;
use crate::auth::Caller;
use crate::body::ParsedBody;
use crate::idempotency::{self, IdempotencyCheck};
use crate::problem::{ApiError, ProblemKind};
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use muster_model::id::StudyId;
use muster_model::spec::FieldError;
use muster_model::study::{Parameters, Point, Searcher, Space, StudyOrder};
use muster_model::view::{Proposal, StudyView};
use muster_store::StoreError;

const MOST: usize = 1000;

/// Propose trials to a study whose searcher is `external`
///
/// Trials are created and numbered in this order, within the study's `concurrency`. The list of the
/// study's trials contains their results. Proposals beyond the study's number of trials wait until
/// it is extended; at most 10,000 wait. A request that is repeated with the same `Idempotency-Key`
/// within 24 hours gets the answer of the first one, with the header `Idempotency-Replayed: true`,
/// and proposes nothing.
#[utoipa::path(
    post, path = "/studies/{id}/propose", operation_id = "proposeTrials", tag = "studies",
    params(
        ("id" = StudyId, Path, description = "The study"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters, chosen by the client; one for each proposal"),
    ),
    request_body = Proposal,
    responses((status = 202, description = "Stored; the scheduler reads it shortly after", body = StudyView)),
)]
pub async fn propose(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<StudyId>,
    Params(()): Params<()>,
    headers: HeaderMap,
    body: ParsedBody<Proposal>,
) -> Result<Response, ApiError> {
    let key = idempotency::key(&headers)?;
    let mut tx = app.begin(&caller).await?;
    let request: [&[u8]; 3] = [b"propose", id.0.as_bytes(), &body.bytes];
    let once = match idempotency::claim(&mut tx, &caller, key, &request, "proposal").await? {
        IdempotencyCheck::First(once) => once,
        IdempotencyCheck::Again(answered) => return Ok(answered.answer(|_: StudyView| None)),
    };
    let study = wire::document(&mut tx, id).await?;
    if !matches!(study.search.searcher, Searcher::External {}) {
        let detail = "the study's own searcher proposes its trials; propose is for studies with searcher external";
        return Err(ApiError::new(ProblemKind::WrongPhase, detail));
    }
    let space = study.search.space();
    let space = space.map_err(|errors| ApiError::of_fields(ProblemKind::InvalidStudy, errors))?;
    let parameters = body.value.trials.into_iter().map(|one| one.parameters);
    let points = points(&space, parameters.collect())
        .map_err(|errors| ApiError::of_fields(ProblemKind::InvalidBody, errors))?;
    let order = StudyOrder::Propose { points };
    wire::order(&mut tx, id, &[order], "propose", "one that is not over").await?;
    let shown = wire::shown(&mut tx, &caller, id).await?;
    let (status, body) = (StatusCode::ACCEPTED, wire::written(&shown));
    once.keep(&mut tx, &caller, status, &body).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(idempotency::answer(status, None, body))
}

fn points(space: &Space, given: Vec<Parameters>) -> Result<Vec<Point>, Vec<FieldError>> {
    if !(1..=MOST).contains(&given.len()) {
        let value = format!("{} trials", given.len());
        return Err(vec![error("trials".to_owned(), value, "1 to 1000 trials")]);
    }
    let mut errors = Vec::new();
    let mut points = Vec::with_capacity(given.len());
    for (i, parameters) in given.iter().enumerate() {
        match space.read(parameters) {
            Some(point) => points.push(point),
            None => errors.push(error(
                format!("trials[{i}].parameters"),
                serde_json::to_string(parameters).unwrap_or_default(),
                "a value of its range for each parameter whose condition holds, no others, and no constraint broken",
            )),
        }
    }
    if errors.is_empty() {
        Ok(points)
    } else {
        Err(errors)
    }
}

fn error(field: String, value: String, expected: &str) -> FieldError {
    FieldError {
        field,
        value,
        expected: expected.to_owned(),
    }
}
