//! `POST /jobs`: the document is read, checked, and kept; the next round sees it.

use super::{origin, wire};
use crate::auth::Caller;
use crate::body::Document;
use crate::clock;
use crate::problem::{Kind, Refusal};
use crate::query::{FromQuery, Params, Query};
use crate::state::App;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use muster_model::id::JobId;
use muster_model::job::{Intent, Job, JobState};
use muster_model::spec::JobSpec;
use muster_model::view::JobView;
use muster_model::wait::{Wait, Waiting};
use muster_store::StoreError;
use muster_store::idempotency::{self, Claim};
use muster_store::job::{self, NewJob};
use sha2::{Digest as _, Sha256};
use time::Duration;
use uuid::Uuid;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// How long an answer is kept for whoever sends the same key again.
pub(crate) const KEPT: Duration = Duration::hours(24);

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SubmitParams {
    /// Check the document and answer what would be submitted, without submitting it.
    #[param(required = false, default = false)]
    pub dry_run: bool,
}

impl FromQuery for SubmitParams {
    const NAMES: &'static [&'static str] = &["dry_run"];

    fn take(query: &mut Query) -> Self {
        Self {
            dry_run: query.one("dry_run", "true or false").unwrap_or(false),
        }
    }
}

/// Submit a job
///
/// The same document in JSON or YAML. A request with an `Idempotency-Key` that comes again within 24 hours gets the answer of the
/// first, with the header `Idempotency-Replayed: true`, and submits nothing. With `from` the job begins from a checkpoint of another
/// job of the tenant, its newest if no step is named.
#[utoipa::path(
    post, path = "/jobs", operation_id = "submitJob", tag = "jobs",
    params(
        SubmitParams,
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters, chosen by the client; one for each submission"),
    ),
    request_body(
        content((JobSpec = "application/json"), (JobSpec = "application/yaml")),
        description = "The job document, version `muster/v1`",
    ),
    responses(
        (status = 201, description = "Submitted", body = JobView, headers(("Location" = String, description = "Path of the job"))),
        (status = 200, description = "`dry_run`: the document is right; the id is all zeros and nothing was submitted", body = JobView),
    ),
)]
#[tracing::instrument(name = "api.job.submit", skip_all, fields(job.id))]
pub async fn submit(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<SubmitParams>,
    headers: HeaderMap,
    mut document: Document<JobSpec>,
) -> Result<Response, Refusal> {
    let key = key(&headers)?;
    if let Err(errors) = document.value.validate() {
        return Err(Refusal::of_fields(Kind::InvalidJob, errors));
    }
    if params.dry_run {
        if document.value.from.is_some() {
            let mut tx = app.begin(&caller).await?;
            origin::resolve(&mut tx, &mut document.value).await?;
        }
        let job = wire::job(
            wire::submitted(imagined(&caller, document.value), &caller.user_name),
            &caller.tenant_name,
        );
        return Ok((StatusCode::OK, axum::Json(job)).into_response());
    }
    let new = NewJob {
        id: clock::new_id().into(),
        tenant_id: caller.tenant_id,
        submitted_by: caller.user_id,
        spec: document.value,
    };
    let Some(key) = key else {
        if new.spec.from.is_some() {
            return of_another(&app, &caller, new).await;
        }
        let mut conn = app.pool.acquire().await.map_err(StoreError::from)?;
        let stored = job::submit(&mut conn, &new, clock::now()).await?;
        // Given back before the answer is written: others wait for it.
        drop(conn);
        let (id, body) = written(&caller, stored);
        return Ok(created(&app, id, body));
    };
    once(&app, &caller, &key, &document.bytes, new).await
}

/// Submits what begins from another job's checkpoint, which is looked at in the same transaction.
async fn of_another(app: &App, caller: &Caller, mut new: NewJob) -> Result<Response, Refusal> {
    let mut tx = app.begin(caller).await?;
    origin::resolve(&mut tx, &mut new.spec).await?;
    let stored = job::insert(&mut tx, &new, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let (id, body) = written(caller, stored);
    Ok(created(app, id, body))
}

/// Submits what was not submitted under this key before.
async fn once(
    app: &App,
    caller: &Caller,
    key: &str,
    document: &[u8],
    mut new: NewJob,
) -> Result<Response, Refusal> {
    let (tenant, now) = (caller.tenant_id, clock::now());
    let hash = Sha256::digest(document).into();
    let mut tx = app.begin(caller).await?;
    match idempotency::claim(&mut tx, tenant, key, &hash, now, now + KEPT).await? {
        Claim::New => {}
        Claim::Replay { status, body } => return Ok(replay(status, body)),
        Claim::Mismatch => {
            let detail = format!(
                "the key {key:?} was sent with another document before; send a new key with a new job"
            );
            return Err(Refusal::new(Kind::KeyReused, detail));
        }
    }
    origin::resolve(&mut tx, &mut new.spec).await?;
    let stored = job::insert(&mut tx, &new, now).await?;
    let (id, body) = written(caller, stored);
    idempotency::store(&mut tx, tenant, key, StatusCode::CREATED.as_u16(), &body).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(created(app, id, body))
}

fn written(caller: &Caller, stored: Job) -> (JobId, String) {
    let job = wire::job(
        wire::submitted(stored, &caller.user_name),
        &caller.tenant_name,
    );
    let body = serde_json::to_string(&job).expect("a job is JSON");
    (job.id, body)
}

/// The job is committed.
fn created(app: &App, id: JobId, body: String) -> Response {
    app.waker.ring();
    tracing::Span::current().record("job.id", tracing::field::display(id));
    answer(StatusCode::CREATED, Some(id), body)
}

pub(crate) fn key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(value) = headers.get(KEY) else {
        return Ok(None);
    };
    let visible = value
        .to_str()
        .ok()
        .filter(|text| (1..=255).contains(&text.len()));
    match visible {
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(Refusal::parameter(
            "Idempotency-Key",
            &format!("{value:?}"),
            "1 to 255 visible ASCII characters",
        )),
    }
}

fn imagined(caller: &Caller, spec: JobSpec) -> Job {
    Job {
        id: Uuid::nil().into(),
        tenant_id: caller.tenant_id,
        submitted_by: caller.user_id,
        spec,
        intent: Intent::Run,
        state: JobState::Queued,
        revision: 0,
        failures: 0,
        waiting: Some(Waiting {
            why: Wait::NotConsidered,
            smallest_change: None,
            position: 0,
        }),
        not_before: None,
        submitted_at: clock::now(),
        started_at: None,
        finished_at: None,
    }
}

fn replay(status: u16, body: String) -> Response {
    let id = serde_json::from_str::<JobView>(&body)
        .ok()
        .map(|job| job.id);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::CREATED);
    let mut response = answer(status, id, body);
    response
        .headers_mut()
        .insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

fn answer(status: StatusCode, id: Option<JobId>, body: String) -> Response {
    let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
    if let Some(place) = id.and_then(|id| HeaderValue::from_str(&format!("/api/v1/jobs/{id}")).ok())
    {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}
