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
    let mut pause = EVERY;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = app.stopping.cancelled() => return,
        }
        pause = match submit_due(&app, clock::now()).await {
            // More may be due, for example at a full hour.
            Ok(AT_ONCE) => Duration::ZERO,
            Ok(_) => EVERY,
            Err(error) => {
                tracing::warn!(?error, "could not read the due schedules; trying again");
                EVERY
            }
        };
    }
}

/// Submits the jobs of up to 100 schedules that are due at `now`, each at most once by all API
/// servers. Returns the number of schedules that are not due any more.
///
/// # Errors
/// [`StoreError::Statement`] if the due schedules cannot be read. A schedule that fails stays due,
/// and the others are submitted.
pub async fn submit_due(app: &ApiState, now: OffsetDateTime) -> Result<u64, StoreError> {
    let mut conn = app.pool.acquire().await?;
    let due = schedule::due(&mut conn, now, AT_ONCE).await?;
    drop(conn);
    let mut done = 0;
    for schedule in due {
        match fire(app, &schedule, now).await {
            Ok(()) => done += 1,
            Err(error) => {
                let reason = error.detail();
                tracing::warn!(schedule = schedule.name, reason, "a schedule stays due");
            }
        }
    }
    Ok(done)
}
