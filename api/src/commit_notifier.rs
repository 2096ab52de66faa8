//! Notifications after a submission has committed.
//!
//! A NOTIFY within the transaction would serialise the commits of submissions: Postgres holds a
//! lock of the whole database during such a commit. Instead, one statement after the commits
//! notifies for all submissions since the last one. If a notification is lost with the process, the
//! job waits for the next timed round.

use muster_model::error_chain::chain;
use muster_store::StoreError;
use muster_store::notify::{self, NotifyChannel};
use muster_store::pool::StorePool;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Shortest time between two notifications, so that many submissions share one. After a pause the
/// first one is sent at once.
const APART: Duration = Duration::from_millis(10);
/// Pause between attempts while the database is not available.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct CommitNotifier {
    requests: Arc<Notify>,
}

impl CommitNotifier {
    #[must_use]
    pub fn start(pool: StorePool, stopping: CancellationToken) -> Self {
        let requests = Arc::new(Notify::new());
        tokio::spawn(answer(pool, requests.clone(), stopping));
        Self { requests }
    }

    /// Requests a notification of scheduler and streams about a commit. Returns at once.
    pub fn notify(&self) {
        self.requests.notify_one();
    }
}

async fn answer(pool: StorePool, requests: Arc<Notify>, stopping: CancellationToken) {
    loop {
        tokio::select! {
            () = requests.notified() => {}
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

async fn send(pool: &StorePool) -> Result<(), StoreError> {
    let mut conn = pool.acquire().await?;
    notify::send(&mut conn, &[NotifyChannel::Rounds, NotifyChannel::Events]).await
}
