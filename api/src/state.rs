//! Shared state of all handlers: connections, limits and background tasks. Cheap to clone.

use crate::auth::caller::Caller;
use crate::auth::tokens::Tokens;
use crate::body::parse::Readers;
use crate::config::{Limits, Settings};
use crate::failures::Failures;
use crate::files::Files;
use crate::metrics::Metrics;
use crate::rate::Rate;
use crate::stream::wakes::Wakes;
use crate::study::Lines;
use crate::wake::Waker;
use muster_connections::Places;
use muster_model::id::{TenantId, TokenId};
use muster_objects::ObjectsError;
use muster_store::StoreError;
use muster_store::pool::{self, Pool, Transaction};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Why the daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("could not read the database's address")]
    Database(#[from] StoreError),
    #[error("could not open the place for checkpoints")]
    Checkpoints(#[from] ObjectsError),
}

#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

/// Accessed through [`App`].
pub struct Inner {
    pub pool: Pool,
    pub limits: Limits,
    /// Where nodes write checkpoints; `None` refuses downloads.
    pub files: Option<Files>,
    /// Threads that parse large bodies.
    pub readers: Readers,
    /// Folder of the built web page; `None` serves no page.
    pub web_root: Option<PathBuf>,
    pub tokens: Tokens,
    /// Requests without a valid token.
    pub failures: Failures,
    /// Rate limits of tokens.
    pub token_rate: Rate<TokenId>,
    /// Rate limits of tenants, over all their tokens.
    pub tenant_rate: Rate<TenantId>,
    pub metrics: Metrics,
    /// Notifies the scheduler and all API servers.
    pub waker: Waker,
    /// Wakes the streams of this process.
    pub wakes: Wakes,
    /// Waiting requests for trials.
    pub lines: Lines,
    /// Limits of open streams.
    pub streams: Places<TenantId>,
    /// Cancelled when the daemon stops, so that open streams end.
    pub stopping: CancellationToken,
}

impl std::ops::Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl App {
    /// Starts the background tasks, which end with `stopping`. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// If the address of the database is invalid, or the environment lacks the settings of the
    /// bucket.
    pub fn start(settings: &Settings, stopping: CancellationToken) -> Result<Self, StartError> {
        let pool = pool::api(&settings.database_url, settings.database_connections)?;
        let limits = &settings.limits;
        let inner = Inner {
            limits: limits.clone(),
            files: settings
                .checkpoint_root
                .as_ref()
                .map(Files::open)
                .transpose()?,
            readers: Readers::default(),
            web_root: settings.web_root.clone(),
            tokens: Tokens::default(),
            failures: Failures::new(limits),
            token_rate: Rate::new(limits.requests_per_s, limits.requests_burst),
            tenant_rate: Rate::new(
                limits.tenant_requests_per_s.max(limits.requests_per_s),
                limits.tenant_requests_burst.max(limits.requests_burst),
            ),
            metrics: Metrics::default(),
            waker: Waker::start(pool.clone(), stopping.clone()),
            wakes: Wakes::start(pool.clone(), stopping.clone()),
            lines: Lines::default(),
            streams: Places::new(limits.streams, limits.streams_per_tenant),
            stopping,
            pool,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Begins a transaction that sees and changes only the rows of the caller's tenant. It is
    /// rolled back unless committed.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn begin(&self, caller: &Caller) -> Result<Transaction, StoreError> {
        pool::begin_for(&self.pool, caller.tenant_id).await
    }
}
