//! Shared part of cancel, pause, resume, suspend and continue: they write an intent and answer with
//! the job.

use super::wire;
use crate::auth::Caller;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::state::ApiState;
use axum::Json;
use axum::http::StatusCode;
use muster_model::id::JobId;
use muster_model::job::{Intent, JobPhase};
use muster_model::view::JobView;
use muster_store::StoreError;
use muster_store::job::{self, IntentOutcome};
use muster_store::pool::Transaction;

/// Writes an intent; `verb` is the name of the request.
pub async fn state(
    app: &ApiState,
    caller: &Caller,
    id: JobId,
    verb: &str,
    wanted: Intent,
) -> Result<(StatusCode, Json<JobView>), ApiError> {
    let wanted = ConditionalIntent {
        verb,
        intent: wanted,
        fits: |_, _| true,
        unfit: |_| Ok(()),
    };
    wanted.state(app, caller, id).await
}

/// An intent that only some jobs accept.
pub struct ConditionalIntent<'a> {
    pub verb: &'a str,
    pub intent: Intent,
    /// Whether a job in this phase and with this intent accepts it.
    pub fits: fn(JobPhase, Intent) -> bool,
    /// Answer for other jobs: a refusal, or no change.
    pub unfit: fn(JobPhase) -> Result<(), ApiError>,
}

impl ConditionalIntent<'_> {
    pub async fn state(
        self,
        app: &ApiState,
        caller: &Caller,
        id: JobId,
    ) -> Result<(StatusCode, Json<JobView>), ApiError> {
        let tx = app.begin(caller).await?;
        self.state_in(tx, caller, id).await
    }

    /// As [`Self::state`], in a transaction that has already read the job.
    pub async fn state_in(
        self,
        mut tx: Transaction,
        caller: &Caller,
        id: JobId,
    ) -> Result<(StatusCode, Json<JobView>), ApiError> {
        let (verb, by) = (self.verb, caller.actor());
        match job::set_intent_where(&mut tx, id, self.intent, self.fits, Some(&by), clock::now())
            .await?
        {
            IntentOutcome::Unfit { phase } => (self.unfit)(phase)?,
            IntentOutcome::Changed | IntentOutcome::Unchanged => {}
            IntentOutcome::Refused { phase, .. } if phase.is_terminal() => {
                let detail = format!(
                    "the job has ended ({}); {verb} needs one that has not",
                    phase.as_str()
                );
                return Err(ApiError::new(ProblemKind::WrongPhase, detail));
            }
            IntentOutcome::Refused { phase, .. } => {
                let detail = format!(
                    "the job is {} and being cancelled, which is final; {verb} comes too late",
                    phase.as_str()
                );
                return Err(ApiError::new(ProblemKind::WrongPhase, detail));
            }
            IntentOutcome::NotFound => return Err(ApiError::no_job(id)),
        }
        let row = job::get(&mut tx, id)
            .await?
            .ok_or_else(|| ApiError::no_job(id))?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok((
            StatusCode::ACCEPTED,
            Json(wire::job(row, &caller.tenant_name)),
        ))
    }
}
