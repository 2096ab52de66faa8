//! What cancel, pause, resume, suspend and continue share: they state what the user wants, and answer the job as it is by then.

use super::wire;
use crate::auth::Caller;
use crate::clock;
use crate::problem::{Kind, Refusal};
use crate::state::App;
use axum::Json;
use axum::http::StatusCode;
use muster_model::id::JobId;
use muster_model::job::Intent;
use muster_model::view::JobView;
use muster_store::StoreError;
use muster_store::job::{self, IntentOutcome};

/// `verb` is what the user called it.
pub async fn state(
    app: &App,
    caller: &Caller,
    id: JobId,
    verb: &str,
    wanted: Intent,
) -> Result<(StatusCode, Json<JobView>), Refusal> {
    let missing = || Refusal::not_found(format!("job {id}"));
    let mut tx = app.begin(caller).await?;
    match job::set_intent(&mut tx, id, wanted, clock::now()).await? {
        IntentOutcome::Changed | IntentOutcome::Unchanged => {}
        IntentOutcome::Refused { phase, .. } if phase.is_terminal() => {
            let detail = format!(
                "the job is {}; {verb} needs queued, starting, running, suspended, stopping or paused",
                phase.as_str()
            );
            return Err(Refusal::new(Kind::WrongPhase, detail));
        }
        IntentOutcome::Refused { phase, .. } => {
            let detail = format!(
                "the job is {} and being cancelled, which is final; {verb} comes too late",
                phase.as_str()
            );
            return Err(Refusal::new(Kind::WrongPhase, detail));
        }
        IntentOutcome::NotFound => return Err(missing()),
    }
    let row = job::get(&mut tx, id).await?.ok_or_else(missing)?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok((
        StatusCode::ACCEPTED,
        Json(wire::job(row, &caller.tenant_name)),
    ))
}
