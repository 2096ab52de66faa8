//! Rows of trials as the scheduler's steps write them, many in one statement.

use crate::error::StoreError;
use crate::number::{signed, signed32};
use muster_model::id::{JobId, StudyId, TenantId};
use muster_model::study::{Parameters, TrialPhase};
use muster_model::view::{TrialPoint, TrialSource};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

/// A trial's row after a step.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialWrite {
    pub number: u32,
    /// Set once.
    pub job_id: Option<JobId>,
    pub state: TrialPhase,
    pub parameters: Parameters,
    pub seed: u64,
    pub budget: u64,
    pub rung: u32,
    pub from: Option<TrialSource>,
    pub reports: Vec<TrialPoint>,
    pub rungs: Vec<TrialPoint>,
    pub outcome: Option<TrialPoint>,
    /// Optimizer step of the newest measure that the search knows.
    pub fed_step: Option<u64>,
    /// Whether the search knows that the job has ended; as it was when left out.
    pub end_fed: Option<bool>,
    pub failure: Option<String>,
    /// It is to be given out (again) to whoever asks.
    pub open: bool,
}

/// Writes rows of trials, those that are `created` and those that were there and are `changed`; `now` is when they were created or have
/// ended.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn write_trials(
    conn: &mut PgConnection,
    study: StudyId,
    tenant: TenantId,
    (created, changed): (&[TrialWrite], &[TrialWrite]),
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    if !created.is_empty() {
        create_trials(conn, study, tenant, created, now).await?;
    }
    if !changed.is_empty() {
        change_trials(conn, study, changed, now).await?;
    }
    Ok(())
}

async fn create_trials(
    conn: &mut PgConnection,
    study: StudyId,
    tenant: TenantId,
    trials: &[TrialWrite],
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let from = |part: fn(&TrialSource) -> i64| -> Vec<Option<i64>> {
        trials.iter().map(|t| t.from.as_ref().map(part)).collect()
    };
    let (from_trials, from_steps) = (
        from(|from| i64::from(from.trial)),
        from(|from| signed(from.step)),
    );
    let parameters: Vec<String> = trials.iter().map(|t| json(&t.parameters)).collect();
    let seeds: Vec<i64> = trials.iter().map(|t| signed(t.seed)).collect();
    let standing = Columns::of(trials);
    sqlx::query!(
        "insert into study_trial (study_id, number, tenant_id, job_id, state, parameters, seed, budget, rung, from_trial, from_step,
                reports, rungs, outcome, fed_step, failure, created_at, ended_at, end_fed)
         select $1, number, $2, job_id, state, parameters::json, seed, budget, rung, from_trial::integer, from_step,
                reports::json, rungs::json, outcome::json, coalesce(fed_step, -1), failure, $3::timestamptz, case when ended then $3::timestamptz end,
                coalesce(end_fed, false)
         from unnest($4::integer[], $5::uuid[], $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::integer[], $11::bigint[],
                     $12::bigint[], $13::text[], $14::text[], $15::text[], $16::bigint[], $17::text[], $18::boolean[], $19::boolean[])
              as given (number, job_id, state, parameters, seed, budget, rung, from_trial, from_step, reports, rungs, outcome, fed_step,
                        failure, ended, end_fed)",
        study.0,
        tenant.0,
        now,
        &standing.numbers,
        &standing.job_ids as _,
        &standing.states as _,
        &parameters,
        &seeds,
        &standing.budgets,
        &standing.rungs_raised,
        &from_trials as _,
        &from_steps as _,
        &standing.reports,
        &standing.rungs,
        &standing.outcomes as _,
        &standing.fed_steps as _,
        &standing.failures as _,
        &standing.ended,
        &standing.ends_fed as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

async fn change_trials(
    conn: &mut PgConnection,
    study: StudyId,
    trials: &[TrialWrite],
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let standing = Columns::of(trials);
    let open: Vec<bool> = trials.iter().map(|t| t.open).collect();
    let done = sqlx::query!(
        "update study_trial t
         set job_id = coalesce(t.job_id, given.job_id), state = given.state, budget = given.budget, rung = given.rung,
             reports = given.reports::json, rungs = given.rungs::json, outcome = given.outcome::json,
             fed_step = greatest(t.fed_step, given.fed_step), failure = coalesce(given.failure, t.failure),
             asked_at = case when given.open then null else t.asked_at end,
             ended_at = case when given.ended then coalesce(t.ended_at, $2::timestamptz) end, end_fed = coalesce(given.end_fed, t.end_fed)
         from unnest($3::integer[], $4::uuid[], $5::text[], $6::bigint[], $7::integer[], $8::text[], $9::text[], $10::text[],
                     $11::bigint[], $12::text[], $13::boolean[], $14::boolean[], $15::boolean[])
              as given (number, job_id, state, budget, rung, reports, rungs, outcome, fed_step, failure, ended, end_fed, open)
         where t.study_id = $1 and t.number = given.number",
        study.0,
        now,
        &standing.numbers,
        &standing.job_ids as _,
        &standing.states as _,
        &standing.budgets,
        &standing.rungs_raised,
        &standing.reports,
        &standing.rungs,
        &standing.outcomes as _,
        &standing.fed_steps as _,
        &standing.failures as _,
        &standing.ended,
        &standing.ends_fed as _,
        &open
    )
    .execute(conn)
    .await?;
    assert_eq!(done.rows_affected(), trials.len() as u64, "they are there");
    Ok(())
}

/// What rows of trials say of where the trials stand, a list for each column.
struct Columns<'a> {
    numbers: Vec<i32>,
    job_ids: Vec<Option<Uuid>>,
    states: Vec<&'static str>,
    budgets: Vec<i64>,
    rungs_raised: Vec<i32>,
    reports: Vec<String>,
    rungs: Vec<String>,
    outcomes: Vec<Option<String>>,
    fed_steps: Vec<Option<i64>>,
    failures: Vec<Option<&'a str>>,
    ended: Vec<bool>,
    ends_fed: Vec<Option<bool>>,
}

impl<'a> Columns<'a> {
    fn of(trials: &'a [TrialWrite]) -> Self {
        let has_ended = |trial: &TrialWrite| match trial.state {
            TrialPhase::Completed | TrialPhase::Stopped | TrialPhase::Failed => true,
            TrialPhase::Running | TrialPhase::Waiting | TrialPhase::Stopping => false,
        };
        Self {
            numbers: trials.iter().map(|t| signed32(t.number)).collect(),
            job_ids: trials.iter().map(|t| t.job_id.map(|id| id.0)).collect(),
            states: trials.iter().map(|t| t.state.as_str()).collect(),
            budgets: trials.iter().map(|t| signed(t.budget)).collect(),
            rungs_raised: trials.iter().map(|t| signed32(t.rung)).collect(),
            reports: trials.iter().map(|t| json(&t.reports)).collect(),
            rungs: trials.iter().map(|t| json(&t.rungs)).collect(),
            outcomes: trials
                .iter()
                .map(|t| t.outcome.as_ref().map(json))
                .collect(),
            fed_steps: trials.iter().map(|t| t.fed_step.map(signed)).collect(),
            failures: trials.iter().map(|t| t.failure.as_deref()).collect(),
            ended: trials.iter().map(has_ended).collect(),
            ends_fed: trials.iter().map(|t| t.end_fed).collect(),
        }
    }
}

/// As a text: the driver would send JSON in Postgres's own form, which does not keep numbers as they were written.
fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("it is JSON")
}
