//! Studies: searches whose trials are jobs. The api creates them and says what users want of them ([`order`]); the scheduler carries
//! the search on ([`search`]), and writes what it has come to into rows that are read here and in [`trial`].
//!
//! How a search proceeds is not known here: its state and its events are texts.

pub mod search;
pub mod trial;

use crate::error::StoreError;
use crate::number::{signed32, unsigned, unsigned32};
use crate::wake::{self, Channel};
use muster_model::id::{StudyId, TenantId, UserId};
use muster_model::study::{StudyOrder, StudyPhase, StudySpec};
use muster_model::view::{TrialCounts, TrialView};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq)]
pub struct NewStudy {
    /// UUID version 7: lists sort by it.
    pub id: StudyId,
    pub tenant_id: TenantId,
    /// Its trials are submitted in this user's name.
    pub created_by: UserId,
    pub document: StudySpec,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StudyRow {
    pub id: StudyId,
    pub document: StudySpec,
    pub phase: StudyPhase,
    pub counts: TrialCounts,
    /// The best trial or the front, without their curves.
    pub best: Vec<TrialView>,
    pub seq: u64,
    /// Name of the user.
    pub created_by: String,
    pub created_at: OffsetDateTime,
    pub finished_at: Option<OffsetDateTime>,
}

/// Which studies; empty parts let every study pass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StudyFilter {
    pub name: Option<String>,
}

/// What became of an order or a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The study's phase does not allow it.
    Refused {
        phase: StudyPhase,
    },
    NotFound,
}

struct Row {
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
}

/// One text for both queries; `query_as!` takes only literals.
macro_rules! select_studies {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"select s.id, s.document as "document: Json<StudySpec>", s.phase, s.cancelled, s.trials_limit, s.seq,
                   u.name as user_name, s.created_at, s.finished_at,
                   n.created as "created!", n.running as "running!", n.waiting as "waiting!", n.stopping as "stopping!",
                   n.completed as "completed!", n.stopped as "stopped!", n.failed as "failed!"
               from study s
               join app_user u on u.id = s.created_by
               cross join lateral (
                   select count(*) as created, count(*) filter (where state = 'running') as running,
                          count(*) filter (where state = 'waiting') as waiting,
                          count(*) filter (where state = 'stopping') as stopping,
                          count(*) filter (where state = 'completed') as completed,
                          count(*) filter (where state = 'stopped') as stopped,
                          count(*) filter (where state = 'failed') as failed
                   from study_trial where study_id = s.id
               ) n
               where s.deleted_at is null "# + $rest,
            $($argument),*
        )
    };
}

/// Stores a study, which the scheduler begins, and wakes it.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn insert(
    conn: &mut PgConnection,
    new: &NewStudy,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into study (id, tenant_id, created_by, name, labels, document, trials_limit, created_at)
         values ($1, $2, $3, $4, $5, $6::text::json, $7, $8)",
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
    wake::send(conn, &[Channel::Studies]).await
}

/// `None` when there is none in scope, or it was deleted.
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

/// Newest first; those after `after` in that order.
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

/// States what a user wants of a study, or tells it something; the scheduler, which this wakes, takes it in. A study that a user has
/// ended takes no order, and one that is over only more trials.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn order(
    conn: &mut PgConnection,
    id: StudyId,
    orders: &[StudyOrder],
    now: OffsetDateTime,
) -> Result<Outcome, StoreError> {
    let Some(phase) = phase_of(conn, id).await? else {
        return Ok(Outcome::NotFound);
    };
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
        return Ok(Outcome::Refused { phase });
    }
    let text = |order| serde_json::to_string(order).expect("an order is JSON");
    let bodies: Vec<String> = orders.iter().map(text).collect();
    sqlx::query!(
        "insert into study_order (study_id, tenant_id, at, body)
         select s.id, s.tenant_id, $2, given.body::json
         from study s, unnest($3::text[]) with ordinality as given (body, place)
         where s.id = $1 order by given.place",
        id.0,
        now,
        &bodies
    )
    .execute(&mut *conn)
    .await?;
    wake::send(conn, &[Channel::Studies]).await?;
    Ok(Outcome::Done)
}

/// Hides a study that is over, and the jobs of its trials.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn delete(
    conn: &mut PgConnection,
    id: StudyId,
    now: OffsetDateTime,
) -> Result<Outcome, StoreError> {
    let Some(phase) = phase_of(conn, id).await? else {
        return Ok(Outcome::NotFound);
    };
    if !phase.is_over() {
        return Ok(Outcome::Refused { phase });
    }
    // An extension that comes in the same moment finds the row gone, or makes this fail by the row's own check.
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
    Ok(Outcome::Done)
}

async fn phase_of(conn: &mut PgConnection, id: StudyId) -> Result<Option<StudyPhase>, StoreError> {
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

async fn with_best(conn: &mut PgConnection, rows: Vec<Row>) -> Result<Vec<StudyRow>, StoreError> {
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let mut best = trial::best(conn, &ids).await?;
    let count = |n: i64| u32::try_from(n).expect("at most a million trials");
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
