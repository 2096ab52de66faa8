//! One pass of retention: all batches, each in a transaction of its own.

use crate::error::StoreError;
use crate::pool::{self, StorePool};
use crate::{forecast, idempotency, question, round, token};
use muster_model::id::JobId;
use std::time::Duration;
use time::OffsetDateTime;

/// Times after which rows are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionRules {
    /// Age of rounds and forecasts.
    pub rounds: Duration,
    /// Time after the end of jobs and studies at which they are deleted; `None`: never.
    pub ended_jobs: Option<Duration>,
    /// Time after the deletion of jobs and studies at which all their rows are purged.
    pub deleted_jobs: Duration,
    /// Age of events, and of tasks and allocations of an open job's earlier revisions.
    pub events: Duration,
    /// Silence after which a lost node without tasks is removed, and after the same time again its
    /// row.
    pub gone_nodes: Duration,
}

/// Time for which an expired or revoked token stays in its tenant's list.
const TOKENS_SHOWN: Duration = Duration::from_secs(86_400);
/// Time after which a user without token, job or study is deleted.
const USERS_KEPT: Duration = Duration::from_secs(30 * 86_400);

/// Numbers of rows that a pass has removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionCounts {
    pub rounds: u64,
    pub answers: u64,
    /// Expired or revoked tokens.
    pub tokens: u64,
    pub users: u64,
    pub events: u64,
    /// Jobs and studies that were deleted because they ended long ago.
    pub expired: u64,
    /// Deleted jobs whose last row was removed.
    pub jobs: u64,
    /// Deleted studies whose last row was removed.
    pub studies: u64,
    /// Lost nodes that were removed.
    pub nodes: u64,
}

/// Runs `$work`, which returns the number of removed rows, in one transaction.
macro_rules! batch {
    ($pool:ident, |$tx:ident| $work:expr) => {
        async {
            let mut $tx = pool::begin_maintenance($pool).await?;
            let done: u64 = $work.await?;
            $tx.commit().await.map_err(StoreError::from)?;
            Ok::<u64, StoreError>(done)
        }
    };
}

/// Repeats a batch until it removes nothing, and returns the sum.
async fn repeat<F: Future<Output = Result<u64, StoreError>>>(
    batch: impl Fn() -> F,
) -> Result<u64, StoreError> {
    let mut sum = 0;
    loop {
        match batch().await? {
            0 => return Ok(sum),
            removed => sum += removed,
        }
    }
}

/// Collects the first error of a pass. A part that fails does not prevent the others.
#[derive(Default)]
struct RetentionErrors {
    first_error: Option<StoreError>,
}

impl RetentionErrors {
    fn done(&mut self, part: Result<u64, StoreError>) -> u64 {
        part.unwrap_or_else(|error| {
            self.first_error.get_or_insert(error);
            0
        })
    }
}

/// Runs one pass as of `now`, in short transactions. Needs the scheduler's role.
///
/// # Errors
/// The first error of a part; all parts are tried.
pub async fn once(
    pool: &StorePool,
    keep: &RetentionRules,
    now: OffsetDateTime,
) -> Result<RetentionCounts, StoreError> {
    let mut parts = RetentionErrors::default();
    let mut gone = RetentionCounts::default();
    of_the_cluster(pool, keep, now, &mut gone, &mut parts).await;
    of_jobs(pool, keep, now, &mut gone, &mut parts).await;
    // Users come last, because jobs refer to them.
    let users_before = now - USERS_KEPT;
    let users = batch!(pool, |tx| super::forget_users(&mut tx, users_before));
    gone.users = parts.done(users.await);
    match parts.first_error {
        None => Ok(gone),
        Some(error) => Err(error),
    }
}

async fn of_the_cluster(
    pool: &StorePool,
    keep: &RetentionRules,
    now: OffsetDateTime,
    gone: &mut RetentionCounts,
    parts: &mut RetentionErrors,
) {
    let rounds_before = now - keep.rounds;
    let rounds = batch!(pool, |tx| round::prune(&mut tx, rounds_before));
    gone.rounds = parts.done(rounds.await);
    let forecasts = batch!(pool, |tx| forecast::prune(&mut tx, rounds_before));
    parts.done(forecasts.await);
    let answers = batch!(pool, |tx| idempotency::sweep(&mut tx, now));
    gone.answers = parts.done(answers.await);
    let questions = batch!(pool, |tx| question::prune(&mut tx, now));
    parts.done(questions.await);
    let tokens = batch!(pool, |tx| token::sweep(&mut tx, now - TOKENS_SHOWN));
    gone.tokens = parts.done(tokens.await);
    let join_tokens = batch!(pool, |tx| super::forget_join_tokens(&mut tx, now));
    parts.done(join_tokens.await);
    let nodes_before = now - keep.gone_nodes;
    gone.nodes = parts
        .done(repeat(|| batch!(pool, |tx| super::expire_nodes(&mut tx, nodes_before, now))).await);
    let events_before = now - keep.events;
    gone.events = parts
        .done(repeat(|| batch!(pool, |tx| super::forget_events(&mut tx, events_before))).await);
    parts.done(repeat(|| batch!(pool, |tx| super::forget_revisions(&mut tx, events_before))).await);
    let rows = batch!(pool, |tx| super::forget_nodes(&mut tx, nodes_before));
    parts.done(rows.await);
}

async fn of_jobs(
    pool: &StorePool,
    keep: &RetentionRules,
    now: OffsetDateTime,
    gone: &mut RetentionCounts,
    parts: &mut RetentionErrors,
) {
    if let Some(ended_jobs) = keep.ended_jobs {
        let before = now - ended_jobs;
        gone.expired = parts
            .done(repeat(|| batch!(pool, |tx| super::expire_jobs(&mut tx, before, now))).await);
        gone.expired += parts
            .done(repeat(|| batch!(pool, |tx| super::expire_studies(&mut tx, before, now))).await);
    }
    let before = now - keep.deleted_jobs;
    parts.done(repeat(|| batch!(pool, |tx| super::empty_studies(&mut tx, before))).await);
    gone.jobs = parts.done(purge(pool, before).await);
    gone.studies =
        parts.done(repeat(|| batch!(pool, |tx| super::remove_studies(&mut tx, before))).await);
}

/// Purges all jobs that were deleted before `before`, and returns their number.
async fn purge(pool: &StorePool, before: OffsetDateTime) -> Result<u64, StoreError> {
    let mut purged = 0;
    let mut after = None;
    loop {
        let mut tx = pool::begin_maintenance(pool).await?;
        let due = super::deleted_jobs(&mut tx, before, after).await?;
        tx.commit().await.map_err(StoreError::from)?;
        after = due.last().copied();
        if after.is_none() {
            return Ok(purged);
        }
        let ids: Vec<JobId> = due.iter().map(|job| job.id).collect();
        repeat(|| batch!(pool, |tx| super::empty(&mut tx, &ids))).await?;
        purged += batch!(pool, |tx| super::remove(&mut tx, &ids)).await?;
    }
}
