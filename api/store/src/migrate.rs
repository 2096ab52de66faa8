//! Migrates a database to this version's schema, and lets the daemons log in.

use crate::error::StoreError;
use crate::pool;
use sqlx::migrate::{Migrate as _, MigrateError, Migrator};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use std::time::Duration;

/// Longest wait of a migration's statement for a lock, in seconds.
const LOCK_S: u32 = 2;
const ATTEMPTS: u32 = 15;
/// Pause between two attempts. Transactions that waited behind the migration run in it.
const PAUSE: Duration = Duration::from_secs(2);

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

/// The two roles with which daemons connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonRole {
    Api,
    Scheduler,
}

/// Applies the missing migrations as the owner of the database. Concurrent calls from several
/// processes are safe: the first one takes an advisory lock, the others wait and find nothing to
/// do.
///
/// A statement waits at most [`LOCK_S`] for a lock, because all readers and writers of the table
/// wait behind it. The migration is then repeated after a pause, at most [`ATTEMPTS`] times in all.
///
/// # Errors
/// [`StoreError::Migrate`], also if the database has a newer version or an applied migration was
/// edited; [`StoreError::Busy`] if a table stays locked.
pub async fn run(owner_url: &str) -> Result<(), StoreError> {
    let options = pool::connect(owner_url, "muster-migrate")?;
    let mut conn = PgConnection::connect_with(&options).await?;
    // Another process may migrate for a long time: this wait has no limit.
    conn.lock().await.map_err(StoreError::Migrate)?;
    let limit = AssertSqlSafe(format!("set lock_timeout = '{LOCK_S}s'"));
    conn.execute(limit).await?;
    let mut attempt = 1;
    while let Err(error) = MIGRATIONS.run(&mut conn).await {
        if !is_locked(&error) {
            return Err(StoreError::Migrate(error));
        }
        if attempt == ATTEMPTS {
            return Err(StoreError::Busy {
                attempts: ATTEMPTS,
                source: error,
            });
        }
        tracing::warn!(
            %error, attempt, attempts = ATTEMPTS,
            "a table is in use; trying again"
        );
        attempt += 1;
        tokio::time::sleep(PAUSE).await;
    }
    conn.close().await?;
    Ok(())
}

/// Whether a statement failed because its wait for a lock expired.
fn is_locked(error: &MigrateError) -> bool {
    let (MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _)) = error else {
        return false;
    };
    source
        .as_database_error()
        .and_then(|error| error.code())
        .as_deref()
        == Some("55P03")
}

/// Allows a role to log in, with a password unless the server trusts the connection anyway.
/// Migrations create the roles without login: the installer decides about it.
///
/// # Errors
/// [`StoreError::Statement`], also if `owner_url` may not alter roles.
pub async fn allow_login(
    owner_url: &str,
    login: DaemonRole,
    password: Option<&str>,
) -> Result<(), StoreError> {
    let mut conn = PgConnection::connect(owner_url).await?;
    let role = match login {
        DaemonRole::Api => "muster_api",
        DaemonRole::Scheduler => "muster_scheduler",
    };
    // ALTER ROLE takes no parameters in Postgres, so `format` quotes the values.
    let statement = sqlx::query_scalar!(
        r#"select format('alter role %I login password %L', $1::text, $2::text) as "statement!""#,
        role,
        password
    )
    .fetch_one(&mut conn)
    .await?;
    conn.execute(AssertSqlSafe(statement)).await?;
    conn.close().await?;
    Ok(())
}

/// Creates an empty database, or a copy of `template`. Used by `muster up` and tests; needs a login
/// that may create databases.
///
/// # Errors
/// [`StoreError::Statement`]; its `is_taken` is true if a database of that name exists.
pub async fn create_database(
    server_url: &str,
    name: &str,
    template: Option<&str>,
) -> Result<(), StoreError> {
    let mut conn = PgConnection::connect(server_url).await?;
    let statement = sqlx::query_scalar!(
        r#"select format('create database %I template %I', $1::text, $2::text) as "statement!""#,
        name,
        template.unwrap_or("template1")
    )
    .fetch_one(&mut conn)
    .await?;
    conn.execute(AssertSqlSafe(statement)).await?;
    conn.close().await?;
    Ok(())
}

/// Returns a number that identifies this set of migrations.
#[must_use]
pub fn fingerprint() -> u64 {
    MIGRATIONS
        .iter()
        .flat_map(|migration| migration.checksum.iter())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            // FNV-1a over the SHA-384 checksums of the files.
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
}
