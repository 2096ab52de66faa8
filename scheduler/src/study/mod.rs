//! Runs studies while this process leads: reads facts of trials' jobs and orders of users, asks
//! `muster-search` and turns its actions into jobs.
//!
//! All inputs are level-triggered. A step reads the facts that the search does not know yet. It
//! writes events, state, trials and jobs in one transaction. If the scheduler is killed, a step has
//! happened completely or not at all. This module decides nothing: [`step`] calls the search.

mod carry_out;
mod changes;
mod facts;
mod measured;
mod names;
mod step;

use crate::clock;
use crate::notifications::Notifications;
use crate::passes;
use muster_model::error_chain::chain;
use muster_model::id::StudyId;
use muster_search::{EventError, StudyError};
use muster_store::StoreError;
use muster_store::pool::{StorePool, begin, in_time};
use muster_store::study::{end, search};
use std::collections::BTreeMap;
use std::time::Duration;
use tracing::Instrument as _;

/// Poll interval, because a notification can be missed.
const LOOK: Duration = Duration::from_secs(2);
/// Maximum duration of a step; the next study waits for it. A proposal may take many seconds.
const STEP_LIMIT: Duration = Duration::from_secs(120);
/// Delay before notifications of `trials` (events of jobs) are noticed, so that one pass serves
/// several. Notifications of `studies` (orders and reports) are not delayed.
const PAUSE: Duration = Duration::from_millis(5);

/// Reasons for the end of a study that its search did not decide.
const UNSTORABLE: &str =
    "its document or an order has a value that the database cannot keep, such as a text with a NUL";
const CANCELLED: &str = "a user has cancelled it, and the search could not be carried on";

/// A step failed. It changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error("the store failed during the step")]
    Store(#[from] StoreError),
    #[error("the stored state does not read as this version's")]
    State(#[source] serde_json::Error),
    #[error("the stored document is not valid any more")]
    Document(#[source] StudyError),
    #[error("the stored event {seq} is none of this study")]
    Event {
        seq: u64,
        #[source]
        source: EventError,
    },
    #[error("the study or one of its jobs was changed meanwhile")]
    Overtaken,
    #[error("the search broke off")]
    Search(#[source] tokio::task::JoinError),
}

/// Searches in memory with their position in the events, so that most steps need not load them.
#[derive(Debug, Default)]
pub struct StudyCache {
    studies: BTreeMap<StudyId, step::CachedSearch>,
}

/// Runs all studies. Never returns; the caller drops the future when the leadership ends.
pub async fn run(pool: &StorePool, mut notifications: Notifications) {
    let mut cache = StudyCache::default();
    loop {
        notifications.studies.mark_unchanged();
        notifications.trials.mark_unchanged();
        if let Err(error) = once(pool, &mut cache).await {
            tracing::warn!(error = %chain(&error), "could not look for studies");
        }
        let _ = tokio::time::timeout(LOOK, woken(&mut notifications)).await;
    }
}

/// Returns after the next notification.
async fn woken(notifications: &mut Notifications) {
    let later = async {
        tokio::time::sleep(PAUSE).await;
        notifications.trials.changed().await
    };
    tokio::select! {
        _ = notifications.studies.changed() => {}
        _ = later => {}
    }
}

/// Runs a step of every study with unread input. Returns their number. A failed step does not
/// affect other studies.
///
/// # Errors
/// [`StoreError`] if the list of studies cannot be read.
pub async fn once(pool: &StorePool, cache: &mut StudyCache) -> Result<usize, StoreError> {
    let due = in_time(due(pool)).await?;
    for id in &due {
        let span = tracing::info_span!("scheduler.study", study.id = %id);
        let carried_on = passes::one("studies", STEP_LIMIT, carry_on(pool, cache, *id));
        carried_on.instrument(span).await;
    }
    Ok(due.len())
}

/// Returns the studies with unread input.
async fn due(pool: &StorePool) -> Result<Vec<StudyId>, StoreError> {
    let mut conn = pool.acquire().await?;
    search::due(&mut conn).await
}

/// Runs steps of one study, and ends a study that no step can advance.
async fn carry_on(pool: &StorePool, cache: &mut StudyCache, id: StudyId) -> Result<(), StepError> {
    let Err(failed) = step(pool, cache, id).await else {
        return Ok(());
    };
    if let Err(error) = give_up(pool, id, &failed).await {
        tracing::warn!(error = %chain(&error), "could not end the study");
    }
    Err(failed)
}

/// Ends a study that no step can advance: the store cannot store its content, or a user has
/// cancelled it and its steps fail.
async fn give_up(pool: &StorePool, id: StudyId, failed: &StepError) -> Result<(), StoreError> {
    let mut tx = begin(pool).await?;
    let why = match failed {
        StepError::Store(error) if error.is_unstorable() => UNSTORABLE,
        _ if end::is_to_be_cancelled(&mut tx, id).await? => CANCELLED,
        _ => return Ok(()),
    };
    if end::end(&mut tx, id, why, clock::now()).await? {
        tracing::warn!(study.id = %id, why, "the study has ended");
    }
    Ok(tx.commit().await?)
}

/// Takes steps of one study until the orders that waited at the first step are applied. Repeats a
/// step after a conflict. Keeps an unfinished search in the cache.
async fn step(pool: &StorePool, cache: &mut StudyCache, id: StudyId) -> Result<(), StepError> {
    let mut known = cache.studies.remove(&id);
    // Last order that waited at the first step. Later ones wait until the other studies have had a
    // step.
    let mut until = None;
    let done = loop {
        match step::take(pool, id, known.take(), clock::now()).await {
            Err(StepError::Store(error)) if error.is_retryable() => {
                tracing::debug!(%error, "begun anew after a conflict");
            }
            Err(error @ StepError::Overtaken) => tracing::debug!(%error, "begun anew"),
            // A step that took no order found none. None is left, or another leader has applied
            // the rest.
            Ok(Some(search))
                if search.taken > 0 && search.taken < *until.get_or_insert(search.seen) =>
            {
                known = Some(search);
            }
            done => break done?,
        }
    };
    if let Some(known) = done
        && known.search.phase() != muster_search::SearchPhase::Finished
    {
        cache.studies.insert(id, known);
    }
    Ok(())
}
