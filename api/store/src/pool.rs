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
/// Longest wait for an answer to a ping; then the connection is closed, and another one is made.
const PING: Duration = Duration::from_secs(2);
/// Longest statement of the api, seconds: its requests are answered within 30 s.
const API_STATEMENT_S: u32 = 30;
/// Longest statement of the scheduler, seconds. A round over 20,000 jobs takes seconds on a busy machine.
const SCHEDULER_STATEMENT_S: u32 = 20;
/// Longest statement of [`begin_maintenance`], seconds.
const MAINTENANCE_STATEMENT_S: u32 = 600;
/// Longest transaction of the scheduler as it sees it: a connection that a router has forgotten reports no error for 15 minutes.
const TRANSACTION: Duration = Duration::from_secs(30);
/// Limits of every session that Postgres itself enforces, for clients that vanish. A transaction that asks nothing for 15 s is ended, and
/// its locks with it; a connection is ended when its host does not acknowledge for 11 s. Sockets of the same machine ignore the latter.
const VANISHED: &str = "set idle_in_transaction_session_timeout = '15s'; set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 2; \
     set tcp_keepalives_count = 3; set tcp_user_timeout = '11s'";

/// A plan that is kept for a prepared statement is the one for the tables as they were: a burst of submissions makes a plan for ten
/// rows run on ten thousand, until statistics are gathered again. To compile a plan takes longer than any statement of a round.
const PLANNED_EACH_TIME: &str = "set plan_cache_mode = force_custom_plan; set jit = off";

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
            become_role(conn, "muster_api", API_STATEMENT_S).await
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
        Box::pin(async move {
            become_role(conn, "muster_scheduler", SCHEDULER_STATEMENT_S).await?;
            conn.execute(PLANNED_EACH_TIME).await.map(drop)
        })
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
    let begin = async move {
        let begun = tokio::time::timeout(ACQUIRE_TIMEOUT * 2, pool.begin_with(statement));
        begun.await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    };
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

/// Begins a transaction whose statements may take minutes: for deleting what is old.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn begin_maintenance(pool: &Pool) -> Result<Transaction, StoreError> {
    let statement = format!("begin; set local statement_timeout = '{MAINTENANCE_STATEMENT_S}s'");
    begin_with(pool, AssertSqlSafe(statement)).await
}

/// Carries out `work`, one transaction of the scheduler, and gives it up where the database stays silent. Its connection is closed
/// then, and not used again.
///
/// # Errors
/// [`StoreError::Silent`], or the error of `work`.
pub async fn in_time<T, E: From<StoreError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let silent = |_| {
        Err(E::from(StoreError::Silent {
            limit_s: TRANSACTION.as_secs(),
        }))
    };
    tokio::time::timeout(TRANSACTION, work)
        .await
        .unwrap_or_else(silent)
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
                    answers(conn).await?;
                }
                Ok(true)
            })
        })
        // The pool asks again, without a limit: a connection that stays silent would keep its place for 15 minutes.
        .after_release(|conn, _| {
            Box::pin(async move {
                answers(conn).await?;
                Ok(true)
            })
        })
}

/// Reads what a statement that was given up has left, and rolls its transaction back.
async fn answers(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    let answered = tokio::time::timeout(PING, conn.ping()).await;
    answered.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// In one round trip.
async fn become_role(
    conn: &mut PgConnection,
    role: &'static str,
    statement_s: u32,
) -> Result<(), sqlx::Error> {
    let statement = AssertSqlSafe(format!(
        "set role {role}; set statement_timeout = '{statement_s}s'; {VANISHED}"
    ));
    conn.execute(statement).await.map(drop)
}

pub(crate) fn connect(url: &str, name: &str) -> Result<PgConnectOptions, StoreError> {
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
