//! Errors of a reconciliation. All are retried after a pause; a problem that a retry cannot solve
//! is a condition and not an error.

use muster_client::ClientError;
use muster_model::error_chain::chain;

/// Maximum number of characters of an error in the log.
const MOST_WORDS: usize = 500;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what} by Kubernetes' API")]
    Kubernetes {
        what: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("{what} by Muster's REST interface")]
    Muster {
        what: &'static str,
        #[source]
        source: Box<ClientError>,
    },
    #[error("read {path}")]
    TokenFile {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    pub fn kubernetes(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Kubernetes {
            what,
            source: Box::new(source),
        }
    }

    pub fn muster(what: &'static str) -> impl FnOnce(ClientError) -> Self {
        move |source| Self::Muster {
            what,
            source: Box::new(source),
        }
    }
}

/// Logs an error that will be retried.
pub(crate) fn log_retry<T, E: std::error::Error>(kind: &str, done: Result<T, E>) {
    if let Err(error) = done {
        let words: String = chain(&error).chars().take(MOST_WORDS).collect();
        tracing::warn!(kind, error = words, "will be tried again");
    }
}
