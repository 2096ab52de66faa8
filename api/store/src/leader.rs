//! Leadership of the scheduler: an advisory lock, held for as long as one connection lives.

use crate::error::StoreError;
use sqlx::{Connection as _, PgConnection};
use std::time::Duration;

/// "muster" in ASCII; unique among the advisory locks of a database.
const LOCK: i64 = 0x6d75_7374_6572;
const CHECK_EVERY: Duration = Duration::from_secs(1);
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// The lock, held. Postgres frees it when the connection ends, so a killed leader leaves nothing behind.
#[derive(Debug)]
pub struct Leadership {
    conn: PgConnection,
}

impl Leadership {
    /// `None` while another process leads.
    ///
    /// # Errors
    /// [`StoreError::Statement`].
    pub async fn acquire(url: &str) -> Result<Option<Self>, StoreError> {
        let mut conn = PgConnection::connect(url).await?;
        let held = sqlx::query_scalar!(r#"select pg_try_advisory_lock($1) as "held!""#, LOCK)
            .fetch_one(&mut conn)
            .await?;
        if held {
            return Ok(Some(Self { conn }));
        }
        conn.close().await?;
        Ok(None)
    }

    /// Returns once the lock is no longer known to be held, and why.
    pub async fn lost(&mut self) -> StoreError {
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            match tokio::time::timeout(CHECK_TIMEOUT, self.conn.ping()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error.into(),
                Err(_) => return sqlx::Error::PoolTimedOut.into(),
            }
        }
    }
}
