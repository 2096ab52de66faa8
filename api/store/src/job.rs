//! Jobs as the API server uses them: submission, lists, intents and deletion. Only `plan::commit`
//! changes their states.
//!
//! Deletion hides a job from its tenant. [`crate::retention`] removes its rows later.

mod intent;

pub use intent::{DeleteOutcome, IntentOutcome, delete, set_intent, set_intent_where};

use crate::after;
use crate::array;
use crate::error::StoreError;
use crate::int_convert::{signed, unsigned, unsigned32};
use crate::limit;
use crate::page::{self, RowPage};
use crate::study::trial;
use muster_model::event::Event;
use muster_model::family::Family;
use muster_model::forecast::{Forecast, Interval, Unforeseen};
use muster_model::id::{JobId, StudyId, TenantId, UserId};
use muster_model::idle::IdleFinding;
use muster_model::job::{Intent, Job, JobPhase, JobState};
use muster_model::progress::{Evaluation, Filled, Sample};
use muster_model::spec::{After, JobSpec, Origin};
use muster_model::study::TrialPhase;
use muster_model::tenant::TenantLimits;
use muster_model::wait::{Wait, Waiting};
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    /// UUID version 7, because lists are sorted by it.
    pub id: JobId,
    pub tenant_id: TenantId,
    pub submitted_by: UserId,
    pub spec: JobSpec,
}

/// A job and the newest reports of its tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRow {
    pub job: Job,
    pub latest: Option<Sample>,
    /// Time at which `latest` was taken.
    pub sample_at: Option<OffsetDateTime>,
    pub latest_evaluation: Option<Evaluation>,
    /// Number of workers whose process runs.
    pub workers: u32,
    /// Number of PS shards whose process runs.
    pub ps_shards: u32,
    /// Path of the final model, relative to the checkpoint root; set once the job has succeeded.
    pub model_path: Option<String>,
    /// Name of the user that submitted the job.
    pub submitted_by: String,
    /// Newest forecast; `None` before the first and after the end.
    pub forecast: Option<Forecast>,
    /// Newest step from which the job can continue.
    pub resume_step: Option<u64>,
    /// Whether a command starts from the beginning: it has reported no checkpoint, and no start of
    /// it has continued from one. It then repeats the steps of `latest`.
    pub begins_anew: bool,
    /// Number of edits by the owner.
    pub edits: u64,
    /// Reason of the newest failure that was charged to the retries.
    pub last_failure: Option<String>,
    /// Number of consecutive placement rejections.
    pub put_off: u32,
    /// Idleness that the history states.
    pub idle: Option<IdleFinding>,
    /// Study of the trial, number of the trial and its phase in the study.
    pub trial: Option<(StudyId, u32, TrialPhase)>,
}

/// Filter of jobs. An empty field matches every job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFilter {
    /// Matches jobs with one of these ids.
    pub ids: Vec<JobId>,
    pub phases: Vec<JobPhase>,
    /// Matches jobs with all of these labels and values.
    pub labels: BTreeMap<String, String>,
    pub name: Option<String>,
    /// Matches jobs whose id, without hyphens, ends with these lowercase hexadecimal digits.
    pub short_id: Option<String>,
    /// Matches jobs that the user of this name has submitted.
    pub user: Option<String>,
    pub submitted_since: Option<OffsetDateTime>,
    /// Whether jobs that are trials of studies are left out.
    pub is_without_trials: bool,
}

struct JobSqlRow {
    id: Uuid,
    tenant_id: Uuid,
    submitted_by: Uuid,
    spec: Json<JobSpec>,
    intent: String,
    state: Json<JobState>,
    revision: i64,
    edits: i64,
    failures: i32,
    last_failure: Option<String>,
    put_off: i32,
    idle: Option<Json<IdleFinding>>,
    waiting: Option<Json<Waiting>>,
    not_before: Option<OffsetDateTime>,
    submitted_at: OffsetDateTime,
    started_at: Option<OffsetDateTime>,
    finished_at: Option<OffsetDateTime>,
    latest: Option<Json<Filled<Sample>>>,
    sample_at: Option<OffsetDateTime>,
    latest_evaluation: Option<Json<Filled<Evaluation>>>,
    workers: i64,
    ps_shards: i64,
    model_path: Option<String>,
    user_name: String,
    resume_step: Option<i64>,
    begins_anew: bool,
    forecast_at: Option<OffsetDateTime>,
    start_p10: Option<OffsetDateTime>,
    start_p50: Option<OffsetDateTime>,
    start_p90: Option<OffsetDateTime>,
    finish_p10: Option<OffsetDateTime>,
    finish_p50: Option<OffsetDateTime>,
    finish_p90: Option<OffsetDateTime>,
    gpu_s: Option<f64>,
    unforeseen: Option<String>,
    study_id: Option<Uuid>,
    trial: Option<i32>,
    trial_state: Option<String>,
}

/// The columns and joins of every query of jobs. A macro, because `query_as!` takes only literals.
macro_rules! select_jobs {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            JobSqlRow,
            r#"select j.id, j.tenant_id, j.submitted_by, j.spec as "spec: Json<JobSpec>", j.intent,
                   j.state as "state: Json<JobState>", j.revision, j.edits, j.failures, j.last_failure, j.put_off, j.idle as "idle: Json<IdleFinding>",
                   j.waiting as "waiting: Json<Waiting>", j.not_before, j.submitted_at, j.started_at, j.finished_at,
                   j.latest as "latest: Json<Filled<Sample>>", j.sample_at,
                   j.latest_evaluation as "latest_evaluation: Json<Filled<Evaluation>>",
                   live.workers as "workers!", live.ps_shards as "ps_shards!",
                   case when j.phase = 'succeeded' then nullif(j.finished ->> 'model_path', '') end as "model_path",
                   u.name as user_name, newest.step as "resume_step?",
                   (jsonb_typeof(j.spec -> 'command') is not distinct from 'object' and j.resumed = 0 and j.reported_at is null
                       and (j.phase in ('queued', 'paused') or (j.phase in ('starting', 'running') and j.revision_samples = 0))) as "begins_anew!",
                   f.made_at as "forecast_at?",
                   f.start_p10 as "start_p10?", f.start_p50 as "start_p50?", f.start_p90 as "start_p90?",
                   f.finish_p10 as "finish_p10?", f.finish_p50 as "finish_p50?", f.finish_p90 as "finish_p90?",
                   f.gpu_s as "gpu_s?", f.unforeseen as "unforeseen?", j.study_id, j.trial, t.state as "trial_state?"
               from job j
               join app_user u on u.id = j.submitted_by
               left join study_trial t on t.job_id = j.id
               cross join lateral (
                   select count(*) filter (where role = 'worker') as workers,
                          count(*) filter (where role = 'ps_shard') as ps_shards
                   from task
                   where job_id = j.id and revision = j.revision and phase in ('running', 'suspending', 'suspended', 'stopping', 'ending')
               ) live
               cross join lateral (
                   select max(step) as step from checkpoint where job_id = j.id and retained
               ) newest
               left join lateral (
                   select * from forecast
                   where job_id = j.id and j.phase not in ('succeeded', 'failed', 'cancelled')
                   order by made_at desc limit 1
               ) f on true "# + $rest,
            $($argument),*
        )
    };
}

/// The statement of both ways to submit. Job and event are selected from the `scope` row, so the
/// scope is set before they are written. They are not written if the tenant was deleted.
macro_rules! insert_job {
    ($scope:literal, $job:ident, $event:ident, $now:ident $(,)?) => {
        sqlx::query!(
            "with " + $scope + ", begun as materialized (select from scope where muster_admit_job($2::uuid, $17, $18, $19)), submitted as (
                 insert into job (id, tenant_id, submitted_by, name, labels, priority, spec, intent, phase, state, waiting, submitted_at,
                                  origin_job, origin_step, document_bytes, family, not_before)
                 select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $15, $16, $17, $20, $21 from begun
             )
             insert into event (at, tenant_id, job_id, kind, body) select $12, $2, $1, $13, $14 from begun",
            $job.id.0,
            $job.tenant_id.0,
            $job.submitted_by.0,
            $job.spec.name,
            Json(&$job.spec.labels) as _,
            $job.spec.priority(),
            Json(&$job.spec) as _,
            $job.intent.as_str(),
            $job.state.phase().as_str(),
            Json(&$job.state) as _,
            Json(&$job.waiting) as _,
            $now,
            $event.kind(),
            Json(&$event) as _,
            $job.spec.from.map(|from| from.job.0),
            $job.spec.from.map(|from| origin_step(&from)),
            signed(limit::document_bytes(&$job.spec)),
            signed(TenantLimits::DEFAULT.open_jobs),
            signed(TenantLimits::DEFAULT.open_job_bytes),
            Family::of(&$job.spec).map(|family| family.key()),
            $job.not_before
        )
    };
}

/// Returns the step of the checkpoint from which a job begins.
///
/// # Panics
/// If the step is missing: the caller of the submission must fill it in.
fn origin_step(from: &Origin) -> i64 {
    signed(from.step.expect("filled in before the job is stored"))
}

/// Stores a job and its first event in one round trip, and returns the job.
///
/// Sends no notification. A NOTIFY holds a lock of the whole database during its commit, so
/// submissions could not share a flush of the write-ahead log. The caller sends `notify::send(..,
/// &[Rounds, Events])` after the commit, once for many submissions. A lost notification only delays
/// the job until the next timed round.
///
/// # Errors
/// [`StoreError::TenantDeleted`], [`StoreError::Exceeded`], [`StoreError::Statement`].
pub async fn insert(
    conn: &mut PgConnection,
    new: &NewJob,
    now: OffsetDateTime,
) -> Result<Job, StoreError> {
    insert_after(conn, new, &[], now).await
}

/// Does the same as [`insert`] for a job that starts after others have ended, or with an array. The
/// caller has locked the others ([`after::lock`]); `unmet` are those that have not ended.
///
/// # Errors
/// [`StoreError::TenantDeleted`], [`StoreError::Exceeded`], [`StoreError::Statement`].
pub async fn insert_after(
    conn: &mut PgConnection,
    new: &NewJob,
    unmet: &[After],
    now: OffsetDateTime,
) -> Result<Job, StoreError> {
    let (mut job, event) = submitted(new, now);
    let array = new.spec.array.as_ref();
    let held = match array {
        Some(array) => array::is_held(conn, new.tenant_id, array).await?,
        None => false,
    };
    if let Some(array) = array.filter(|_| held) {
        job.not_before = Some(after::after_jobs());
        job.waiting = Some(Waiting {
            why: Wait::WaitingForArray {
                limit: array.parallel,
            },
            ..not_considered()
        });
    }
    if !unmet.is_empty() {
        let jobs = unmet.iter().map(|after| after.job).collect();
        job.not_before = Some(after::after_jobs());
        job.waiting = Some(Waiting {
            why: Wait::WaitingForJobs { jobs },
            ..not_considered()
        });
    }
    let done = insert_job!("scope as (select)", job, event, now)
        .execute(&mut *conn)
        .await
        .map_err(limit::refused)?;
    if done.rows_affected() == 0 {
        return Err(StoreError::TenantDeleted);
    }
    if !unmet.is_empty() {
        after::insert(conn, job.id, job.tenant_id, unmet).await?;
    }
    if let Some(array) = array {
        array::insert(conn, (job.tenant_id, job.id), array, held).await?;
    }
    Ok(job)
}

/// Does the same as [`insert`] in a transaction of the statement itself, which acts for the job's
/// tenant. Not for jobs with `after` or an array. This saves two of three round trips.
///
/// The statement sets the tenant before it writes the first row, because each row is selected from
/// the row that sets the tenant. The scope ends with the statement.
///
/// # Errors
/// [`StoreError::TenantDeleted`], [`StoreError::Exceeded`], [`StoreError::Statement`].
pub async fn submit(
    conn: &mut PgConnection,
    new: &NewJob,
    now: OffsetDateTime,
) -> Result<Job, StoreError> {
    let (job, event) = submitted(new, now);
    let done = insert_job!(
        "scope as materialized (select set_config('muster.tenant', $2::uuid::text, true))",
        job,
        event,
        now
    )
    .execute(conn)
    .await
    .map_err(limit::refused)?;
    match done.rows_affected() {
        0 => Err(StoreError::TenantDeleted),
        _ => Ok(job),
    }
}

/// Returns a job; `None` if it is not in scope or was deleted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn get(conn: &mut PgConnection, id: JobId) -> Result<Option<JobRow>, StoreError> {
    let row = select_jobs!("where j.id = $1 and j.deleted_at is null", id.0)
        .fetch_optional(conn)
        .await?;
    Ok(row.map(JobRow::from))
}

/// Whether a task of the job that has not ended is a pod.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn is_in_pods(conn: &mut PgConnection, id: JobId) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar!(
        r#"select exists (select from task t join node n on n.id = t.node_id
                          where t.job_id = $1 and t.released_at is null and coalesce((n.capacity ->> 'pods')::boolean, false)) as "found!""#,
        id.0
    )
    .fetch_one(conn)
    .await?;
    Ok(found)
}

/// Returns the documents of these jobs, each with the path of the trained model if the job has
/// succeeded. Jobs that were deleted or are not in scope are omitted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn trained(
    conn: &mut PgConnection,
    ids: &[JobId],
) -> Result<BTreeMap<JobId, (JobSpec, Option<String>)>, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query!(
        r#"select id, spec as "spec: Json<JobSpec>", case when phase = 'succeeded' then nullif(finished ->> 'model_path', '') end as model_path
           from job where id = any($1) and deleted_at is null"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    let found = rows
        .into_iter()
        .map(|row| (row.id.into(), (row.spec.0, row.model_path)));
    Ok(found.collect())
}

/// Returns jobs, newest first, starting behind the job `after`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(
    conn: &mut PgConnection,
    filter: &JobFilter,
    after: Option<JobId>,
    limit: u32,
) -> Result<RowPage<JobRow>, StoreError> {
    let phases: Vec<String> = filter
        .phases
        .iter()
        .map(|phase| phase.as_str().to_owned())
        .collect();
    let ids: Vec<Uuid> = filter.ids.iter().map(|id| id.0).collect();
    let rows = select_jobs!(
        "where j.deleted_at is null
           and ($1::uuid is null or j.id < $1)
           and (cardinality($6::uuid[]) = 0 or j.id = any($6))
           and (cardinality($2::text[]) = 0 or j.phase = any($2))
           and j.labels @> $3
           and ($4::text is null or j.name = $4)
           and ($7::text is null or right(replace(j.id::text, '-', ''), length($7)) = $7)
           and ($8::text is null or u.name = $8)
           and ($9::timestamptz is null or j.submitted_at >= $9)
           and not ($10 and j.study_id is not null)
         order by j.id desc limit $5",
        after.map(Uuid::from),
        &phases,
        Json(&filter.labels) as _,
        filter.name,
        i64::from(limit) + 1,
        &ids,
        filter.short_id,
        filter.user,
        filter.submitted_since,
        filter.is_without_trials
    )
    .fetch(conn);
    page::read(rows, limit, |row: &JobRow| page::json_bytes(&row.job.spec)).await
}

fn submitted(new: &NewJob, now: OffsetDateTime) -> (Job, Event) {
    let job = Job {
        id: new.id,
        tenant_id: new.tenant_id,
        submitted_by: new.submitted_by,
        spec: new.spec.clone(),
        intent: Intent::Run,
        state: JobState::Queued,
        revision: 0,
        failures: 0,
        waiting: Some(not_considered()),
        not_before: None,
        submitted_at: now,
        started_at: None,
        finished_at: None,
    };
    let event = Event::JobSubmitted {
        name: new.spec.name.clone(),
    };
    (job, event)
}

/// Wait reason of a job until a round has considered it.
pub(crate) fn not_considered() -> Waiting {
    Waiting {
        why: Wait::NotConsidered,
        smallest_change: None,
        position: 0,
    }
}

pub(crate) fn intent(text: &str) -> Intent {
    match text {
        "run" => Intent::Run,
        "suspend" => Intent::Suspend,
        "pause" => Intent::Pause,
        "cancel" => Intent::Cancel,
        other => unreachable!("a constraint keeps {other:?} out of the column"),
    }
}

impl From<JobSqlRow> for JobRow {
    fn from(row: JobSqlRow) -> Self {
        Self {
            forecast: forecast(&row),
            job: Job {
                id: row.id.into(),
                tenant_id: row.tenant_id.into(),
                submitted_by: row.submitted_by.into(),
                spec: row.spec.0,
                intent: intent(&row.intent),
                state: row.state.0,
                revision: unsigned(row.revision),
                failures: unsigned32(row.failures),
                waiting: row.waiting.map(|waiting| waiting.0),
                not_before: row.not_before,
                submitted_at: row.submitted_at,
                started_at: row.started_at,
                finished_at: row.finished_at,
            },
            latest: row.latest.map(|latest| latest.0.0),
            sample_at: row.sample_at,
            latest_evaluation: row.latest_evaluation.map(|evaluation| evaluation.0.0),
            workers: u32::try_from(row.workers).expect("a job has at most 2048 tasks"),
            ps_shards: u32::try_from(row.ps_shards).expect("a job has at most 2048 tasks"),
            model_path: row.model_path,
            submitted_by: row.user_name,
            edits: unsigned(row.edits),
            last_failure: row.last_failure,
            idle: row.idle.map(|idle| idle.0),
            put_off: unsigned32(row.put_off),
            resume_step: row.resume_step.map(unsigned),
            begins_anew: row.begins_anew,
            trial: row.study_id.zip(row.trial).zip(row.trial_state).map(
                |((study, number), state)| (study.into(), unsigned32(number), trial::phase(&state)),
            ),
        }
    }
}

fn forecast(row: &JobSqlRow) -> Option<Forecast> {
    let made_at = row.forecast_at?;
    Some(Forecast {
        made_at,
        start: interval([row.start_p10, row.start_p50, row.start_p90], made_at),
        finish: interval([row.finish_p10, row.finish_p50, row.finish_p90], made_at),
        gpu_s: row.gpu_s?,
        unforeseen: row.unforeseen.as_deref().map(Unforeseen::from_name),
    })
}

/// Returns the interval of the 10th, the 50th and the 90th percentile, if the row has them.
fn interval(percentiles: [Option<OffsetDateTime>; 3], made_at: OffsetDateTime) -> Option<Interval> {
    let [p10, p50, p90] = percentiles;
    Some(Interval::of((p10?, p50?, p90?), made_at))
}
