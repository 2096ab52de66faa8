//! Errors of requests.

use muster_model::view::Problem;

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server refused the request; nothing was changed.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// No answer arrived. It is unknown whether the request was carried out; an `Idempotency-Key`
    /// makes a repetition safe.
    #[error("no answer from {url}")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// The answer is not one of this version of Muster.
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
    /// Returns the HTTP status of a refusal.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Problem(problem) => Some(problem.status),
            _ => None,
        }
    }

    /// Whether a repetition may succeed soon: the server is away, starting or overloaded.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Problem(problem) => matches!(problem.status, 429 | 502 | 503 | 504),
            Self::Unreachable { .. } => true,
            _ => false,
        }
    }
}
