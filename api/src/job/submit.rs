//! `POST /jobs`: the document is parsed, checked and stored; the next round considers it.

use super::{after, origin, wire};
use crate::auth::Caller;
use crate::body::ParsedBody;
use crate::clock;
use crate::idempotency::{self, IdempotencyCheck, IdempotencyKey};
use crate::problem::{ApiError, ProblemKind};
use crate::query::{FromQuery, Params, Query};
use crate::state::ApiState;
use crate::tenant_rules::RestrictedParts;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use muster_model::id::JobId;
use muster_model::job::{Intent, Job, JobState};
use muster_model::spec::{After, JobSpec};
use muster_model::view::JobView;
use muster_model::wait::{Wait, Waiting};
use muster_store::job::{self, NewJob};
use muster_store::limit;
use muster_store::{PgConnection, StoreError};
use uuid::Uuid;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SubmitParams {
    /// Check the document and answer with the job, without submitting it.
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
/// The document may be JSON or YAML. A request that is repeated with the same `Idempotency-Key`
/// within 24 hours gets the answer of the first one, with the header `Idempotency-Replayed: true`,
/// and submits nothing. With `from` the job starts from a checkpoint of another job of the tenant,
/// by default from the newest.
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
        (status = 200, description = "`dry_run`: the document is valid; the id is all zeros and nothing was submitted", body = JobView),
    ),
)]
#[tracing::instrument(name = "api.job.submit", skip_all, fields(job.id))]
pub async fn submit(
    State(app): State<ApiState>,
    caller: Caller,
    Params(params): Params<SubmitParams>,
    headers: HeaderMap,
    document: ParsedBody<JobSpec>,
) -> Result<Response, ApiError> {
    let submission = Submission {
        key: idempotency::key(&headers)?,
        request: &[&document.bytes],
        dry_run: params.dry_run,
    };
    carry_out(&app, &caller, submission, document.value).await
}

/// A request for a job, without its document.
pub(crate) struct Submission<'a> {
    pub key: Option<IdempotencyKey>,
    /// Everything that identifies the request under its key.
    pub request: &'a [&'a [u8]],
    pub dry_run: bool,
}

/// Submits a job and returns the answer.
pub(crate) async fn carry_out(
    app: &ApiState,
    caller: &Caller,
    submission: Submission<'_>,
    spec: JobSpec,
) -> Result<Response, ApiError> {
    let mut new = new_job(caller, spec)?;
    if !asks_the_store(&new.spec) {
        new.spec.priority = Some(new.spec.priority());
    }
    if submission.dry_run {
        if asks_the_store(&new.spec) {
            let mut tx = app.begin(caller).await?;
            checked(app, &mut tx, caller, &mut new.spec).await?;
        }
        let job = wire::job(
            wire::submitted(imagined(caller, new.spec), &caller.user_name),
            &caller.tenant_name,
        );
        return Ok((StatusCode::OK, axum::Json(job)).into_response());
    }
    let Submission { key, request, .. } = submission;
    if key.is_none() && !asks_the_store(&new.spec) {
        let mut conn = app.pool.acquire().await.map_err(StoreError::from)?;
        let stored = job::submit(&mut conn, &new, clock::now()).await?;
        // Released before the answer is written, because other requests wait for a connection.
        drop(conn);
        let (id, body) = written(caller, stored);
        return Ok(created(app, id, body));
    }
    let mut tx = app.begin(caller).await?;
    let once = match idempotency::claim(&mut tx, caller, key, request, "job").await? {
        IdempotencyCheck::First(once) => once,
        IdempotencyCheck::Again(answered) => {
            return Ok(answered.answer(|job: JobView| Some(place(job.id))));
        }
    };
    let stored = begun(app, &mut tx, caller, new).await?;
    let (id, body) = written(caller, stored);
    once.keep(&mut tx, caller, StatusCode::CREATED, &body)
        .await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(created(app, id, body))
}

/// Refuses a document that is not well formed.
pub(crate) fn validate(spec: &JobSpec) -> Result<(), ApiError> {
    let invalid = |errors| ApiError::of_fields(ProblemKind::InvalidJob, errors);
    spec.validate().map_err(invalid)
}

/// Returns a new job of the caller with a well-formed document.
pub(crate) fn new_job(caller: &Caller, spec: JobSpec) -> Result<NewJob, ApiError> {
    validate(&spec)?;
    Ok(NewJob {
        id: clock::new_id().into(),
        tenant_id: caller.tenant_id,
        submitted_by: caller.user_id,
        spec,
    })
}

/// Inserts a job after checks in the same transaction.
pub(crate) async fn begun(
    app: &ApiState,
    conn: &mut PgConnection,
    caller: &Caller,
    mut new: NewJob,
) -> Result<Job, ApiError> {
    let unmet = checked(app, conn, caller, &mut new.spec).await?;
    Ok(job::insert_after(conn, &new, &unmet, clock::now()).await?)
}

/// Whether the document needs a query: for other jobs that it names or its array, for the limit of
/// GPUs of interactive jobs, for the tenant's pod permissions and caps on preemption, or for the
/// priority classes.
fn asks_the_store(spec: &JobSpec) -> bool {
    spec.from.is_some()
        || !spec.after.is_empty()
        || spec.array.is_some()
        || spec.interactive.is_some()
        || !RestrictedParts::of_job(spec).is_empty()
}

/// Completes the document, and returns the jobs that must end before the job starts.
pub(crate) async fn checked(
    app: &ApiState,
    conn: &mut PgConnection,
    caller: &Caller,
    spec: &mut JobSpec,
) -> Result<Vec<After>, ApiError> {
    spec.priority = Some(
        RestrictedParts::of_job(spec)
            .check(app, conn, caller)
            .await?,
    );
    if spec.interactive.is_some() {
        let gpus = spec.resources.worker.gpus;
        limit::admit_interactive(conn, caller.tenant_id, gpus).await?;
    }
    origin::resolve(conn, spec).await?;
    after::unmet(conn, spec).await
}

pub(crate) fn written(caller: &Caller, stored: Job) -> (JobId, String) {
    let job = wire::job(
        wire::submitted(stored, &caller.user_name),
        &caller.tenant_name,
    );
    let body = serde_json::to_string(&job).expect("a job is JSON");
    (job.id, body)
}

/// Answers after the commit, and notifies the scheduler.
pub(crate) fn created(app: &ApiState, id: JobId, body: String) -> Response {
    app.commit_notifier.notify();
    tracing::Span::current().record("job.id", tracing::field::display(id));
    idempotency::answer(StatusCode::CREATED, Some(&place(id)), body)
}

pub(crate) fn place(id: JobId) -> String {
    format!("/api/v1/jobs/{id}")
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
