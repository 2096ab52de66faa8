//! Wake-ups by NOTIFY. They carry no data, may be merged and may be missed while a listener connects: whoever wakes reads the
//! store, and whoever waits also looks by itself now and then. A wake-up sent in a transaction arrives only if it commits.

use crate::error::StoreError;
use crate::pool::Pool;
use sqlx::postgres::{PgConnectOptions, PgListener};
use sqlx::{Acquire as _, Connection as _, PgConnection};
use std::time::Duration;

/// Silence after which a listener asks whether its connection stands: nothing else would tell that it is dead.
const SILENCE: Duration = Duration::from_secs(5);
/// Longest wait for the answer.
const ANSWER: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// The scheduler: something changed that a round may act on.
    Rounds,
    /// Node sessions: some node's assignment changed.
    Assignments,
    /// Streams of the api: events or samples were added.
    Events,
    /// The scheduler: somebody asks what would come of something.
    Questions,
    /// The scheduler: somebody wants something of a study, or tells it something.
    Studies,
}

impl Channel {
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

/// Wakes whoever listens, once the transaction commits.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn send(conn: &mut PgConnection, channels: &[Channel]) -> Result<(), StoreError> {
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

/// A connection that waits for wake-ups.
#[derive(Debug)]
pub struct Listener {
    inner: PgListener,
    channels: Vec<Channel>,
    pending: Vec<Channel>,
}

impl Listener {
    /// Listens on a connection of its own, as the role of `pool`.
    ///
    /// # Errors
    /// [`StoreError::Statement`].
    pub async fn connect(pool: &Pool, channels: &[Channel]) -> Result<Self, StoreError> {
        // Not one of the pool: a dead one would keep its place there for 15 minutes.
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

    /// The next wake-up. After the connection was lost and made again, every channel wakes once, for what may have been missed.
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`StoreError::Statement`] when the connection cannot be made again, [`StoreError::Silent`] when it does not answer any more.
    pub async fn next(&mut self) -> Result<Channel, StoreError> {
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
