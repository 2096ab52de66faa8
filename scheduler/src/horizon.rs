//! Watches how long events wait to become visible. A transaction that stays open anywhere on the
//! Postgres server delays all event streams.

use crate::clock;
use crate::metrics::Metrics;
use crate::passes;
use muster_store::StoreError;
use muster_store::event::EventCursor;
use muster_store::horizon::{self, HorizonHolder};
use muster_store::pool::{self, StorePool};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_secs(2);
/// Maximum duration of a pass.
const LIMIT: Duration = Duration::from_secs(20);
/// Age of an event from which on a warning is logged.
const PATIENCE: Duration = Duration::from_secs(10);
/// Minimum interval between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Oldest invisible event of the last poll, and the time since which it is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct HorizonWatch {
    waits: Option<(EventCursor, Instant)>,
    warned: Option<Instant>,
}

/// Age of the oldest invisible event, measured by the polls of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Age {
    pub waited: Duration,
    /// Warning to log, with the transaction that delays the event if it is known.
    pub warning: Option<Option<HorizonHolder>>,
}

/// Polls until the term ends.
pub async fn run(pool: &StorePool, metrics: &Metrics) {
    let mut watched = HorizonWatch::default();
    loop {
        tokio::time::sleep(PAUSE).await;
        let look = once(pool, &mut watched, clock::instant());
        let Some(age) = passes::one("horizon", LIMIT, look).await else {
            continue;
        };
        metrics.event_horizon(age.waited);
        if let Some(holder) = age.warning {
            let waited_s = age.waited.as_secs();
            let holder = holder.map_or_else(|| "unknown".to_owned(), |holder| holder.to_string());
            tracing::warn!(
                waited_s,
                holder,
                "events are not shown: an open transaction of this Postgres server holds them back"
            );
        }
    }
}

/// Polls once.
///
/// # Errors
/// [`StoreError`].
pub async fn once(
    pool: &StorePool,
    watched: &mut HorizonWatch,
    now: Instant,
) -> Result<Age, StoreError> {
    let mut tx = pool::begin(pool).await?;
    let unseen = horizon::first_unseen(&mut tx).await?;
    watched.waits = match (unseen, watched.waits) {
        (Some(unseen), Some((before, since))) if unseen == before => Some((unseen, since)),
        (unseen, _) => unseen.map(|unseen| (unseen, now)),
    };
    let waited = watched
        .waits
        .map_or(Duration::ZERO, |(_, since)| now - since);
    let is_silent = watched.warned.is_some_and(|at| now - at < WARN_EVERY);
    let warning = if waited > PATIENCE && !is_silent {
        watched.warned = Some(now);
        Some(horizon::holder(&mut tx).await?)
    } else {
        None
    };
    tx.commit().await.map_err(StoreError::from)?;
    Ok(Age { waited, warning })
}
