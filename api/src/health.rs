//! Liveness and readiness, for supervisors and load balancers.

use crate::problem::{ApiError, ProblemKind};
use crate::state::ApiState;
use axum::extract::State;
use muster_store::pool;
use std::time::Duration;

/// Maximum wait for a blocking thread. Probes time out after 5 s.
const BLOCKING_THREAD_WAIT: Duration = Duration::from_secs(2);

/// `GET /healthz`: the process answers.
pub async fn alive() -> &'static str {
    "alive\n"
}

/// `GET /readyz`: the database answers, and a blocking thread is free. Pages, files, large bodies
/// and new connections to the database need such a thread.
pub async fn ready(State(app): State<ApiState>) -> Result<&'static str, ApiError> {
    let thread = tokio::task::spawn_blocking(|| ());
    if tokio::time::timeout(BLOCKING_THREAD_WAIT, thread)
        .await
        .is_err()
    {
        return Err(ApiError::new(
            ProblemKind::Unavailable,
            "all threads for files are busy",
        ));
    }
    pool::ping(&app.pool).await?;
    Ok("ready\n")
}
