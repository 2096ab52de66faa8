//! Loop that submits the jobs of due schedules of all tenants.

use super::fire::fire;
use crate::clock;
use crate::state::ApiState;
use muster_store::schedule::DueSchedule;
use muster_store::{StoreError, schedule};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::task::{JoinError, JoinSet};

/// Time between two searches for due schedules.
const EVERY: Duration = Duration::from_secs(1);
/// Maximum number of schedules that one query returns.
const PAGE: u64 = 100;
/// Maximum number of schedules that are submitted at the same time, each with a connection.
const AT_ONCE: usize = 8;

/// Submits the jobs of all schedules until the daemon stops.
pub async fn submit_all(app: ApiState) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = app.stopping.cancelled() => return,
        }
        if let Err(error) = submit_due(&app, clock::now()).await {
            tracing::warn!(?error, "could not read the due schedules; trying again");
        }
    }
}

/// Submits the jobs of the schedules that are due at `now`, each at most once by all API servers.
/// Returns the number of schedules that are not due any more.
///
/// # Errors
/// [`StoreError::Statement`] if the due schedules cannot be read. A schedule that fails stays due,
/// and the others are submitted.
pub async fn submit_due(app: &ApiState, now: OffsetDateTime) -> Result<u64, StoreError> {
    let mut done = 0;
    let mut last = None;
    while !app.stopping.is_cancelled() {
        let mut conn = app.pool.acquire().await?;
        let page = schedule::due(&mut conn, now, last.as_ref(), PAGE).await?;
        drop(conn);
        let Some(end) = page.last() else {
            break;
        };
        last = Some(end.clone());
        done += submit_page(app, page, now).await;
    }
    Ok(done)
}

/// Returns the number of schedules that are not due any more.
async fn submit_page(app: &ApiState, page: Vec<DueSchedule>, now: OffsetDateTime) -> u64 {
    let mut done = 0;
    let mut running = JoinSet::new();
    for schedule in page {
        if running.len() >= AT_ONCE
            && let Some(ended) = running.join_next().await
        {
            done += u64::from(is_done(ended));
        }
        running.spawn(submit(app.clone(), schedule, now));
    }
    while let Some(ended) = running.join_next().await {
        done += u64::from(is_done(ended));
    }
    done
}

/// Returns whether the schedule is not due any more.
async fn submit(app: ApiState, schedule: DueSchedule, now: OffsetDateTime) -> bool {
    let Err(error) = fire(&app, &schedule, now).await else {
        return true;
    };
    let reason = error.detail();
    tracing::warn!(schedule = schedule.name, reason, "a schedule stays due");
    false
}

fn is_done(ended: Result<bool, JoinError>) -> bool {
    ended.unwrap_or_else(|error| {
        tracing::error!(?error, "the submission of a schedule ended unexpectedly");
        false
    })
}
