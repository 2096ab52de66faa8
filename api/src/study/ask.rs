//! `POST /studies/{id}/ask` and `tell`: trials that are trained outside of the cluster.

use super::wire;
use crate::auth::Caller;
use crate::body::ParsedBody;
use crate::clock;
use crate::idempotency::{self, IdempotencyCheck, IdempotencyKey};
use crate::problem::{ApiError, ProblemKind};
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use muster_model::id::StudyId;
use muster_model::spec::FieldError;
use muster_model::study::{StudyOrder, StudySpec, Told, ToldState, TrialPhase};
use muster_model::view::{self, Ask, Tell, TellAnswer, TrialResult};
use muster_store::StoreError;
use muster_store::study::outside::{self, StudyAskResult, TrialProgress};
use std::time::Duration;

const MOST: usize = 1000;
const LONGEST_WAIT_S: u32 = 20;
/// Shortest time between two polls for a trial in milliseconds: first and longest.
const APART_MS: (u64, u64) = (2, 100);
/// Poll interval without a notification, which may be lost with its sender.
const IDLE: Duration = Duration::from_secs(2);

/// Ask for trials to train outside
///
/// For a study without a `job`. Each trial is handed out once; report a trial whose trainer was
/// lost as `failed`. At most `concurrency` trials are handed out at a time, so the answer may
/// contain none until results are reported. A request that is repeated with the same
/// `Idempotency-Key` within 24 hours gets the same trials, so that no trial is lost with an answer.
#[utoipa::path(
    post, path = "/studies/{id}/ask", operation_id = "askStudy", tag = "studies",
    params(
        ("id" = StudyId, Path, description = "The study"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters, chosen by the client; one for each request for trials"),
    ),
    request_body = Ask,
    responses((status = 200, description = "The trials; the list may be empty", body = view::Asked)),
)]
pub async fn ask(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<StudyId>,
    Params(()): Params<()>,
    headers: HeaderMap,
    body: ParsedBody<Ask>,
) -> Result<Json<view::Asked>, ApiError> {
    let key = idempotency::key(&headers)?;
    let mut errors = Vec::new();
    bounds(&mut errors, "", body.value);
    if !errors.is_empty() {
        return Err(ApiError::of_fields(ProblemKind::InvalidBody, errors));
    }
    let given = given(&app, &caller, id, body.value, key).await?;
    Ok(Json(given.asked))
}

struct HandedOutTrials {
    asked: view::Asked,
    /// Whether this request handed out the trials: its commit then also made earlier commits
    /// durable.
    now: bool,
}

/// Returns trials once there are some. A key that was used before returns the same trials.
async fn given(
    app: &ApiState,
    caller: &Caller,
    id: StudyId,
    ask: Ask,
    key: Option<IdempotencyKey>,
) -> Result<HandedOutTrials, ApiError> {
    let request: [&[u8]; 3] = [b"ask", id.0.as_bytes(), &ask.count.to_le_bytes()];
    let began = clock::monotonic();
    let patience = Duration::from_secs(ask.wait_s.into());
    let mut woken = app.event_notifications.follow();
    let (mut apart_ms, longest_ms) = APART_MS;
    let mut place = None;
    loop {
        // Later notifications wake this loop.
        woken.mark_unchanged();
        let looked = clock::monotonic();
        let mut tx = app.begin(caller).await?;
        let what = "request for trials";
        let once = match idempotency::claim(&mut tx, caller, key.clone(), &request, what).await? {
            IdempotencyCheck::First(once) => once,
            IdempotencyCheck::Again(answered) => {
                let asked = answered.read().ok_or_else(|| {
                    let detail = "what was answered under this Idempotency-Key was kept by another release; use another key";
                    ApiError::new(ProblemKind::KeyReused, detail)
                })?;
                return Ok(HandedOutTrials { asked, now: false });
            }
        };
        let asked = outside::ask(&mut tx, id, ask.count, clock::now()).await?;
        let asked = asked.ok_or_else(|| wire::missing(id))?;
        if asked.has_job {
            return Err(trained_inside());
        }
        let StudyAskResult { phase, trials, .. } = asked;
        let (asked, now) = (view::Asked { trials, phase }, true);
        if !asked.trials.is_empty() {
            let kept = wire::written(&asked);
            once.keep(&mut tx, caller, StatusCode::OK, &kept).await?;
            // The next waiting request may query while this one waits for the disk: handed-out rows
            // are locked.
            drop(place);
            tx.commit().await.map_err(StoreError::from)?;
            return Ok(HandedOutTrials { asked, now });
        }
        // No trial was handed out, so nothing is stored: the same key may still get trials.
        drop(tx);
        let left = patience.saturating_sub(began.elapsed());
        if phase.is_over() || left.is_zero() {
            return Ok(HandedOutTrials { asked, now: false });
        }
        // The first query does not wait for the queue, so that a repeated request is answered at
        // once.
        if place.is_none() {
            let first = tokio::time::timeout(left, app.long_poll_queues.first(id)).await;
            place = first.ok();
        }
        let apart = Duration::from_millis(apart_ms);
        tokio::time::sleep(apart.saturating_sub(looked.elapsed()).min(left)).await;
        let left = patience.saturating_sub(began.elapsed());
        let _ = tokio::time::timeout(IDLE.min(left), woken.changed()).await;
        apart_ms = (apart_ms * 2).min(longest_ms);
    }
}

/// Report results of trials that were trained outside
///
/// Results are points of a curve (`running`), final values (`finished`) and failures. A repeated
/// result, or one of a trial that has ended, changes nothing. A `finished` trial has trained to its
/// budget. An earlier `step` is refused unless it is that of a completed rung or `exhausted` is
/// true. The answer lists the trials that should stop.
///
/// With `ask`, the answer also contains further trials, and is sent once there are some. The
/// `Idempotency-Key` then applies to `ask`; repeated results have no effect anyway.
#[utoipa::path(
    post, path = "/studies/{id}/tell", operation_id = "tellStudy", tag = "studies",
    params(
        ("id" = StudyId, Path, description = "The study"),
        ("Idempotency-Key" = Option<String>, Header, description = "With `ask`: 1 to 255 visible ASCII characters, chosen by the client; one for each request for trials"),
    ),
    request_body = Tell,
    responses((status = 202, description = "Stored; the scheduler reads it shortly after", body = TellAnswer)),
)]
pub async fn tell(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<StudyId>,
    Params(()): Params<()>,
    headers: HeaderMap,
    body: ParsedBody<Tell>,
) -> Result<(StatusCode, Json<TellAnswer>), ApiError> {
    let key = idempotency::key(&headers)?;
    let results = &body.value.results;
    let numbers: Vec<u32> = results.iter().map(|result| result.trial).collect();
    let mut tx = outside::begin(&app.pool, caller.tenant_id, id).await?;
    let open = outside::look(&mut tx, id, &numbers).await?;
    let open = open.ok_or_else(|| wire::missing(id))?;
    if open.document.job.is_some() {
        return Err(trained_inside());
    }
    let told = read(&open.document, &open.trials, &body.value)
        .map_err(|errors| ApiError::of_fields(ProblemKind::InvalidBody, errors))?;
    let orders: Vec<StudyOrder> = told
        .into_iter()
        .map(|told| StudyOrder::Tell { told })
        .collect();
    let done = outside::tell(tx, id, &open, &orders, clock::now()).await?;
    wire::ordered(done, id, &orders, "tell", "one that was not cancelled")?;
    let given = match body.value.ask {
        Some(ask) => Some(given(&app, &caller, id, ask, key).await?),
        None => None,
    };
    if given.as_ref().is_none_or(|given| !given.now) {
        outside::lasting(&app.pool).await?;
    }
    let stopped = open
        .trials
        .iter()
        .filter(|trial| matches!(trial.state, TrialPhase::Stopping | TrialPhase::Stopped))
        .map(|trial| trial.number);
    let answer = TellAnswer {
        stopped: stopped.collect(),
        asked: given.map(|given| given.asked),
    };
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

fn trained_inside() -> ApiError {
    let detail = "the study has a job, so the cluster trains its trials; ask and tell are for studies without one";
    ApiError::new(ProblemKind::WrongPhase, detail)
}

fn read(
    document: &StudySpec,
    trials: &[TrialProgress],
    Tell { results, ask }: &Tell,
) -> Result<Vec<Told>, Vec<FieldError>> {
    let mut errors = Vec::new();
    if let Some(ask) = ask {
        bounds(&mut errors, "ask.", *ask);
    }
    let count = u32::try_from(results.len()).unwrap_or(u32::MAX);
    within(&mut errors, "results", count, 1, MOST as u32);
    let mut told = Vec::with_capacity(results.len());
    for (i, result) in results.iter().enumerate() {
        let at = format!("results[{i}]");
        let Some(trial) = trials.iter().find(|one| one.number == result.trial) else {
            let expected = "the number of a trial that was asked for";
            errors.push(error(
                &format!("{at}.trial"),
                &result.trial.to_string(),
                expected,
            ));
            continue;
        };
        let values = values(document, &at, result, &mut errors);
        if let Err(expected) = came(trial, result) {
            let given = result.step.map(|step| step.to_string());
            let given = given.as_deref().unwrap_or("missing");
            errors.push(error(&format!("{at}.step"), given, &expected));
        }
        if result.exhausted && result.state != ToldState::Finished {
            let expected = "false: only a trial that has finished can be exhausted";
            errors.push(error(&format!("{at}.exhausted"), "true", expected));
        }
        told.push(Told {
            trial: result.trial,
            step: result.step.unwrap_or(0),
            values,
            state: result.state,
            exhausted: result.exhausted,
        });
    }
    if errors.is_empty() {
        Ok(told)
    } else {
        Err(errors)
    }
}

/// Whether the trial can have this progress; otherwise returns what is expected. A repeated result,
/// whose answer was lost, may concern a completed rung; the search knows it already.
fn came(trial: &TrialProgress, result: &TrialResult) -> Result<(), String> {
    let budget = trial.budget;
    match (result.state, result.step) {
        (ToldState::Failed, _) | (ToldState::Running, Some(_)) => Ok(()),
        (ToldState::Running, None) => {
            Err("the budget that the trial has trained so far".to_owned())
        }
        (ToldState::Finished, None) => Err(format!(
            "the budget that the trial has trained, such as {budget}; a repeated result is recognised by it"
        )),
        (ToldState::Finished, Some(step)) => {
            let ended = trial.ended.is_some_and(|ended| step <= ended);
            let runs = trial.state == TrialPhase::Running;
            if step >= budget || result.exhausted || ended || !runs {
                return Ok(());
            }
            Err(format!(
                "at least {budget}, the trial's budget; exhausted: true if it cannot train that far; state running for a point of its curve"
            ))
        }
    }
}

/// Returns one value per metric, in the order of the objectives.
fn values(
    document: &StudySpec,
    at: &str,
    result: &TrialResult,
    errors: &mut Vec<FieldError>,
) -> Vec<f64> {
    let objectives = &document.search.objectives;
    let wanted: Vec<&str> = objectives.iter().map(|one| one.metric.as_str()).collect();
    for name in result
        .values
        .keys()
        .filter(|name| !wanted.contains(&name.as_str()))
    {
        let expected = format!("one of the study's metrics, {}", wanted.join(", "));
        errors.push(error(&format!("{at}.values.{name}"), "given", &expected));
    }
    if result.state == ToldState::Failed {
        return Vec::new();
    }
    let found = wanted.iter().map(|name| {
        let value = result.values.get(*name).copied();
        if value.is_none() {
            let expected = "a number, because the study's objective is this metric";
            errors.push(error(&format!("{at}.values.{name}"), "missing", expected));
        }
        value.unwrap_or_default()
    });
    found.collect()
}

/// Checks the bounds of `ask`; `at` is the prefix of its fields in the body.
fn bounds(errors: &mut Vec<FieldError>, at: &str, ask: Ask) {
    within(errors, &format!("{at}count"), ask.count, 1, MOST as u32);
    within(
        errors,
        &format!("{at}wait_s"),
        ask.wait_s,
        0,
        LONGEST_WAIT_S,
    );
}

fn within(errors: &mut Vec<FieldError>, field: &str, value: u32, low: u32, high: u32) {
    if !(low..=high).contains(&value) {
        errors.push(error(
            field,
            &value.to_string(),
            &format!("{low} to {high}"),
        ));
    }
}

fn error(field: &str, value: &str, expected: &str) -> FieldError {
    FieldError {
        field: field.to_owned(),
        value: value.to_owned(),
        expected: expected.to_owned(),
    }
}
