//! For whoever restarts and balances: is the process alive, and can it serve.

use crate::problem::{Kind, Refusal};
use crate::state::App;
use axum::extract::State;
use muster_store::pool;
use std::time::Duration;

/// Maximum wait for a blocking thread. Probes give up after 5 s.
const BLOCKING_THREAD_WAIT: Duration = Duration::from_secs(2);

/// `GET /healthz`: the process answers.
pub async fn alive() -> &'static str {
    "alive\n"
}

/// `GET /readyz`: the database answers, and a blocking thread is free. Without one no page, no file and no large body is served, and
/// no new connection to the database is made.
pub async fn ready(State(app): State<App>) -> Result<&'static str, Refusal> {
    let thread = tokio::task::spawn_blocking(|| ());
    if tokio::time::timeout(BLOCKING_THREAD_WAIT, thread)
        .await
        .is_err()
    {
        return Err(Refusal::new(
            Kind::Unavailable,
            "all threads for files are busy",
        ));
    }
    pool::ping(&app.pool).await?;
    Ok("ready\n")
}
