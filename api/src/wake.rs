//! Wake-ups sent after a submission has committed.
//!
//! A NOTIFY inside the transaction would make submissions commit one by one (Postgres holds a lock of the whole database over
//! such a commit), so they ring here instead, and one statement wakes for all that rang meanwhile. A ring that is lost with the
//! process costs only the wait for the next round.

use crate::problem::chain;
use muster_store::StoreError;
use muster_store::pool::Pool;
use muster_store::wake::{self, Channel};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Between two wake-ups at least, so that many submissions share one; a ring after silence is answered at once.
const APART: Duration = Duration::from_millis(10);
/// Between two attempts while the database is away.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct Waker {
    bell: Arc<Notify>,
}

impl Waker {
    #[must_use]
    pub fn start(pool: Pool, stopping: CancellationToken) -> Self {
        let bell = Arc::new(Notify::new());
        tokio::spawn(answer(pool, bell.clone(), stopping));
        Self { bell }
    }

    /// Something was committed that a round and the streams should see. Returns at once.
    pub fn ring(&self) {
        self.bell.notify_one();
    }
}

async fn answer(pool: Pool, bell: Arc<Notify>, stopping: CancellationToken) {
    loop {
        tokio::select! {
            () = bell.notified() => {}
            () = stopping.cancelled() => return,
        }
        while let Err(error) = send(&pool).await {
            tracing::warn!(
                error = chain(&error),
                "could not wake the scheduler; trying again"
            );
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = stopping.cancelled() => return,
            }
        }
        tokio::time::sleep(APART).await;
    }
}

async fn send(pool: &Pool) -> Result<(), StoreError> {
    let mut conn = pool.acquire().await?;
    wake::send(&mut conn, &[Channel::Rounds, Channel::Events]).await
}
