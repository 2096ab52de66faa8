//! Asks the scheduler by way of the store, and waits for its answer.

use crate::auth::Caller;
use crate::clock;
use crate::problem::{Kind, Refusal, chain};
use crate::state::App;
use muster_model::question::{Answer, Question};
use muster_store::StoreError;
use muster_store::question::{self, Open};
use std::time::Duration;
use uuid::Uuid;

/// Open questions of one tenant at a time: each costs the scheduler seconds on a large cluster.
const MOST_OPEN: u32 = 8;
/// Below the time in which every answer must begin.
const PATIENCE: Duration = Duration::from_secs(25);
/// A question outlives whoever asked by this at most, should the api die.
const LIVES: Duration = Duration::from_secs(60);
/// Between two looks for the answer: few milliseconds at first.
const LOOKS_MS: (u64, u64) = (5, 200);

/// # Errors
/// Too many questions of the tenant are open, no scheduler answers, or it refuses.
pub async fn ask(app: &App, caller: &Caller, question: Question) -> Result<Answer, Refusal> {
    let open = Open {
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
        return Err(Refusal::new(Kind::TooManyRequests, detail).retry_after(1));
    }
    tx.commit().await.map_err(StoreError::from)?;
    let asked = Asked::new(app, caller, open.id);
    let answered = tokio::time::timeout(PATIENCE, wait(app, caller, &open)).await;
    asked.withdraw().await?;
    match answered {
        Ok(Ok(Answer::Refused { error })) => {
            Err(Refusal::of_fields(Kind::InvalidBody, vec![error]))
        }
        Ok(Ok(Answer::Failed { why })) => {
            let detail = format!("the scheduler could not answer: {why}; its log says more");
            Err(Refusal::new(Kind::Internal, detail))
        }
        Ok(answer) => answer,
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            let detail = format!("no scheduler has answered within {seconds} s");
            Err(Refusal::new(Kind::Timeout, detail))
        }
    }
}

/// An open question. Dropped before it is withdrawn, as when the client hangs up, it is withdrawn in the background: the scheduler
/// then computes no answer.
struct Asked {
    app: App,
    caller: Caller,
    id: Uuid,
    is_withdrawn: bool,
}

impl Asked {
    fn new(app: &App, caller: &Caller, id: Uuid) -> Self {
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

impl Drop for Asked {
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

async fn withdraw(app: &App, caller: &Caller, id: Uuid) -> Result<(), StoreError> {
    let mut tx = app.begin(caller).await?;
    question::forget(&mut tx, id).await?;
    tx.commit().await.map_err(StoreError::from)
}

async fn wait(app: &App, caller: &Caller, open: &Open) -> Result<Answer, Refusal> {
    let (mut pause_ms, longest_ms) = LOOKS_MS;
    loop {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let mut tx = app.begin(caller).await?;
        if let Some(answer) = question::answer_of(&mut tx, open.id).await? {
            return Ok(answer);
        }
        // Given back before the next pause: others wait for it.
        drop(tx);
        pause_ms = (pause_ms * 2).min(longest_ms);
    }
}
