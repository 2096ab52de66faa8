//! Stored rounds, kept so that any of them can be replayed.

use crate::error::StoreError;
use crate::int_convert::{signed, unsigned, unsigned32};
use muster_model::id::JobId;
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;

/// One complete round. JSON is kept as the written text, so that a replay can be compared byte by
/// byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundRecord {
    pub number: u64,
    /// The whole snapshot, in the scheduler's encoding, compressed with zstd.
    pub snapshot_zstd: Vec<u8>,
    /// Policy settings; `None` for rounds of releases that did not store them.
    pub policy: Option<String>,
    pub plan: String,
    pub report: String,
}

/// One line of the list of rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundSummary {
    pub number: u64,
    pub at: OffsetDateTime,
    /// Name of the policy.
    pub policy: Option<String>,
    pub decisions: u32,
    /// Totals of the report.
    pub totals: Option<Value>,
}

/// What a round reported about one job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRoundReport {
    pub round: u64,
    pub at: OffsetDateTime,
    /// The job's entry in the report.
    pub job: Value,
    /// The entry of the job that would have received the next GPU.
    pub runner_up: Option<Value>,
}

/// Returns what the newest stored round reported about a job of the tenant in scope. `None` if it
/// reported nothing, or if the job belongs to another tenant.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn said_of(
    conn: &mut PgConnection,
    job: JobId,
) -> Result<Option<JobRoundReport>, StoreError> {
    let row = sqlx::query!(
        r#"select number as "number!", at as "at!", said as "said!", runner_up from muster_explain($1)"#,
        job.0
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| JobRoundReport {
        round: unsigned(row.number),
        at: row.at,
        job: row.said,
        runner_up: row.runner_up.filter(|other| !other.is_null()),
    }))
}

/// Returns the number of the next round. Only the leader calls it; a second leader would fail on
/// the insert.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn next_number(conn: &mut PgConnection) -> Result<u64, StoreError> {
    let newest = sqlx::query_scalar!(r#"select coalesce(max(number), 0) as "number!" from round"#)
        .fetch_one(conn)
        .await?;
    Ok(unsigned(newest) + 1)
}

/// Stores a round.
///
/// # Errors
/// [`StoreError::Statement`]; its `is_taken` is true if another leader committed a round of this
/// number.
pub async fn insert(
    conn: &mut PgConnection,
    round: &RoundRecord,
    at: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into round (number, at, snapshot, policy, plan, report)
         values ($1, $2, $3, $4::text::json, $5::text::json, $6::text::json)",
        signed(round.number),
        at,
        round.snapshot_zstd,
        round.policy,
        round.plan,
        round.report
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns a round and its time.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn get(
    conn: &mut PgConnection,
    number: u64,
) -> Result<Option<(OffsetDateTime, RoundRecord)>, StoreError> {
    let row = sqlx::query!(
        r#"select at, snapshot, policy::text, plan::text as "plan!", report::text as "report!" from round where number = $1"#,
        signed(number)
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| {
        let record = RoundRecord {
            number,
            snapshot_zstd: row.snapshot,
            policy: row.policy,
            plan: row.plan,
            report: row.report,
        };
        (row.at, record)
    }))
}

/// Returns rounds, newest first, with numbers below `before` and times from `since` on.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(
    conn: &mut PgConnection,
    before: Option<u64>,
    since: Option<OffsetDateTime>,
    limit: u32,
) -> Result<Vec<RoundSummary>, StoreError> {
    let rows = sqlx::query!(
        r#"select number, at, policy ->> 'share' as policy, json_array_length(plan -> 'decisions') as decisions,
                  report -> 'totals' as totals
           from round
           where ($1::bigint is null or number < $1) and ($2::timestamptz is null or at >= $2)
           order by number desc limit $3"#,
        before.map(signed),
        since,
        i64::from(limit)
    )
    .fetch_all(conn)
    .await?;
    let rounds = rows.into_iter().map(|row| RoundSummary {
        number: unsigned(row.number),
        at: row.at,
        policy: row.policy,
        decisions: row.decisions.map_or(0, unsigned32),
        totals: row.totals,
    });
    Ok(rounds.collect())
}

/// Deletes rounds before `before` and returns their number. The newest round is kept, because the
/// next number follows it.
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
