//! What can go wrong with a request.

use muster_model::view::Problem;

/// Named by what became of the request.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server refused, and said why; nothing was changed.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// No answer came. Whether the request was carried out is not known; an `Idempotency-Key` makes it safe to send again.
    #[error("no answer from {url}")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// Something answered, but not as this version of Muster does.
    #[error("the answer of {url} (status {status}) is not Muster's")]
    Decode {
        url: String,
        status: u16,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server's address or the token cannot be sent.
    #[error("{what} {value:?} cannot be used; {expected}")]
    Address {
        what: &'static str,
        value: String,
        expected: &'static str,
    },
}

impl ClientError {
    /// The refusal's HTTP status, if it is one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Problem(problem) => Some(problem.status),
            _ => None,
        }
    }

    /// Whether the same may succeed soon: the server is away, starting, or has too much to do.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Problem(problem) => matches!(problem.status, 429 | 502 | 503 | 504),
            Self::Unreachable { .. } => true,
            _ => false,
        }
    }
}
