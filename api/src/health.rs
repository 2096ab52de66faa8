//! For whoever restarts and balances: is the process alive, and can it serve.

use crate::problem::Refusal;
use crate::state::App;
use axum::extract::State;
use muster_store::pool;

/// `GET /healthz`: the process answers.
pub async fn alive() -> &'static str {
    "alive\n"
}

/// `GET /readyz`: the database answers too.
pub async fn ready(State(app): State<App>) -> Result<&'static str, Refusal> {
    pool::ping(&app.pool).await?;
    Ok("ready\n")
}
