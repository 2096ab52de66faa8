//! Leadership of the scheduler: an advisory lock, held as long as one connection is open.
//!
//! Postgres must end this connection soon after its client has vanished; otherwise no other
//! scheduler can lead. The client pings it every second. Postgres ends it after [`SILENT_S`]
//! without a ping, and the client gives it up earlier.

use crate::error::StoreError;
use crate::pool;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use std::time::Duration;

/// "muster" in ASCII; unique among the advisory locks of a database.
const LOCK: i64 = 0x6d75_7374_6572;
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The sum of this and `CHECK_EVERY` is less than `SILENT_S`: this process stops leading before
/// another can start.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without a ping after which Postgres ends the connection, in seconds; Postgres 14 and later.
const SILENT_S: u32 = 5;
/// First version with `idle_session_timeout`.
const IDLE_SESSION_TIMEOUT_SINCE: u32 = 140_000;
/// Settings for Postgres 13. They detect only a vanished host, not a proxy that keeps the
/// connection open.
const KEEPALIVES: &str = "set tcp_keepalives_idle = 2; set tcp_keepalives_interval = 1; set tcp_keepalives_count = 3; \
     set tcp_user_timeout = '5s'";

/// The held lock.
#[derive(Debug)]
pub struct Leadership {
    conn: PgConnection,
}

impl Leadership {
    /// Tries to take the lock. Returns `None` while another process leads.
    ///
    /// # Errors
    /// [`StoreError::Statement`]; [`StoreError::Silent`] if the database does not answer within 5
    /// s.
    pub async fn acquire(url: &str) -> Result<Option<Self>, StoreError> {
        let acquired = tokio::time::timeout(ACQUIRE_TIMEOUT, Self::try_acquire(url)).await;
        acquired.unwrap_or_else(|_| {
            Err(StoreError::Silent {
                limit_s: ACQUIRE_TIMEOUT.as_secs(),
            })
        })
    }

    async fn try_acquire(url: &str) -> Result<Option<Self>, StoreError> {
        let mut conn = PgConnection::connect_with(&pool::connect(url, "muster-leader")?).await?;
        // An unknown version counts as a new one.
        let version = conn.server_version_num();
        let is_old = version.is_some_and(|version| version < IDLE_SESSION_TIMEOUT_SINCE);
        let limits = if is_old {
            KEEPALIVES.to_owned()
        } else {
            format!("{KEEPALIVES}; set idle_session_timeout = '{SILENT_S}s'")
        };
        // Set before the lock is taken, so that a broken connection cannot keep the lock.
        conn.execute(AssertSqlSafe(limits)).await?;
        let held = sqlx::query_scalar!(r#"select pg_try_advisory_lock($1) as "held!""#, LOCK)
            .fetch_one(&mut conn)
            .await?;
        if !held {
            conn.close().await?;
            return Ok(None);
        }
        if is_old {
            tracing::warn!(
                version,
                "this Postgres has no idle_session_timeout (14 has): behind a proxy that keeps connections open, a scheduler that vanishes keeps the lead"
            );
        }
        Ok(Some(Self { conn }))
    }

    /// Waits until the lock is no longer known to be held, and returns the reason.
    pub async fn lost(&mut self) -> StoreError {
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            match tokio::time::timeout(CHECK_TIMEOUT, self.conn.ping()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error.into(),
                Err(_) => {
                    return StoreError::Silent {
                        limit_s: CHECK_TIMEOUT.as_secs(),
                    };
                }
            }
        }
    }
}
