//! Studies: searches whose trials are jobs. The API server creates them and stores orders of users
//! ([`order`]). The scheduler advances the search ([`search`]) and writes the results ([`save`])
//! into rows ([`trial_rows`]), which this module and [`trial`] read. External trainers ask for
//! trials and tell results ([`outside`]).
//!
//! This module does not know how a search proceeds: its state and its events are texts.

pub mod end;
mod measured;
pub mod outside;
pub mod save;
pub mod search;
pub mod trial;
pub mod trial_rows;

pub use measured::LoggedObjective;

use crate::error::StoreError;
use crate::int_convert::{signed32, unsigned, unsigned32};
use crate::limit;
use crate::notify::{self, NotifyChannel};
use muster_model::id::{StudyId, TenantId, UserId};
use muster_model::study::{MAX_TRIALS, StudyOrder, StudyPhase, StudySpec};
use muster_model::view::{TrialCounts, TrialView};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq)]
pub struct NewStudy {
    /// UUID version 7, because lists are sorted by it.
    pub id: StudyId,
    pub tenant_id: TenantId,
    /// Its trials are submitted in the name of this user.
    pub created_by: UserId,
    pub document: StudySpec,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StudyRow {
    pub id: StudyId,
    pub document: StudySpec,
    pub phase: StudyPhase,
    pub counts: TrialCounts,
    /// The best trial, or the first [`BEST_SHOWN`] of the Pareto front, without curves.
    pub best: Vec<TrialView>,
    pub seq: u64,
    /// Name of the user.
    pub created_by: String,
    pub created_at: OffsetDateTime,
    pub finished_at: Option<OffsetDateTime>,
}

/// Filter of studies. An empty field matches every study.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StudyFilter {
    pub name: Option<String>,
}

/// Maximum number of waiting orders of one study. An order to cancel is always accepted.
pub const MAX_WAITING: u64 = 10_000;

/// Maximum number of proposals of an external searcher that wait to become trials of one study.
pub const MAX_PROPOSED: u64 = 10_000;

/// Maximum number of trials of a Pareto front in the answer for a study, because fronts grow with
/// the number of trials. [`trial::front`] returns all.
pub const BEST_SHOWN: u32 = 10;

/// Result of an order or a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StudyOrderOutcome {
    Done,
    /// Refused by the study's phase. A study with a waiting order to cancel counts as cancelled.
    Refused {
        phase: StudyPhase,
    },
    /// Refused: the study may have `limit` trials now and at most `most` more.
    TooMany {
        limit: u32,
        most: u32,
    },
    /// Refused: `waiting` proposals wait to become trials, and at most [`MAX_PROPOSED`] may.
    TooManyProposed {
        waiting: u64,
    },
    /// Refused: `waiting` orders, or jobs that must end before a deletion, wait for the scheduler.
    Busy {
        waiting: u64,
    },
    NotFound,
}

/// A study and the orders that wait for the scheduler.
#[derive(Debug)]
struct StudyOrderState {
    phase: StudyPhase,
    /// Whether a user has ordered the end.
    ended: bool,
    /// Maximum number of its trials, including waiting extensions.
    limit: u32,
    waiting: u64,
    /// Number of proposals that are no trials yet, including waiting orders.
    proposed: u64,
}

struct StudySqlRow {
    id: Uuid,
    document: Json<StudySpec>,
    phase: String,
    cancelled: bool,
    trials_limit: i32,
    seq: i64,
    user_name: String,
    created_at: OffsetDateTime,
    finished_at: Option<OffsetDateTime>,
    created: i64,
    running: i64,
    waiting: i64,
    stopping: i64,
    completed: i64,
    stopped: i64,
    failed: i64,
    best: i64,
}

/// The columns and joins of both queries. A macro, because `query_as!` takes only literals.
macro_rules! select_studies {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            StudySqlRow,
            r#"select s.id, s.document as "document: Json<StudySpec>", s.phase, s.cancelled, s.trials_limit, s.seq,
                   u.name as user_name, s.created_at, s.finished_at,
                   n.created as "created!", n.running as "running!", n.waiting as "waiting!", n.stopping as "stopping!",
                   n.completed as "completed!", n.stopped as "stopped!", n.failed as "failed!", n.best as "best!"
               from study s
               join app_user u on u.id = s.created_by
               cross join lateral (
                   select count(*) as created, count(*) filter (where state = 'running') as running,
                          count(*) filter (where state = 'waiting') as waiting,
                          count(*) filter (where state = 'stopping') as stopping,
                          count(*) filter (where state = 'completed') as completed,
                          count(*) filter (where state = 'stopped') as stopped,
                          count(*) filter (where state = 'failed') as failed, count(*) filter (where is_best) as best
                   from study_trial where study_id = s.id
               ) n
               where s.deleted_at is null "# + $rest,
            $($argument),*
        )
    };
}

/// Stores a study and wakes the scheduler, which starts it.
///
/// # Errors
/// [`StoreError::TenantDeleted`], [`StoreError::Exceeded`], [`StoreError::Statement`].
pub async fn insert(
    conn: &mut PgConnection,
    new: &NewStudy,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    limit::admit_study(conn, new.tenant_id, now).await?;
    let done = sqlx::query!(
        "insert into study (id, tenant_id, created_by, name, labels, document, trials_limit, created_at)
         select $1, $2, $3, $4, $5, $6::text::json, $7, $8 where muster_hold_tenant($2::uuid)",
        new.id.0,
        new.tenant_id.0,
        new.created_by.0,
        new.document.name,
        Json(&new.document.labels) as _,
        serde_json::to_string(&new.document).expect("a document is JSON"),
        signed32(new.document.search.trials),
        now
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 0 {
        return Err(StoreError::TenantDeleted);
    }
    notify::send(conn, &[NotifyChannel::Studies]).await
}

/// Returns a study; `None` if it is not in scope or was deleted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn get(conn: &mut PgConnection, id: StudyId) -> Result<Option<StudyRow>, StoreError> {
    let row = select_studies!("and s.id = $1", id.0)
        .fetch_optional(&mut *conn)
        .await?;
    let mut found = with_best(conn, row.into_iter().collect()).await?;
    Ok(found.pop())
}

/// Returns studies, newest first, starting behind `after`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(
    conn: &mut PgConnection,
    filter: &StudyFilter,
    after: Option<StudyId>,
    limit: u32,
) -> Result<Vec<StudyRow>, StoreError> {
    let rows = select_studies!(
        "and ($1::uuid is null or s.id < $1) and ($2::text is null or s.name = $2) order by s.id desc limit $3",
        after.map(Uuid::from),
        filter.name,
        i64::from(limit)
    )
    .fetch_all(&mut *conn)
    .await?;
    with_best(conn, rows).await
}

/// Stores orders of a user or results of an external trainer, and wakes the scheduler, which
/// applies them. A study whose end was ordered accepts no order. A finished study accepts only
/// extensions and results of its trials.
///
/// # Errors
/// [`StoreError::TenantDeleted`], [`StoreError::Statement`].
pub async fn order(
    conn: &mut PgConnection,
    id: StudyId,
    orders: &[StudyOrder],
    now: OffsetDateTime,
) -> Result<StudyOrderOutcome, StoreError> {
    in_turn(conn, id).await?;
    let Some(standing) = standing(conn, id).await? else {
        return Ok(StudyOrderOutcome::NotFound);
    };
    if standing.ended && !standing.phase.is_over() && orders == [StudyOrder::Cancel] {
        return Ok(StudyOrderOutcome::Done);
    }
    if let Some(refused) = refused(&standing, orders) {
        return Ok(refused);
    }
    write(conn, id, orders, now).await?;
    Ok(StudyOrderOutcome::Done)
}

/// Writes at least one order, and wakes the scheduler after the commit. An order may restart a
/// finished study, so none is written for a deleted tenant.
async fn write(
    conn: &mut PgConnection,
    id: StudyId,
    orders: &[StudyOrder],
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let bodies: Vec<String> = orders
        .iter()
        .map(|order| serde_json::to_string(order).expect("an order is JSON"))
        .collect();
    let done = sqlx::query!(
        "with written as (
             insert into study_order (study_id, tenant_id, at, body)
             select s.id, s.tenant_id, $2, given.body::json
             from study s, unnest($3::text[]) with ordinality as given (body, place)
             where s.id = $1 and s.deleted_at is null and muster_hold_tenant(s.tenant_id) order by given.place
             returning 1
         )
         select pg_notify($4, '') from (select from written limit 1) as first",
        id.0,
        now,
        &bodies,
        NotifyChannel::Studies.as_str()
    )
    .execute(conn)
    .await?;
    match done.rows_affected() {
        0 => Err(StoreError::TenantDeleted),
        _ => Ok(()),
    }
}

fn refused(standing: &StudyOrderState, orders: &[StudyOrder]) -> Option<StudyOrderOutcome> {
    let phase = if standing.ended {
        StudyPhase::Cancelled
    } else {
        standing.phase
    };
    let ends = orders.contains(&StudyOrder::Cancel);
    let extends = orders
        .iter()
        .all(|order| matches!(order, StudyOrder::Extend { .. } | StudyOrder::Tell { .. }));
    let may = match phase {
        StudyPhase::Cancelled => false,
        StudyPhase::Finished => extends,
        StudyPhase::Created | StudyPhase::Running | StudyPhase::Paused | StudyPhase::Closing => {
            true
        }
    };
    if !may {
        return Some(StudyOrderOutcome::Refused { phase });
    }
    let asked = orders.iter().map(|order| match order {
        StudyOrder::Extend { trials } => u64::from(*trials),
        _ => 0,
    });
    let limit = standing.limit;
    if u64::from(limit) + asked.sum::<u64>() > u64::from(MAX_TRIALS) {
        let most = MAX_TRIALS.saturating_sub(limit);
        return Some(StudyOrderOutcome::TooMany { limit, most });
    }
    let proposed = orders.iter().map(StudyOrder::proposed).sum::<u64>();
    if proposed > 0 && standing.proposed + proposed > MAX_PROPOSED {
        let waiting = standing.proposed;
        return Some(StudyOrderOutcome::TooManyProposed { waiting });
    }
    let waiting = standing.waiting;
    let busy = waiting + orders.len() as u64 > MAX_WAITING && !ends;
    busy.then_some(StudyOrderOutcome::Busy { waiting })
}

/// Hides a finished study and the jobs of its trials. Refused while orders wait, which may restart
/// the study, and while its jobs have not ended.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn delete(
    conn: &mut PgConnection,
    id: StudyId,
    now: OffsetDateTime,
) -> Result<StudyOrderOutcome, StoreError> {
    in_turn(conn, id).await?;
    // The scheduler may be in the middle of a step.
    sqlx::query!("select id from study where id = $1 for no key update", id.0)
        .fetch_optional(&mut *conn)
        .await?;
    let Some(StudyOrderState { phase, waiting, .. }) = standing(conn, id).await? else {
        return Ok(StudyOrderOutcome::NotFound);
    };
    if !phase.is_over() {
        return Ok(StudyOrderOutcome::Refused { phase });
    }
    let ending = sqlx::query_scalar!(
        r#"select count(*) as "jobs!" from job where study_id = $1 and finished_at is null"#,
        id.0
    )
    .fetch_one(&mut *conn)
    .await?;
    let waiting = waiting + unsigned(ending);
    if waiting > 0 {
        return Ok(StudyOrderOutcome::Busy { waiting });
    }
    sqlx::query!("update study set deleted_at = $2 where id = $1", id.0, now)
        .execute(&mut *conn)
        .await?;
    sqlx::query!(
        "update job set deleted_at = $2 where study_id = $1 and deleted_at is null",
        id.0,
        now
    )
    .execute(conn)
    .await?;
    Ok(StudyOrderOutcome::Done)
}

/// Serialises transactions that order or tell something of this study ([`outside`]), until this
/// transaction ends. The scheduler does not use the lock: its steps may take long, and callers
/// would wait for them.
async fn in_turn(conn: &mut PgConnection, id: StudyId) -> Result<(), StoreError> {
    let id = id.to_string();
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended($1, 0))", id)
        .execute(conn)
        .await?;
    Ok(())
}

async fn standing(
    conn: &mut PgConnection,
    id: StudyId,
) -> Result<Option<StudyOrderState>, StoreError> {
    let row = sqlx::query!(
        r#"select s.phase, s.cancelled, s.trials_limit, s.proposed, o.waiting as "waiting!", o.more as "more!", o.ends as "ends!",
                  o.proposed as "ordered!"
           from study s
           cross join lateral (
               select count(*) as waiting, coalesce(bool_or(body ->> 'kind' = 'cancel'), false) as ends,
                      coalesce(sum((body ->> 'trials')::bigint) filter (where body ->> 'kind' = 'extend'), 0)::bigint as more,
                      coalesce(sum(json_array_length(body -> 'points')) filter (where body ->> 'kind' = 'propose'), 0)::bigint as proposed
               from study_order where study_id = s.id
           ) o
           where s.id = $1 and s.deleted_at is null"#,
        id.0
    )
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let more = u32::try_from(row.more).unwrap_or(u32::MAX);
    Ok(Some(StudyOrderState {
        phase: phase(&row.phase, row.cancelled),
        ended: row.cancelled || row.ends,
        limit: unsigned32(row.trials_limit).saturating_add(more),
        waiting: unsigned(row.waiting),
        proposed: u64::from(unsigned32(row.proposed)) + unsigned(row.ordered),
    }))
}

/// Returns a study's document without reading its trials; `None` if it is not in scope or was
/// deleted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn document(
    conn: &mut PgConnection,
    id: StudyId,
) -> Result<Option<StudySpec>, StoreError> {
    let found = sqlx::query_scalar!(
        r#"select document as "document: Json<StudySpec>" from study where id = $1 and deleted_at is null"#,
        id.0
    )
    .fetch_optional(conn)
    .await?;
    Ok(found.map(|document| document.0))
}

/// Returns a study's phase without reading its trials; `None` if it is not in scope or was deleted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn phase_of(
    conn: &mut PgConnection,
    id: StudyId,
) -> Result<Option<StudyPhase>, StoreError> {
    let row = sqlx::query!(
        "select phase, cancelled from study where id = $1 and deleted_at is null",
        id.0
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| phase(&row.phase, row.cancelled)))
}

fn phase(name: &str, cancelled: bool) -> StudyPhase {
    match name {
        "created" => StudyPhase::Created,
        "running" => StudyPhase::Running,
        "paused" => StudyPhase::Paused,
        "closing" => StudyPhase::Closing,
        "finished" if cancelled => StudyPhase::Cancelled,
        "finished" => StudyPhase::Finished,
        other => unreachable!("a constraint keeps {other:?} out of the column"),
    }
}

async fn with_best(
    conn: &mut PgConnection,
    rows: Vec<StudySqlRow>,
) -> Result<Vec<StudyRow>, StoreError> {
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let mut best = trial::best(conn, &ids, BEST_SHOWN).await?;
    let rows = rows.into_iter().map(|row| StudyRow {
        id: row.id.into(),
        phase: phase(&row.phase, row.cancelled),
        counts: TrialCounts {
            limit: unsigned32(row.trials_limit),
            created: count(row.created),
            running: count(row.running),
            waiting: count(row.waiting),
            stopping: count(row.stopping),
            completed: count(row.completed),
            stopped: count(row.stopped),
            failed: count(row.failed),
            best: count(row.best),
        },
        best: best.remove(&row.id).unwrap_or_default(),
        seq: unsigned(row.seq),
        created_by: row.user_name,
        created_at: row.created_at,
        finished_at: row.finished_at,
        document: row.document.0,
    });
    Ok(rows.collect())
}

fn count(number: i64) -> u32 {
    u32::try_from(number).expect("at most a million trials")
}
