//! Errors of the store. "Not found" and conflicts of plans are results, not errors.

use crate::limit::TenantLimitExceeded;

/// Error of the store; variants are named by the operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the database did not carry out a statement")]
    Statement(#[from] sqlx::Error),
    #[error("the database address is not one of Postgres")]
    Address(#[source] sqlx::Error),
    /// Refused because rows of all tenants would be visible if one transaction omitted its scope.
    #[error(
        "the login {login:?} can bypass row level security; the api needs muster_api, or a role that is only a member of it"
    )]
    Bypass { login: String },
    #[error("the migrations were not run")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error(
        "the migrations were not run: a table was in use at each of {attempts} attempts; end the long transaction (pg_stat_activity shows it) and migrate again"
    )]
    Busy {
        attempts: u32,
        #[source]
        source: sqlx::migrate::MigrateError,
    },
    /// The outcome of the transaction is unknown.
    #[error("the database did not answer within {limit_s} s")]
    Silent { limit_s: u64 },
    /// No new work is accepted for the tenant.
    #[error("the tenant was deleted")]
    TenantDeleted,
    #[error(transparent)]
    Exceeded(#[from] TenantLimitExceeded),
    #[error("{what} in the database does not read as this version's")]
    Decode {
        what: String,
        #[source]
        source: serde_json::Error,
    },
}

impl StoreError {
    /// Whether a repetition of the whole transaction may succeed: Postgres ended it because of a
    /// deadlock or a serialization conflict.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.code().as_deref(), Some("40001" | "40P01"))
    }

    /// Whether a unique name or id already exists.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        matches!(self.code().as_deref(), Some("23505" | "42P04"))
    }

    /// Whether the row refers to a row that does not exist.
    #[must_use]
    pub fn is_dangling(&self) -> bool {
        self.code().as_deref() == Some("23503")
    }

    /// Whether row level security or a missing grant refused the statement.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.code().as_deref() == Some("42501")
    }

    /// Whether the database is unreachable now or has no connection left. The statement itself may
    /// be correct.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Statement(
                sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed,
            ) => true,
            Self::Silent { .. } => true,
            // Shutdown, crash, start-up, too many connections, or an expired time limit of the
            // session.
            _ => matches!(
                self.code().as_deref(),
                Some("57P01" | "57P02" | "57P03" | "53300" | "57014" | "25P03" | "57P05")
            ),
        }
    }

    /// Whether a value of the statement can never be stored, such as a text with NUL.
    #[must_use]
    pub fn is_unstorable(&self) -> bool {
        self.code().is_some_and(|code| code.starts_with("22"))
    }

    fn code(&self) -> Option<String> {
        match self {
            Self::Statement(sqlx::Error::Database(error)) => {
                error.code().map(|code| code.into_owned())
            }
            _ => None,
        }
    }
}
