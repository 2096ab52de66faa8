//! Questions of tenants to the scheduler, and its answers. They are kept for seconds.

use crate::error::StoreError;
use crate::notify::{self, NotifyChannel};
use muster_model::id::TenantId;
use muster_model::question::{Answer, Question};
use serde_json::value::RawValue;
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

/// A question without an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenQuestion {
    pub id: Uuid,
    pub tenant: TenantId,
    pub question: Question,
}

/// Stores a question and wakes the scheduler. Returns `false` and stores nothing if the tenant
/// already has `most` open questions.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn ask(
    conn: &mut PgConnection,
    open: &OpenQuestion,
    most: u32,
    now: OffsetDateTime,
    expires: OffsetDateTime,
) -> Result<bool, StoreError> {
    // Serialises the count of a tenant's questions until the transaction ends.
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('question', 0) # hashtextextended($1, 0))",
        open.tenant.0.to_string()
    )
    .fetch_one(&mut *conn)
    .await?;
    let done = sqlx::query!(
        "insert into question (id, tenant_id, asked_at, expires_at, question)
         select $1, $2, $3, $4, $5
         where (select count(*) from question where tenant_id = $2 and answer is null and expires_at > $3) < $6",
        open.id,
        open.tenant.0,
        now,
        expires,
        Json(&open.question) as _,
        i64::from(most)
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    notify::send(conn, &[NotifyChannel::Questions]).await?;
    Ok(true)
}

/// Returns the answer once it exists. The question must belong to the tenant in scope.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn answer_of(conn: &mut PgConnection, id: Uuid) -> Result<Option<Answer>, StoreError> {
    let row = sqlx::query_scalar!(
        r#"select answer as "answer: Json<Answer>" from question where id = $1"#,
        id
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.flatten().map(|json| json.0))
}

/// Deletes a question of the tenant in scope.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn forget(conn: &mut PgConnection, id: Uuid) -> Result<(), StoreError> {
    sqlx::query!("delete from question where id = $1", id)
        .execute(conn)
        .await?;
    Ok(())
}

/// Returns the next question to answer, in rotation over the tenants. `served` lists the tenants
/// that were answered before, the latest last; other tenants come first. Within a tenant the oldest
/// question comes first. A question that this release cannot parse is skipped until it expires.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn next(
    conn: &mut PgConnection,
    served: &[TenantId],
    now: OffsetDateTime,
) -> Result<Option<OpenQuestion>, StoreError> {
    let served: Vec<Uuid> = served.iter().map(|tenant| tenant.0).collect();
    let rows = sqlx::query!(
        r#"select id, tenant_id, question as "question: Json<Box<RawValue>>"
           from question where answer is null and expires_at > $1
           order by array_position($2::uuid[], tenant_id) nulls first, asked_at, id"#,
        now,
        &served
    )
    .fetch_all(conn)
    .await?;
    let read = rows.into_iter().find_map(|row| {
        Some(OpenQuestion {
            id: row.id,
            tenant: row.tenant_id.into(),
            question: serde_json::from_str(row.question.0.get()).ok()?,
        })
    });
    Ok(read)
}

/// State of a question while it is being answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuestionStatus {
    /// Whether the client still waits for the answer.
    pub is_open: bool,
    /// Whether a question of another tenant waits.
    pub others_wait: bool,
}

/// Returns the state of a question.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn standing(
    conn: &mut PgConnection,
    open: &OpenQuestion,
    now: OffsetDateTime,
) -> Result<QuestionStatus, StoreError> {
    let row = sqlx::query!(
        r#"select coalesce(bool_or(id = $1), false) as "is_open!", coalesce(bool_or(tenant_id <> $2), false) as "others_wait!"
           from question where answer is null and expires_at > $3"#,
        open.id,
        open.tenant.0,
        now
    )
    .fetch_one(conn)
    .await?;
    Ok(QuestionStatus {
        is_open: row.is_open,
        others_wait: row.others_wait,
    })
}

/// Stores an answer. The waiting request polls for it.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn answer(conn: &mut PgConnection, id: Uuid, answer: &Answer) -> Result<(), StoreError> {
    sqlx::query!(
        "update question set answer = $2 where id = $1 and answer is null",
        id,
        Json(answer) as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes expired questions and returns their number.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn prune(conn: &mut PgConnection, now: OffsetDateTime) -> Result<u64, StoreError> {
    let done = sqlx::query!("delete from question where expires_at <= $1", now)
        .execute(conn)
        .await?;
    Ok(done.rows_affected())
}
