//! Sends a question to the scheduler through the store, and waits for the answer.

use crate::auth::Caller;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::state::ApiState;
use muster_model::error_chain::chain;
use muster_model::question::{Answer, Question};
use muster_store::StoreError;
use muster_store::question::{self, OpenQuestion};
use std::time::Duration;
use uuid::Uuid;

/// Maximum number of open questions of one tenant: each costs the scheduler seconds on a large
/// cluster.
const MOST_OPEN: u32 = 8;
/// Maximum wait for the answer; shorter than the time limit of a request.
const PATIENCE: Duration = Duration::from_secs(25);
/// Lifetime of a question, in case the API server dies.
const LIVES: Duration = Duration::from_secs(60);
/// Poll interval for the answer in milliseconds: first and longest.
const LOOKS_MS: (u64, u64) = (5, 200);

/// Asks the scheduler and returns its answer.
///
/// # Errors
/// If the tenant has too many open questions, no scheduler answers, or it refuses.
pub async fn ask(app: &ApiState, caller: &Caller, question: Question) -> Result<Answer, ApiError> {
    let open = OpenQuestion {
        id: clock::new_id(),
        tenant: caller.tenant_id,
        question,
    };
    let now = clock::now();
    let mut tx = app.begin(caller).await?;
    if !question::ask(&mut tx, &open, MOST_OPEN, now, now + LIVES).await? {
        let detail = format!(
            "{MOST_OPEN} questions of tenant {} are open already; ask again when one is answered",
            caller.tenant_name
        );
        return Err(ApiError::new(ProblemKind::TooManyRequests, detail).retry_after(1));
    }
    tx.commit().await.map_err(StoreError::from)?;
    let asked = QuestionGuard::new(app, caller, open.id);
    let answered = tokio::time::timeout(PATIENCE, wait(app, caller, &open)).await;
    asked.withdraw().await?;
    match answered {
        Ok(Ok(Answer::Refused { error })) => {
            Err(ApiError::of_fields(ProblemKind::InvalidBody, vec![error]))
        }
        Ok(Ok(Answer::Failed { why })) => {
            let detail = format!("the scheduler could not answer: {why}; its log says more");
            Err(ApiError::new(ProblemKind::Internal, detail))
        }
        Ok(answer) => answer,
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            let detail = format!("no scheduler has answered within {seconds} s");
            Err(ApiError::new(ProblemKind::Timeout, detail))
        }
    }
}

/// An open question. If it is dropped early, because the client disconnects, it is withdrawn in the
/// background; the scheduler then computes no answer.
struct QuestionGuard {
    app: ApiState,
    caller: Caller,
    id: Uuid,
    is_withdrawn: bool,
}

impl QuestionGuard {
    fn new(app: &ApiState, caller: &Caller, id: Uuid) -> Self {
        Self {
            app: app.clone(),
            caller: caller.clone(),
            id,
            is_withdrawn: false,
        }
    }

    async fn withdraw(mut self) -> Result<(), StoreError> {
        withdraw(&self.app, &self.caller, self.id).await?;
        self.is_withdrawn = true;
        Ok(())
    }
}

impl Drop for QuestionGuard {
    fn drop(&mut self) {
        if self.is_withdrawn {
            return;
        }
        let (app, caller, id) = (self.app.clone(), self.caller.clone(), self.id);
        tokio::spawn(async move {
            if let Err(error) = withdraw(&app, &caller, id).await {
                tracing::warn!(
                    error = chain(&error),
                    "a question was not withdrawn; it expires"
                );
            }
        });
    }
}

async fn withdraw(app: &ApiState, caller: &Caller, id: Uuid) -> Result<(), StoreError> {
    let mut tx = app.begin(caller).await?;
    question::forget(&mut tx, id).await?;
    tx.commit().await.map_err(StoreError::from)
}

async fn wait(app: &ApiState, caller: &Caller, open: &OpenQuestion) -> Result<Answer, ApiError> {
    let (mut pause_ms, longest_ms) = LOOKS_MS;
    loop {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let mut tx = app.begin(caller).await?;
        if let Some(answer) = question::answer_of(&mut tx, open.id).await? {
            return Ok(answer);
        }
        // Released before the pause, because other requests wait for a connection.
        drop(tx);
        pause_ms = (pause_ms * 2).min(longest_ms);
    }
}
