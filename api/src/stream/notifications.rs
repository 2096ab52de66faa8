//! Notifications of new entries for the streams of this process.

use muster_model::error_chain::chain;
use muster_store::StoreError;
use muster_store::notify::{Listener, NotifyChannel};
use muster_store::pool::StorePool;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Poll interval without a notification, which may be lost with its sender.
const IDLE: Duration = Duration::from_secs(5);
/// Additional polls after a notification. An entry that committed behind a transaction still
/// running becomes visible only then.
const AGAIN: [Duration; 2] = [Duration::from_millis(150), Duration::from_secs(1)];
/// Pause between attempts while the database is not available.
pub const PAUSE: Duration = Duration::from_secs(1);

/// Distributes notifications to the streams of this process.
#[derive(Debug, Clone)]
pub struct EventNotifications {
    turn: watch::Receiver<u64>,
}

impl EventNotifications {
    #[must_use]
    pub fn start(pool: StorePool, stopping: CancellationToken) -> Self {
        let (sender, turn) = watch::channel(0);
        tokio::spawn(async move {
            while !stopping.is_cancelled() {
                if let Err(error) = listen(&pool, &sender, &stopping).await {
                    tracing::warn!(
                        error = chain(&error),
                        "streams are not woken; trying to listen again"
                    );
                }
                sender.send_modify(|turn| *turn += 1);
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    () = stopping.cancelled() => {}
                }
            }
        });
        Self { turn }
    }

    /// Returns a receiver that changes when new entries may exist.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.turn.clone()
    }
}

async fn listen(
    pool: &StorePool,
    sender: &watch::Sender<u64>,
    stopping: &CancellationToken,
) -> Result<(), StoreError> {
    let mut listener = Listener::connect(pool, &[NotifyChannel::Events]).await?;
    // Remaining steps of AGAIN.
    let mut again = AGAIN.iter();
    loop {
        sender.send_modify(|turn| *turn += 1);
        let pause = again.next().copied().unwrap_or(IDLE);
        tokio::select! {
            woken = listener.next() => {
                woken?;
                again = AGAIN.iter();
            }
            () = tokio::time::sleep(pause) => {}
            () = stopping.cancelled() => return Ok(()),
        }
    }
}
