//! What can go wrong with the store. "Not found" and conflicts of plans are answers, not errors.

use crate::limit::Exceeded;

/// Named by what was tried.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the database did not carry out a statement")]
    Statement(#[from] sqlx::Error),
    #[error("the database address is not one of Postgres")]
    Address(#[source] sqlx::Error),
    /// Rows of every tenant would be one forgotten scope away.
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
    /// Whether the transaction took place is not known.
    #[error("the database did not answer within {limit_s} s")]
    Silent { limit_s: u64 },
    /// Nothing is begun for it any more.
    #[error("the tenant was deleted")]
    TenantDeleted,
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    #[error("{what} in the database does not read as this version's")]
    Decode {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
}

impl StoreError {
    /// Whether the same transaction, begun anew, may succeed: Postgres chose it as the victim of a deadlock or a conflict.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.code().as_deref(), Some("40001" | "40P01"))
    }

    /// Whether a name or an id exists already.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        matches!(self.code().as_deref(), Some("23505" | "42P04"))
    }

    /// Whether the row refers to something that does not exist.
    #[must_use]
    pub fn is_dangling(&self) -> bool {
        self.code().as_deref() == Some("23503")
    }

    /// Whether row level security or a missing grant refused it.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.code().as_deref() == Some("42501")
    }

    /// Whether the database cannot be reached now, or has no connection left; nothing is known to be wrong with the statement.
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
            // Shutting down, crashed, starting up, out of connections; a time limit of the session has passed.
            _ => matches!(
                self.code().as_deref(),
                Some("57P01" | "57P02" | "57P03" | "53300" | "57014" | "25P03" | "57P05")
            ),
        }
    }

    /// Whether the statement's values are such that no row can hold them, such as a NUL in a text.
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
