//! Retention: what has served its time is forgotten, so that the store does not grow without end.

use crate::clock;
use crate::config::Config;
use crate::passes;
use muster_store::pool::{self, Pool};
use muster_store::{StoreError, forecast, idempotency, job, round, token};
use std::time::Duration;

/// The first look comes after a minute: whoever takes over the lead has more urgent things to do.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(3_600);
/// Longest pass.
const LIMIT: Duration = Duration::from_secs(1_800);
/// So long after it has expired, a token is still found in its tenant's list.
const TOKENS_SHOWN: Duration = Duration::from_secs(86_400);

/// How much was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten {
    pub rounds: u64,
    pub answers: u64,
    /// Expired ones.
    pub tokens: u64,
    /// Deleted jobs whose logs and samples went.
    pub jobs: u64,
}

/// Forgets hourly.
pub async fn run(pool: &Pool, config: &Config) {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = PAUSE;
        let forgotten = passes::one("retention", LIMIT, once(pool, config)).await;
        if let Some(Forgotten {
            rounds,
            answers,
            tokens,
            jobs,
        }) = forgotten
        {
            tracing::info!(
                rounds,
                answers,
                tokens,
                jobs,
                "forgot what had served its time"
            );
        }
    }
}

/// Forgets once: old rounds and forecasts, answers under expired idempotency keys, tokens that have expired a day ago, and what jobs
/// deleted long ago had left. Each in a transaction of its own, so that none holds its locks longer than it needs.
///
/// # Errors
/// At the first that the store does not carry out; those before it stand.
pub async fn once(pool: &Pool, config: &Config) -> Result<Forgotten, StoreError> {
    let now = clock::now();
    let rounds_before = now - Duration::from_secs(config.keep_rounds_s);
    let jobs_before = now - Duration::from_secs(config.keep_deleted_jobs_s);
    let mut tx = pool::begin_maintenance(pool).await?;
    let rounds = round::prune(&mut tx, rounds_before).await?;
    forecast::prune(&mut tx, rounds_before).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let mut tx = pool::begin_maintenance(pool).await?;
    let answers = idempotency::sweep(&mut tx, now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let mut tx = pool::begin_maintenance(pool).await?;
    let tokens = token::sweep(&mut tx, now - TOKENS_SHOWN).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let mut tx = pool::begin_maintenance(pool).await?;
    let jobs = job::purge(&mut tx, jobs_before).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(Forgotten {
        rounds,
        answers,
        tokens,
        jobs,
    })
}
