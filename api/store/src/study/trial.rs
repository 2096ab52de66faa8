//! Trials as they are returned to clients and handed out to external trainers.

use crate::error::StoreError;
use crate::int_convert::{checked_signed32, unsigned, unsigned32};
use muster_model::id::StudyId;
use muster_model::job::{JobPhase, JobState};
use muster_model::study::{Parameters, TrialPhase};
use muster_model::view::{TrialPoint, TrialSource, TrialView};
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use uuid::Uuid;

struct TrialSqlRow {
    study_id: Uuid,
    number: i32,
    job_id: Option<Uuid>,
    job_state: Option<Json<JobState>>,
    state: String,
    parameters: Json<Parameters>,
    seed: i64,
    budget: i64,
    rung: i32,
    from_trial: Option<i32>,
    from_step: Option<i64>,
    reports: Option<Json<Vec<TrialPoint>>>,
    rungs: Json<Vec<TrialPoint>>,
    outcome: Option<Json<TrialPoint>>,
    is_best: bool,
    failure: Option<String>,
    created_at: OffsetDateTime,
    ended_at: Option<OffsetDateTime>,
}

/// The columns and joins of all queries. A macro, because `query_as!` takes only literals. The
/// first argument says whether curves are included.
macro_rules! select_trials {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            TrialSqlRow,
            r#"select t.study_id, t.number, t.job_id, j.state as "job_state?: Json<JobState>", t.state,
                   t.parameters as "parameters: Json<Parameters>", t.seed, t.budget, t.rung, t.from_trial, t.from_step,
                   case when $1::boolean then t.reports end as "reports: Json<Vec<TrialPoint>>",
                   t.rungs as "rungs: Json<Vec<TrialPoint>>", t.outcome as "outcome: Json<TrialPoint>", t.is_best, t.failure,
                   t.created_at, t.ended_at
               from study_trial t left join job j on j.id = t.job_id "# + $rest,
            $($argument),*
        )
    };
}

/// Returns trials ordered by number, starting behind `after`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(
    conn: &mut PgConnection,
    study: StudyId,
    state: Option<TrialPhase>,
    curves: bool,
    after: Option<u32>,
    limit: u32,
) -> Result<Vec<TrialView>, StoreError> {
    let rows = select_trials!(
        "where t.study_id = $2 and t.number > $3 and ($4::text is null or t.state = $4) order by t.number limit $5",
        curves,
        study.0,
        place(after),
        state.map(TrialPhase::as_str),
        i64::from(limit)
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(TrialView::from).collect())
}

/// Returns the trials of these numbers, with curves.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn named(
    conn: &mut PgConnection,
    study: StudyId,
    numbers: &[u32],
) -> Result<Vec<TrialView>, StoreError> {
    let numbers: Vec<i32> = numbers
        .iter()
        .copied()
        .filter_map(checked_signed32)
        .collect();
    let rows = select_trials!(
        "where t.study_id = $2 and t.number = any($3) order by t.number",
        true,
        study.0,
        &numbers
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(TrialView::from).collect())
}

/// Returns the Pareto front: trials that no other trial dominates, ordered by number, starting
/// behind `after`, without curves.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn front(
    conn: &mut PgConnection,
    study: StudyId,
    after: Option<u32>,
    limit: u32,
) -> Result<Vec<TrialView>, StoreError> {
    let rows = select_trials!(
        "where t.study_id = $2 and t.is_best and t.number > $3 order by t.number limit $4",
        false,
        study.0,
        place(after),
        i64::from(limit)
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(TrialView::from).collect())
}

/// Returns the best trials of each study, at most `most` each, ordered by number, without curves.
pub(super) async fn best(
    conn: &mut PgConnection,
    studies: &[Uuid],
    most: u32,
) -> Result<BTreeMap<Uuid, Vec<TrialView>>, StoreError> {
    let rows = select_trials!(
        "where (t.study_id, t.number) in (
             select b.study_id, b.number
             from unnest($2::uuid[]) as s (id)
             cross join lateral (
                 select study_id, number from study_trial where study_id = s.id and is_best order by number limit $3
             ) b
         ) order by t.study_id, t.number",
        false,
        studies,
        i64::from(most)
    )
    .fetch_all(conn)
    .await?;
    let mut best: BTreeMap<Uuid, Vec<TrialView>> = BTreeMap::new();
    for row in rows {
        best.entry(row.study_id).or_default().push(row.into());
    }
    Ok(best)
}

/// Returns the number after which a page begins.
fn place(after: Option<u32>) -> i32 {
    after.map_or(-1, |after| checked_signed32(after).unwrap_or(i32::MAX))
}

pub(crate) fn phase(name: &str) -> TrialPhase {
    let mut all = TrialPhase::ALL.into_iter();
    let found = all.find(|phase| phase.as_str() == name);
    found.expect("a constraint keeps other states out of the column")
}

impl From<TrialSqlRow> for TrialView {
    fn from(row: TrialSqlRow) -> Self {
        Self {
            number: unsigned32(row.number),
            state: phase(&row.state),
            parameters: row.parameters.0,
            seed: unsigned(row.seed),
            budget: unsigned(row.budget),
            rung: unsigned32(row.rung),
            from: row
                .from_trial
                .zip(row.from_step)
                .map(|(trial, step)| TrialSource {
                    trial: unsigned32(trial),
                    step: unsigned(step),
                }),
            job_id: row.job_id.map(Into::into),
            job_phase: row.job_state.map(|state| -> JobPhase { state.0.phase() }),
            outcome: row.outcome.map(|outcome| outcome.0),
            rungs: row.rungs.0,
            curve: row.reports.map(|reports| reports.0).unwrap_or_default(),
            best: row.is_best,
            failure: row.failure,
            created_at: row.created_at,
            ended_at: row.ended_at,
        }
    }
}
