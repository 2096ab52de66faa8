//! Loop that submits the jobs of due schedules of all tenants.

use super::fire::fire;
use crate::clock;
use crate::state::ApiState;
use muster_store::{StoreError, schedule};
use std::time::Duration;
use time::OffsetDateTime;

/// Time between two searches for due schedules.
const EVERY: Duration = Duration::from_secs(1);
/// Maximum number of schedules of one search.
const AT_ONCE: u64 = 100;

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

/// Submits the jobs of schedules that are due at `now`, each at most once by all API servers.
///
/// # Errors
/// [`StoreError::Statement`] if the due schedules cannot be read. A schedule that fails stays due,
/// and the others are submitted.
pub async fn submit_due(app: &ApiState, now: OffsetDateTime) -> Result<(), StoreError> {
    let mut conn = app.pool.acquire().await?;
    let due = schedule::due(&mut conn, now, AT_ONCE).await?;
    drop(conn);
    for schedule in due {
        if let Err(error) = fire(app, &schedule, now).await {
            let reason = error.detail();
            tracing::warn!(schedule = schedule.name, reason, "a schedule stays due");
        }
    }
    Ok(())
}
