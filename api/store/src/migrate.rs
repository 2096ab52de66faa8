//! Brings a database to this version's schema, and lets the daemons log in to it.

use crate::error::StoreError;
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

/// The two roles as which daemons connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    Api,
    Scheduler,
}

/// Applies what is missing, as the owner of the database. Safe to call from several processes at once: the first takes an
/// advisory lock, the others wait and find nothing left to do.
///
/// # Errors
/// [`StoreError::Migrate`], also when the database is of a newer version, or an applied migration was edited.
pub async fn run(owner_url: &str) -> Result<(), StoreError> {
    let mut conn = PgConnection::connect(owner_url).await?;
    MIGRATIONS
        .run(&mut conn)
        .await
        .map_err(StoreError::Migrate)?;
    conn.close().await?;
    Ok(())
}

/// Makes a role able to log in, with a password unless the server trusts the connection anyway. Migrations create the roles
/// without login, so that whoever installs decides on this.
///
/// # Errors
/// [`StoreError::Statement`], when `owner_url` may not change roles.
pub async fn allow_login(
    owner_url: &str,
    login: Login,
    password: Option<&str>,
) -> Result<(), StoreError> {
    let mut conn = PgConnection::connect(owner_url).await?;
    let role = match login {
        Login::Api => "muster_api",
        Login::Scheduler => "muster_scheduler",
    };
    // Postgres takes no parameters in ALTER ROLE; its own quoting makes the statement.
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
