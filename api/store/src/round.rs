//! Rounds as they were decided, kept so that any of them can be replayed.

use crate::error::StoreError;
use crate::number::{signed, unsigned};
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;

/// One round, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundRecord {
    pub number: u64,
    /// The whole input, in the scheduler's encoding, compressed with zstd.
    pub snapshot_zstd: Vec<u8>,
    pub plan: Value,
    pub report: Value,
}

/// One line of the list of rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundSummary {
    pub number: u64,
    pub at: OffsetDateTime,
    pub report: Value,
}

/// The number of the next round. Only the leader asks; two leaders would collide when they insert.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn next_number(conn: &mut PgConnection) -> Result<u64, StoreError> {
    let newest = sqlx::query_scalar!(r#"select coalesce(max(number), 0) as "number!" from round"#)
        .fetch_one(conn)
        .await?;
    Ok(unsigned(newest) + 1)
}

/// # Errors
/// [`StoreError::Statement`]; `is_taken` when another leader committed a round of this number.
pub async fn insert(
    conn: &mut PgConnection,
    round: &RoundRecord,
    at: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into round (number, at, snapshot, plan, report) values ($1, $2, $3, $4, $5)",
        signed(round.number),
        at,
        round.snapshot_zstd,
        round.plan,
        round.report
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// # Errors
/// [`StoreError::Statement`].
pub async fn get(
    conn: &mut PgConnection,
    number: u64,
) -> Result<Option<(OffsetDateTime, RoundRecord)>, StoreError> {
    let row = sqlx::query!(
        "select at, snapshot, plan, report from round where number = $1",
        signed(number)
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| {
        let record = RoundRecord {
            number,
            snapshot_zstd: row.snapshot,
            plan: row.plan,
            report: row.report,
        };
        (row.at, record)
    }))
}

/// Newest first, those below `before`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(
    conn: &mut PgConnection,
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<RoundSummary>, StoreError> {
    let rows = sqlx::query!(
        "select number, at, report from round where $1::bigint is null or number < $1 order by number desc limit $2",
        before.map(signed),
        i64::from(limit)
    )
    .fetch_all(conn)
    .await?;
    let rounds = rows.into_iter().map(|row| RoundSummary {
        number: unsigned(row.number),
        at: row.at,
        report: row.report,
    });
    Ok(rounds.collect())
}

/// Forgets rounds before `before`, but never the newest, whose number the next one follows; how many.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn prune(conn: &mut PgConnection, before: OffsetDateTime) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "delete from round where at < $1 and number < (select max(number) from round)",
        before
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
