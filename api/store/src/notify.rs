//! Notifications by Postgres `NOTIFY`. They carry no data, may be merged, and may be lost while a
//! listener connects. So a process that wakes reads the store, and waiting processes also poll. A
//! notification of a transaction is sent only if it commits.

use crate::error::StoreError;
use crate::pool::StorePool;
use sqlx::postgres::{PgConnectOptions, PgListener};
use sqlx::{Acquire as _, Connection as _, PgConnection};
use std::time::Duration;

/// Silence after which a listener pings its connection. A dead connection is not noticed otherwise.
const SILENCE: Duration = Duration::from_secs(5);
/// Longest wait for the answer to a ping.
const ANSWER: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NotifyChannel {
    /// To the scheduler: a change on which a round may act.
    Rounds,
    /// To node sessions: an assignment changed.
    Assignments,
    /// To streams of the API server: new events or samples.
    Events,
    /// To the scheduler: a new question.
    Questions,
    /// To the scheduler: a new order or result of a study.
    Studies,
}

impl NotifyChannel {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rounds => "muster_rounds",
            Self::Assignments => "muster_assignments",
            Self::Events => "muster_events",
            Self::Questions => "muster_questions",
            Self::Studies => "muster_studies",
        }
    }
}

/// Wakes all listeners of the channels once the transaction commits.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn send(conn: &mut PgConnection, channels: &[NotifyChannel]) -> Result<(), StoreError> {
    let names: Vec<String> = channels
        .iter()
        .map(|channel| channel.as_str().to_owned())
        .collect();
    sqlx::query!(
        "select pg_notify(name, '') from unnest($1::text[]) as name",
        &names
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A connection that waits for notifications.
#[derive(Debug)]
pub struct Listener {
    inner: PgListener,
    channels: Vec<NotifyChannel>,
    pending: Vec<NotifyChannel>,
}

impl Listener {
    /// Opens a separate connection that listens with the role of `pool`.
    ///
    /// # Errors
    /// [`StoreError::Statement`].
    pub async fn connect(pool: &StorePool, channels: &[NotifyChannel]) -> Result<Self, StoreError> {
        // Not taken from the pool: a dead connection would occupy its place for 15 minutes.
        let connect = PgConnectOptions::clone(&pool.connect_options());
        let options = pool.options().clone().max_connections(1);
        let mut inner = PgListener::connect_with(&options.connect_lazy_with(connect)).await?;
        inner
            .listen_all(channels.iter().map(|channel| channel.as_str()))
            .await?;
        Ok(Self {
            inner,
            channels: channels.to_vec(),
            pending: Vec::new(),
        })
    }

    /// Returns the next notification. After a reconnect every channel is returned once, because
    /// notifications may have been lost. Safe to cancel: dropping the future loses nothing.
    ///
    /// # Errors
    /// [`StoreError::Statement`] if a reconnect fails, [`StoreError::Silent`] if the connection
    /// does not answer.
    pub async fn next(&mut self) -> Result<NotifyChannel, StoreError> {
        loop {
            if let Some(channel) = self.pending.pop() {
                return Ok(channel);
            }
            let Ok(received) = tokio::time::timeout(SILENCE, self.inner.try_recv()).await else {
                self.check().await?;
                continue;
            };
            match received? {
                Some(notification) => {
                    let woken = self
                        .channels
                        .iter()
                        .find(|channel| channel.as_str() == notification.channel());
                    self.pending.extend(woken);
                }
                None => self.pending.clone_from(&self.channels),
            }
        }
    }

    async fn check(&mut self) -> Result<(), StoreError> {
        let ping = async { self.inner.acquire().await?.ping().await };
        match tokio::time::timeout(ANSWER, ping).await {
            Ok(answered) => Ok(answered?),
            Err(_) => Err(StoreError::Silent {
                limit_s: ANSWER.as_secs(),
            }),
        }
    }
}
