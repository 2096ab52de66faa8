//! Ask and tell: trials of external trainers.
//!
//! A trainer of small trials waits only for these calls, so both take few round trips. Results are
//! visible to the scheduler at once, which proposes trials meanwhile. They are acknowledged when
//! they are on the disk ([`lasting`]).

use super::{StudyOrderOutcome, StudyOrderState, phase, refused, trial, write};
use crate::error::StoreError;
use crate::int_convert::{checked_signed32, unsigned, unsigned32};
use crate::pool::{StorePool, Transaction, begin_with};
use muster_model::id::{StudyId, TenantId};
use muster_model::study::{Parameters, StudyOrder, StudyPhase, StudySpec, TrialPhase};
use muster_model::view::{TrialPoint, TrialSource, TrialView};
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;

/// Result of `ask`.
#[derive(Debug, Clone, PartialEq)]
pub struct StudyAskResult {
    pub phase: StudyPhase,
    /// Whether its trials are jobs. Such trials are not handed out.
    pub has_job: bool,
    pub trials: Vec<TrialView>,
}

/// A study that receives results.
#[derive(Debug)]
pub struct ReportableStudy {
    pub document: StudySpec,
    /// The named trials that were handed out. A trial that was not may not be on the disk yet, and
    /// may be proposed with other parameters after a failure.
    pub trials: Vec<TrialProgress>,
    standing: StudyOrderState,
}

/// Progress of a trial, as the search knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialProgress {
    pub number: u32,
    pub state: TrialPhase,
    pub budget: u64,
    /// Step at the end of its last completed rung.
    pub ended: Option<u64>,
}

/// Hands out running trials that were not handed out before. Concurrent calls never get the same
/// trial. Returns `None` if the study is not in scope.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn ask(
    conn: &mut PgConnection,
    id: StudyId,
    count: u32,
    now: OffsetDateTime,
) -> Result<Option<StudyAskResult>, StoreError> {
    let rows = sqlx::query!(
        r#"with free as materialized (
               select number from study_trial
               where study_id = $1 and state = 'running' and asked_at is null and job_id is null
                 and exists (select from study s where s.id = $1 and s.deleted_at is null and s.document -> 'job' is null)
               order by number limit $2 for update skip locked
           ), given as (
               update study_trial set asked_at = $3
               where study_id = $1 and number in (select number from free)
               returning number, state, parameters, seed, budget, rung, from_trial, from_step, reports, rungs, outcome, is_best,
                         failure, created_at, ended_at
           )
           select s.phase, s.cancelled, s.document -> 'job' is not null as "has_job!", g.number as "number?", g.state as "state?",
                  g.parameters as "parameters?: Json<Parameters>", g.seed as "seed?", g.budget as "budget?", g.rung as "rung?",
                  g.from_trial, g.from_step, g.reports as "reports?: Json<Vec<TrialPoint>>", g.rungs as "rungs?: Json<Vec<TrialPoint>>",
                  g.outcome as "outcome: Json<TrialPoint>", g.is_best as "is_best?", g.failure, g.created_at as "created_at?", g.ended_at
           from study s left join given g on true
           where s.id = $1 and s.deleted_at is null
           order by g.number"#,
        id.0,
        i64::from(count),
        now
    )
    .fetch_all(conn)
    .await?;
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    let (phase, has_job) = (phase(&first.phase, first.cancelled), first.has_job);
    let shown = rows.into_iter().filter_map(|row| {
        let from = row.from_trial.zip(row.from_step);
        Some(TrialView {
            number: unsigned32(row.number?),
            state: trial::phase(&row.state?),
            parameters: row.parameters?.0,
            seed: unsigned(row.seed?),
            budget: unsigned(row.budget?),
            rung: unsigned32(row.rung?),
            from: from.map(|(trial, step)| TrialSource {
                trial: unsigned32(trial),
                step: unsigned(step),
            }),
            job_id: None,
            job_phase: None,
            outcome: row.outcome.map(|outcome| outcome.0),
            rungs: row.rungs?.0,
            curve: row.reports?.0,
            best: row.is_best?,
            failure: row.failure,
            created_at: row.created_at?,
            ended_at: row.ended_at,
        })
    });
    let trials = shown.collect();
    Ok(Some(StudyAskResult {
        phase,
        has_job,
        trials,
    }))
}

/// Begins a transaction that stores results, in one round trip. It may run beside others of
/// this kind, but not beside orders. Its commit does not wait for the disk.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn begin(
    pool: &StorePool,
    tenant: TenantId,
    id: StudyId,
) -> Result<Transaction, StoreError> {
    // UUIDs contain nothing to escape. The lock comes first, because a statement that waits for it
    // would not see the changes of the transaction it waited for.
    let (tenant, id) = (tenant.0, id.0);
    let statement = format!(
        "begin; set local muster.tenant = '{tenant}'; set local synchronous_commit = off; \
         select pg_advisory_xact_lock_shared(hashtextextended('{id}', 0))"
    );
    begin_with(pool, AssertSqlSafe(statement)).await
}

/// Returns what is needed to check results of these trials; `None` if the study is not in scope. To
/// be called in a transaction of [`begin`].
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn look(
    conn: &mut PgConnection,
    id: StudyId,
    numbers: &[u32],
) -> Result<Option<ReportableStudy>, StoreError> {
    let numbers: Vec<i32> = numbers
        .iter()
        .copied()
        .filter_map(checked_signed32)
        .collect();
    let row = sqlx::query!(
        r#"select s.document as "document: Json<StudySpec>", s.phase, s.cancelled, s.trials_limit, s.proposed,
                  o.waiting as "waiting!", o.ends as "ends!", t.numbers as "numbers!", t.states as "states!", t.budgets as "budgets!",
                  t.ended as "ended!: Vec<Option<i64>>"
           from study s
           cross join lateral (
               select count(*) as waiting, coalesce(bool_or(body ->> 'kind' = 'cancel'), false) as ends
               from (select body from study_order where study_id = s.id order by id) waiting
           ) o
           cross join lateral (
               select coalesce(array_agg(number), '{}') as numbers, coalesce(array_agg(state), '{}') as states,
                      coalesce(array_agg(budget), '{}') as budgets,
                      coalesce(array_agg((rungs -> -1 ->> 'step')::bigint), '{}') as ended
               from study_trial where study_id = s.id and number = any($2) and (asked_at is not null or json_array_length(rungs) > 0)
           ) t
           where s.id = $1 and s.deleted_at is null"#,
        id.0,
        &numbers
    )
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let standing = StudyOrderState {
        phase: phase(&row.phase, row.cancelled),
        ended: row.cancelled || row.ends,
        limit: unsigned32(row.trials_limit),
        waiting: unsigned(row.waiting),
        proposed: unsigned32(row.proposed).into(),
    };
    let trials = row.numbers.into_iter().zip(row.states);
    let trials = trials.zip(row.budgets).zip(row.ended);
    let trials = trials.map(|(((number, state), budget), ended)| TrialProgress {
        number: unsigned32(number),
        state: trial::phase(&state),
        budget: unsigned(budget),
        ended: ended.map(unsigned),
    });
    Ok(Some(ReportableStudy {
        trials: trials.collect(),
        document: row.document.0,
        standing,
    }))
}

/// Commits results for the study as it was read, and wakes the scheduler. They may be acknowledged
/// only after [`lasting`].
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn tell(
    mut tx: Transaction,
    id: StudyId,
    open: &ReportableStudy,
    told: &[StudyOrder],
    now: OffsetDateTime,
) -> Result<StudyOrderOutcome, StoreError> {
    if let Some(refused) = refused(&open.standing, told) {
        return Ok(refused);
    }
    write(&mut tx, id, told, now).await?;
    tx.commit().await?;
    Ok(StudyOrderOutcome::Done)
}

/// Waits until all earlier commits are on the disk. It commits a transaction that writes only a
/// message into the write-ahead log and waits for it. Concurrent calls share one flush, unlike
/// commits with a notification.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn lasting(pool: &StorePool) -> Result<(), StoreError> {
    sqlx::query!(r#"select pg_logical_emit_message(true, 'muster', '')::text as "place!""#)
        .fetch_one(pool)
        .await?;
    Ok(())
}
