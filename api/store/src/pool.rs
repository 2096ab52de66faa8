//! Connections, each bound to one of the two roles, and the transactions that begin on them.

use crate::error::StoreError;
use muster_model::id::TenantId;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Postgres};
use std::str::FromStr as _;
use std::time::Duration;
use tracing::Instrument as _;

/// Connections to the store; cheap to clone.
pub type Pool = sqlx::PgPool;
/// Rolled back when dropped without `commit`.
pub type Transaction = sqlx::Transaction<'static, Postgres>;

const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection idle for less is taken without asking whether it still stands: it was asked when it was given back. Postgres
/// takes longer to come back from a crash, so that nobody who asks after it gets a connection from before it.
const TRUSTED: Duration = Duration::from_millis(100);
/// Postgres ends a connection that has stood in a transaction for a minute and asked nothing: whoever holds locks and is gone, or stopped, keeps
/// others waiting no longer than that. To ask each connection that is given back whether it is in one would cost a round trip every time.
const AS_ANYBODY: &str = "set idle_in_transaction_session_timeout = '60s'";

/// Connections of the api: bound by row level security. No connection is made yet. Connections of a login that could bypass it
/// are never handed out; `verify_api` tells so at once.
///
/// # Errors
/// [`StoreError::Address`].
pub fn api(url: &str, max: u32) -> Result<Pool, StoreError> {
    let pool = options(max).after_connect(|conn, _| {
        Box::pin(async move {
            if let Some(login) = bypassing(conn).await? {
                return Err(sqlx::Error::Configuration(Box::new(StoreError::Bypass {
                    login,
                })));
            }
            become_role(conn, "muster_api").await
        })
    });
    Ok(pool.connect_lazy_with(connect(url, "muster-api")?))
}

/// Whether the api may work with this address: for its start, because a pool would only try again until it times out.
///
/// # Errors
/// [`StoreError::Bypass`], [`StoreError::Address`], or [`StoreError::Statement`] when the database does not answer.
pub async fn verify_api(url: &str) -> Result<(), StoreError> {
    let mut conn = PgConnection::connect_with(&connect(url, "muster-api")?).await?;
    match bypassing(&mut conn).await? {
        Some(login) => Err(StoreError::Bypass { login }),
        None => Ok(conn.close().await?),
    }
}

/// Connections of the scheduler, which sees all tenants. No connection is made yet.
///
/// # Errors
/// [`StoreError::Address`].
pub fn scheduler(url: &str, max: u32) -> Result<Pool, StoreError> {
    let pool = options(max).after_connect(|conn, _| {
        Box::pin(async move { become_role(conn, "muster_scheduler").await })
    });
    Ok(pool.connect_lazy_with(connect(url, "muster-scheduler")?))
}

/// Connections of the owner of the schema, for whoever installs: first tenants, users and tokens. No connection is made yet.
///
/// # Errors
/// [`StoreError::Address`].
pub fn owner(url: &str, max: u32) -> Result<Pool, StoreError> {
    Ok(options(max).connect_lazy_with(connect(url, "muster-owner")?))
}

/// Begins a transaction.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn begin(pool: &Pool) -> Result<Transaction, StoreError> {
    begin_with(pool, AssertSqlSafe("begin".to_owned())).await
}

/// In a task of its own: whoever asks may be gone before the answer has come, and the connection would go back to the pool with a transaction
/// open on it that nobody knows of. The next one would then be within that, and act for its tenant; and what is written without a transaction
/// would be acknowledged and undone.
#[expect(clippy::disallowed_methods, reason = "everybody else begins here")]
pub(crate) async fn begin_with(
    pool: &Pool,
    statement: AssertSqlSafe<String>,
) -> Result<Transaction, StoreError> {
    let pool = pool.clone();
    let begin = async move { pool.begin_with(statement).await };
    match tokio::spawn(begin.in_current_span()).await {
        Ok(begun) => Ok(begun?),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and with it whatever connections there are.
            Err(_cancelled) => Err(sqlx::Error::PoolClosed.into()),
        },
    }
}

/// Begins a transaction that acts for `tenant`, in the round trip of its `BEGIN`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn begin_for(pool: &Pool, tenant: TenantId) -> Result<Transaction, StoreError> {
    // A UUID needs no quoting beyond its quotes.
    let statement = format!("begin; set local muster.tenant = '{}'", tenant.0);
    begin_with(pool, AssertSqlSafe(statement)).await
}

/// Begins a transaction that reads one consistent snapshot and writes nothing.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn begin_snapshot(pool: &Pool) -> Result<Transaction, StoreError> {
    let statement = "begin isolation level repeatable read read only";
    begin_with(pool, AssertSqlSafe(statement.to_owned())).await
}

/// Whether the database answers.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn ping(pool: &Pool) -> Result<(), StoreError> {
    pool.acquire().await?.ping().await?;
    Ok(())
}

fn options(max: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(max)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .before_acquire(|conn, connection| {
            Box::pin(async move {
                if connection.idle_for >= TRUSTED {
                    conn.ping().await?;
                }
                Ok(true)
            })
        })
}

/// In one round trip.
async fn become_role(conn: &mut PgConnection, role: &'static str) -> Result<(), sqlx::Error> {
    let statement = AssertSqlSafe(format!("set role {role}; {AS_ANYBODY}"));
    conn.execute(statement).await.map(drop)
}

fn connect(url: &str, name: &str) -> Result<PgConnectOptions, StoreError> {
    Ok(PgConnectOptions::from_str(url)
        .map_err(StoreError::Address)?
        .application_name(name))
}

/// The login, if it is a superuser, the owner of the tables, or may become one of them or the scheduler.
async fn bypassing(conn: &mut PgConnection) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select r.rolname::text as "login!"
           from pg_roles r
           where r.rolname = session_user
             and (r.rolsuper or r.rolbypassrls
                  or pg_has_role(session_user, 'muster_scheduler', 'member')
                  or pg_has_role(session_user, (select relowner from pg_class where oid = to_regclass('job')), 'member'))"#
    )
    .fetch_optional(conn)
    .await
}
