//! Connection pools, each bound to one database role, and transactions on their connections.

use crate::error::StoreError;
use muster_model::id::TenantId;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Postgres};
use std::str::FromStr as _;
use std::time::Duration;
use tracing::Instrument as _;

/// Pool of connections to the store; cheap to clone.
pub type StorePool = sqlx::PgPool;
/// A transaction. It is rolled back when it is dropped without `commit`.
pub type Transaction = sqlx::Transaction<'static, Postgres>;

const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle time up to which a connection is reused without a ping. It was pinged when it was returned
/// to the pool. A restart of Postgres after a crash takes longer than this.
const TRUSTED: Duration = Duration::from_millis(100);
/// Longest wait for an answer to a ping. The connection is then closed and replaced.
const PING: Duration = Duration::from_secs(2);
/// Longest statement of the API server, in seconds. Its requests have a limit of 30 s.
const API_STATEMENT_S: u32 = 30;
/// Longest statement of the scheduler, in seconds. A round over 20,000 jobs takes seconds on a busy
/// machine.
const SCHEDULER_STATEMENT_S: u32 = 20;
/// Longest statement of [`begin_maintenance`], in seconds.
const MAINTENANCE_STATEMENT_S: u32 = 600;
/// Longest transaction of the scheduler. It is measured by the client, because a connection that a
/// router has dropped reports no error for 15 minutes.
const TRANSACTION: Duration = Duration::from_secs(30);
/// Limits that Postgres enforces on each session, against clients that vanish. A transaction
/// without a statement for 15 s is ended, with its locks. A connection is ended if its host does
/// not acknowledge for 11 s; the latter has no effect on sockets of the same machine.
const VANISHED: &str = "set idle_in_transaction_session_timeout = '15s'; set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 2; \
     set tcp_keepalives_count = 3; set tcp_user_timeout = '11s'";

/// Settings against stale plans. A stored plan of a prepared statement is made for the tables of
/// its time: after a burst of submissions, a plan for ten rows would run on ten thousand. JIT is
/// off because the compilation of a plan takes longer than any statement of a round.
const PLANNED_EACH_TIME: &str = "set plan_cache_mode = force_custom_plan; set jit = off";

/// Returns the pool of the API server, bound by row level security. No connection is opened yet.
/// The pool hands out no connection of a login that could bypass row level security; `verify_api`
/// reports such a login.
///
/// # Errors
/// [`StoreError::Address`].
pub fn api(url: &str, max: u32) -> Result<StorePool, StoreError> {
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

/// Checks whether the API server may use this address. For its start, because a pool would only
/// retry until it times out.
///
/// # Errors
/// [`StoreError::Bypass`], [`StoreError::Address`], or [`StoreError::Statement`] if the database
/// does not answer.
pub async fn verify_api(url: &str) -> Result<(), StoreError> {
    let mut conn = PgConnection::connect_with(&connect(url, "muster-api")?).await?;
    match bypassing(&mut conn).await? {
        Some(login) => Err(StoreError::Bypass { login }),
        None => Ok(conn.close().await?),
    }
}

/// Returns the pool of the scheduler, which sees all tenants. No connection is opened yet.
///
/// # Errors
/// [`StoreError::Address`].
pub fn scheduler(url: &str, max: u32) -> Result<StorePool, StoreError> {
    let pool = options(max).after_connect(|conn, _| {
        Box::pin(async move {
            become_role(conn, "muster_scheduler", SCHEDULER_STATEMENT_S).await?;
            conn.execute(PLANNED_EACH_TIME).await.map(drop)
        })
    });
    Ok(pool.connect_lazy_with(connect(url, "muster-scheduler")?))
}

/// Returns a pool for the owner of the schema, used for the first tenants, users and tokens. No
/// connection is opened yet.
///
/// # Errors
/// [`StoreError::Address`].
pub fn owner(url: &str, max: u32) -> Result<StorePool, StoreError> {
    Ok(options(max).connect_lazy_with(connect(url, "muster-owner")?))
}

/// Begins a transaction.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn begin(pool: &StorePool) -> Result<Transaction, StoreError> {
    begin_with(pool, AssertSqlSafe("begin".to_owned())).await
}

/// Begins a transaction in a task of its own, because the caller's future may be dropped before the
/// answer arrives. The connection would then return to the pool with an open transaction. The next
/// caller would act within it and for its tenant, and acknowledged writes would be rolled back.
#[expect(
    clippy::disallowed_methods,
    reason = "other code begins transactions through this function"
)]
pub(crate) async fn begin_with(
    pool: &StorePool,
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
            // The runtime is shutting down, and its connections with it.
            Err(_cancelled) => Err(sqlx::Error::PoolClosed.into()),
        },
    }
}

/// Begins a transaction that acts for `tenant`, in one round trip.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn begin_for(pool: &StorePool, tenant: TenantId) -> Result<Transaction, StoreError> {
    // A UUID contains nothing to escape.
    let statement = format!("begin; set local muster.tenant = '{}'", tenant.0);
    begin_with(pool, AssertSqlSafe(statement)).await
}

/// Begins a read-only transaction with one consistent snapshot.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn begin_snapshot(pool: &StorePool) -> Result<Transaction, StoreError> {
    let statement = "begin isolation level repeatable read read only";
    begin_with(pool, AssertSqlSafe(statement.to_owned())).await
}

/// Begins a transaction whose statements may take minutes, for deleting old rows.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn begin_maintenance(pool: &StorePool) -> Result<Transaction, StoreError> {
    let statement = format!("begin; set local statement_timeout = '{MAINTENANCE_STATEMENT_S}s'");
    begin_with(pool, AssertSqlSafe(statement)).await
}

/// Runs `work`, one transaction of the scheduler, and drops it if the database does not answer in
/// time. Its connection is then closed.
///
/// # Errors
/// [`StoreError::Silent`], or the error of `work`.
pub async fn in_time<T, E: From<StoreError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let done = tokio::time::timeout(TRANSACTION, work).await;
    done.unwrap_or_else(|_| {
        Err(E::from(StoreError::Silent {
            limit_s: TRANSACTION.as_secs(),
        }))
    })
}

/// Checks whether the database answers.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn ping(pool: &StorePool) -> Result<(), StoreError> {
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
        // The pool itself pings without a limit: a silent connection would occupy its place for 15
        // minutes.
        .after_release(|conn, _| {
            Box::pin(async move {
                answers(conn).await?;
                Ok(true)
            })
        })
}

/// Pings the connection with a limit. This also discards the results of a dropped statement and
/// rolls its transaction back.
async fn answers(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    let answered = tokio::time::timeout(PING, conn.ping()).await;
    answered.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// Sets role and limits in one round trip.
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

/// Returns the login if it can bypass row level security. This includes superusers, and members of
/// the tables' owner or of the scheduler's role.
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
