//! Wakes the event streams of this process when the store may contain new events or samples.

use muster_model::error_chain::chain;
use muster_store::StoreError;
use muster_store::notify::{Listener, NotifyChannel};
use muster_store::pool::StorePool;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Interval of wake-ups without a notification. The notification of an event is lost if the API
/// server exits before it has sent it.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);
/// Intervals of further wake-ups after a notification. Readers see an event only after every older
/// transaction has ended, which may be later than the notification.
const REPEAT_INTERVALS: [Duration; 2] = [Duration::from_millis(150), Duration::from_secs(1)];
/// Pause between attempts while the database is not available.
pub const PAUSE: Duration = Duration::from_secs(1);

/// One LISTEN connection whose notifications wake all streams.
#[derive(Debug, Clone)]
pub struct EventNotifications {
    /// Number of wake-ups so far.
    wake_ups: watch::Receiver<u64>,
}

impl EventNotifications {
    /// Starts the task that listens until `stopping`.
    #[must_use]
    pub fn start(pool: StorePool, stopping: CancellationToken) -> Self {
        let (sender, wake_ups) = watch::channel(0);
        tokio::spawn(async move {
            while !stopping.is_cancelled() {
                if let Err(error) = listen(&pool, &sender, &stopping).await {
                    tracing::warn!(
                        error = chain(&error),
                        "streams are not woken; trying to listen again"
                    );
                }
                // Without a connection, the streams poll once per attempt.
                sender.send_modify(|wake_ups| *wake_ups += 1);
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    () = stopping.cancelled() => {}
                }
            }
        });
        Self { wake_ups }
    }

    /// Returns a receiver that changes when new events or samples may exist.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.wake_ups.clone()
    }
}

/// Wakes the streams until the connection fails or the process stops.
async fn listen(
    pool: &StorePool,
    sender: &watch::Sender<u64>,
    stopping: &CancellationToken,
) -> Result<(), StoreError> {
    let mut listener = Listener::connect(pool, &[NotifyChannel::Events]).await?;
    let mut repeats = REPEAT_INTERVALS.iter();
    loop {
        sender.send_modify(|wake_ups| *wake_ups += 1);
        let pause = repeats.next().copied().unwrap_or(IDLE_INTERVAL);
        tokio::select! {
            woken = listener.next() => {
                woken?;
                repeats = REPEAT_INTERVALS.iter();
            }
            () = tokio::time::sleep(pause) => {}
            () = stopping.cancelled() => return Ok(()),
        }
    }
}
