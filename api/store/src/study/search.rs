//! Reads and writes of a step of a study's search. One transaction writes all results of a step:
//! events, state, trials, and new, extended or stopped jobs.

use super::measured::{self, LoggedObjective};
use crate::error::StoreError;
use crate::event::{self, of_job};
use crate::int_convert::{signed, signed32, unsigned, unsigned32};
use crate::job::{self, NewJob, not_considered};
use crate::limit;
use crate::objective;
use muster_model::event::Event;
use muster_model::id::{JobId, StudyId, TenantId, UserId};
use muster_model::job::{JobEvent, JobState};
use muster_model::progress::{Evaluation, Filled, Sample};
use muster_model::spec::{JobSpec, Origin};
use muster_model::study::{StudyOrder, StudySpec};
use muster_model::tenant::TenantLimits;
use serde_json::value::RawValue;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use time::OffsetDateTime;

/// A study as it was read.
#[derive(Debug, Clone)]
pub struct StoredStudy {
    pub tenant_id: TenantId,
    pub created_by: UserId,
    pub document: StudySpec,
    pub phase: String,
    pub cancelled: bool,
    /// Number of events that the search has applied.
    pub seq: u64,
    /// Number of these events that the stored snapshot contains.
    pub state_seq: u64,
}

/// Facts about the job of a trial that holds a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialJobFacts {
    pub number: u32,
    pub job_id: JobId,
    pub state: JobState,
    pub spec: JobSpec,
    /// Optimizer step at which the training ended, if the job has reported it.
    pub finished_step: Option<u64>,
    pub latest: Option<Sample>,
    /// Newest evaluation, also if the search knows it.
    pub latest_evaluation: Option<Evaluation>,
    /// Evaluations that the search does not know yet, by step, each with the newest sample up to
    /// it.
    pub evaluations: Vec<(Evaluation, Option<Sample>)>,
    /// Step up to which the search knows the measurements; `None` before the first.
    pub known_step: Option<u64>,
    /// Values of objectives that only the program logs: those after `known_step`, and the newest
    /// one of each name up to it. By step, each with the job's curve at that step.
    pub logged: Vec<LoggedObjective>,
    /// Names of all metrics of a program that has ended.
    pub metric_names: Vec<String>,
}

/// A study and the orders since its last step.
#[derive(Debug, Clone)]
pub struct StudyWithOrders {
    /// `None` if the study does not exist or was deleted.
    pub study: Option<StoredStudy>,
    /// Orders in sequence, each with its number for [`forget`] and [`super::save`].
    pub orders: Vec<(i64, StudyOrder)>,
}

/// Returns studies, in no particular order, with orders, facts or a start to apply, or with a trial
/// that waits to be submitted and has room now.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn due(conn: &mut PgConnection) -> Result<Vec<StudyId>, StoreError> {
    let rows = sqlx::query_scalar!(
        r#"select id as "id!" from study where phase = 'created'
           union
           select study_id from study_order
           union
           select t.study_id
           from study_trial t join job j on j.id = t.job_id
           where t.state in ('running', 'stopping')
             and (not t.end_fed and j.phase in ('succeeded', 'failed', 'cancelled')
                  or exists (select from evaluation e where e.job_id = j.id and e.step > t.fed_step)
                  or exists (select from objective_value v where v.job_id = j.id and v.step > t.fed_step))
           union
           select t.study_id
           from study_trial t join study s on s.id = t.study_id join tenant o on o.id = s.tenant_id
           cross join lateral muster_open_work(o.id) used
           where t.state = 'running' and t.job_id is null and s.deleted_at is null
             -- A document that no step has taken in yet may be one that Postgres cannot read into.
             and case when s.phase = 'created' then false else s.document -> 'job' is not null end
             and used.jobs < coalesce((o.limits ->> 'open_jobs')::bigint, $1)"#,
        signed(TenantLimits::DEFAULT.open_jobs)
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(StudyId).collect())
}

/// Reads a study and its orders in one statement, and so at one instant. If another process takes
/// the orders afterwards, the step is not saved. Orders are read in index order: a plain index scan
/// marks deleted entries, so that the next scan skips them.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn look(conn: &mut PgConnection, id: StudyId) -> Result<StudyWithOrders, StoreError> {
    let row = sqlx::query!(
        r#"select s.tenant_id as "tenant_id?", s.created_by as "created_by?", s.document as "document?: Json<StudySpec>",
                  s.phase as "phase?", s.cancelled as "cancelled?", s.seq as "seq?", s.state_seq as "state_seq?",
                  o.numbers as "numbers!", o.bodies as "bodies!"
           from (select coalesce(array_agg(id order by id), '{}') as numbers, coalesce(array_agg(body::text order by id), '{}') as bodies
                 from (select id, body from study_order where study_id = $1 order by id) waiting) o
           left join study s on s.id = $1 and s.deleted_at is null"#,
        id.0
    )
    .fetch_one(conn)
    .await?;
    let bodies = row.bodies.iter().map(|body| {
        serde_json::from_str(body).map_err(|source| StoreError::Decode {
            what: "an order of a study".to_owned(),
            source,
        })
    });
    let bodies = bodies.collect::<Result<Vec<StudyOrder>, _>>()?;
    let study = (|| {
        Some(StoredStudy {
            tenant_id: row.tenant_id?.into(),
            created_by: row.created_by?.into(),
            document: row.document?.0,
            phase: row.phase?,
            cancelled: row.cancelled?,
            seq: unsigned(row.seq?),
            state_seq: unsigned(row.state_seq?),
        })
    })();
    let orders = row.numbers.into_iter().zip(bodies).collect();
    Ok(StudyWithOrders { study, orders })
}

/// Locks the study until the transaction ends, if it has `seq` events. Returns `false` if another
/// process has advanced it, or if it was deleted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn lock(conn: &mut PgConnection, id: StudyId, seq: u64) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar!(
        "select seq from study where id = $1 and deleted_at is null for no key update",
        id.0
    )
    .fetch_optional(conn)
    .await?;
    Ok(found.map(unsigned) == Some(seq))
}

/// Returns the newest snapshot and the events after it.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn state(
    conn: &mut PgConnection,
    id: StudyId,
) -> Result<(Option<String>, Vec<String>), StoreError> {
    let state = sqlx::query_scalar!(
        r#"select state as "state: Json<Box<RawValue>>" from study where id = $1"#,
        id.0
    )
    .fetch_one(&mut *conn)
    .await?;
    let events = sqlx::query_scalar!(
        r#"select e.body as "body: Json<Box<RawValue>>" from study_event e join study s on s.id = e.study_id
           where s.id = $1 and e.seq > s.state_seq order by e.seq"#,
        id.0
    )
    .fetch_all(conn)
    .await?;
    Ok((state.map(text), events.into_iter().map(text).collect()))
}

fn text(json: Json<Box<RawValue>>) -> String {
    json.0.get().to_owned()
}

/// Deletes orders of a study that no longer exists.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn forget(conn: &mut PgConnection, orders: &[i64]) -> Result<(), StoreError> {
    sqlx::query!("delete from study_order where id = any($1)", orders)
        .execute(conn)
        .await?;
    Ok(())
}

/// Returns new facts about the jobs of trials that hold slots, ordered by trial number.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn facts(conn: &mut PgConnection, id: StudyId) -> Result<Vec<TrialJobFacts>, StoreError> {
    let rows = sqlx::query!(
        r#"select t.number, j.id, j.state as "state: Json<JobState>", j.spec as "spec: Json<JobSpec>",
                  (j.finished ->> 'step')::bigint as finished_step, j.latest as "latest: Json<Filled<Sample>>",
                  j.latest_evaluation as "latest_evaluation: Json<Filled<Evaluation>>", t.fed_step
           from study_trial t join job j on j.id = t.job_id
           where t.study_id = $1 and t.state in ('running', 'stopping')
             and (not t.end_fed and j.phase in ('succeeded', 'failed', 'cancelled')
                  or exists (select from evaluation e where e.job_id = j.id and e.step > t.fed_step)
                  or exists (select from objective_value v where v.job_id = j.id and v.step > t.fed_step))
           order by t.number"#,
        id.0
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut facts = Vec::with_capacity(rows.len());
    for row in rows {
        let (job, state) = (row.id.into(), row.state.0);
        let evaluations = measured::evaluations(conn, job, row.fed_step).await?;
        let logged = measured::logged(conn, job, row.fed_step).await?;
        let metric_names = if row.spec.0.command.is_some() && state.phase().is_terminal() {
            objective::logged_names(conn, job).await?
        } else {
            Vec::new()
        };
        facts.push(TrialJobFacts {
            number: unsigned32(row.number),
            job_id: job,
            state,
            spec: row.spec.0,
            finished_step: row.finished_step.map(unsigned),
            latest: row.latest.map(|latest| latest.0.0),
            latest_evaluation: row.latest_evaluation.map(|latest| latest.0.0),
            evaluations,
            known_step: u64::try_from(row.fed_step).ok(),
            logged,
            metric_names,
        });
    }
    Ok(facts)
}

/// Submits the job of a trial.
///
/// # Errors
/// [`StoreError::Exceeded`], [`StoreError::Statement`].
pub async fn submit(
    conn: &mut PgConnection,
    new: &NewJob,
    study: StudyId,
    number: u32,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    // Held for the whole transaction, because a step may submit several jobs.
    limit::hold(conn, new.tenant_id).await?;
    job::insert(conn, new, now).await?;
    sqlx::query!(
        "update job set study_id = $2, trial = $3 where id = $1",
        new.id.0,
        study.0,
        signed32(number)
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Whether a job may train further: it has succeeded and was not deleted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn may_extend(conn: &mut PgConnection, id: JobId) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar!(
        r#"select 1 as "one!" from job where id = $1 and deleted_at is null and phase = 'succeeded'"#,
        id.0
    )
    .fetch_optional(conn)
    .await?;
    Ok(found.is_some())
}

/// Extends a succeeded job: it continues with another document from its newest checkpoint. Returns
/// `false` if the job was deleted or has not succeeded.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn extend(
    conn: &mut PgConnection,
    id: JobId,
    spec: &JobSpec,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let row = sqlx::query!(
        r#"select tenant_id, revision, state as "state: Json<JobState>", origin_job, origin_step from job
           where id = $1 and deleted_at is null for no key update"#,
        id.0
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(row) = row else { return Ok(false) };
    let Ok(state) = row.state.0.apply(JobEvent::Extend) else {
        return Ok(false);
    };
    // An extension does not change the checkpoint from which the job began.
    let from = row.origin_job.map(|origin| Origin {
        job: origin.into(),
        step: row.origin_step.map(unsigned),
    });
    let spec = JobSpec {
        from,
        ..spec.clone()
    };
    let done = sqlx::query!(
        "update job set spec = $2, document_bytes = $7, phase = $3, state = $4, waiting = $5, finished = null, failed = null, finished_at = null,
                not_before = null, rung_step = coalesce((finished ->> 'step')::bigint, rung_step), turned_at = $6
         where id = $1 and phase = 'succeeded'",
        id.0,
        Json(&spec) as _,
        state.phase().as_str(),
        Json(&state) as _,
        Json(not_considered()) as _,
        now,
        signed(limit::document_bytes(&spec))
    )
    .execute(&mut *conn)
    .await?;
    assert_eq!(done.rows_affected(), 1, "the row is locked");
    let revision = unsigned(row.revision);
    let changed = Event::JobStateChanged { state, revision };
    event::append(conn, &[of_job(now, row.tenant_id.into(), id, changed)]).await?;
    Ok(true)
}

/// Returns the jobs of these trials by number.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn jobs(
    conn: &mut PgConnection,
    study: StudyId,
    numbers: &[u32],
) -> Result<BTreeMap<u32, JobId>, StoreError> {
    let numbers: Vec<i32> = numbers.iter().copied().map(signed32).collect();
    let rows = sqlx::query!(
        r#"select number, job_id as "job_id!" from study_trial
           where study_id = $1 and number = any($2) and job_id is not null"#,
        study.0,
        &numbers
    )
    .fetch_all(conn)
    .await?;
    let jobs = rows
        .into_iter()
        .map(|row| (unsigned32(row.number), row.job_id.into()));
    Ok(jobs.collect())
}

/// Returns the numbers of running trials without a job, for studies whose trials are jobs.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn unsubmitted(conn: &mut PgConnection, study: StudyId) -> Result<Vec<u32>, StoreError> {
    let numbers = sqlx::query_scalar!(
        "select number from study_trial where study_id = $1 and state = 'running' and job_id is null order by number",
        study.0
    )
    .fetch_all(conn)
    .await?;
    Ok(numbers.into_iter().map(unsigned32).collect())
}

/// Writes the expected gains of trials that have changed.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn expect(
    conn: &mut PgConnection,
    study: StudyId,
    gains: &[(u32, f64)],
) -> Result<(), StoreError> {
    let (numbers, gains): (Vec<i32>, Vec<f64>) = gains
        .iter()
        .map(|(number, gain)| (signed32(*number), *gain))
        .unzip();
    sqlx::query!(
        "update study_trial t set expected_gain = given.gain
         from unnest($2::integer[], $3::double precision[]) as given (number, gain)
         where t.study_id = $1 and t.number = given.number and t.expected_gain <> given.gain",
        study.0,
        &numbers,
        &gains
    )
    .execute(conn)
    .await?;
    Ok(())
}
