//! Shared state of all handlers: connections, limits and background tasks. Cheap to clone.

use crate::auth::caller::Caller;
use crate::auth::tokens::TokenCache;
use crate::body::parse::Readers;
use crate::commit_notifier::CommitNotifier;
use crate::config::{ApiSettings, ClientLimits};
use crate::failures::Failures;
use crate::files::Files;
use crate::metrics::ApiMetrics;
use crate::rate::KeyedRateLimit;
use crate::remote::{DialError, SchedulerDialer};
use crate::stream::notifications::EventNotifications;
use crate::study::LongPollQueues;
use muster_connections::KeyedSemaphore;
use muster_model::id::{TenantId, TokenId};
use muster_model::place::Place;
use muster_objects::ObjectsError;
use muster_secret::SecretKeys;
use muster_store::StoreError;
use muster_store::pool::{self, StorePool, Transaction};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Maximum number of uploads of code archives at one time, of all tenants and of one.
const MAX_UPLOADS: (usize, usize) = (8, 4);
/// The same for a bucket, where each archive is in memory. The chart limits the daemon to 512 MiB.
const MAX_UPLOADS_TO_BUCKET: (usize, usize) = (2, 1);

/// Why the daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("could not read the database's address")]
    Database(#[from] StoreError),
    #[error("could not use the scheduler's address")]
    Scheduler(#[from] DialError),
    #[error("could not open the place for checkpoints")]
    Checkpoints(#[from] ObjectsError),
}

#[derive(Clone)]
pub struct ApiState {
    inner: Arc<ApiStateInner>,
}

/// Accessed through [`ApiState`].
pub struct ApiStateInner {
    pub pool: StorePool,
    pub limits: ClientLimits,
    /// Where nodes write checkpoints; `None` refuses downloads.
    pub files: Option<Files>,
    /// Keys of users' secrets.
    pub secret_keys: SecretKeys,
    /// Connections to the scheduler for remote sessions; `None` refuses them.
    pub scheduler: Option<SchedulerDialer>,
    /// Threads that parse large bodies.
    pub readers: Readers,
    /// Folder of the built web page; `None` serves no page.
    pub web_root: Option<PathBuf>,
    pub tokens: TokenCache,
    /// Requests without a valid token.
    pub failures: Failures,
    /// Rate limits of tokens.
    pub token_rate: KeyedRateLimit<TokenId>,
    /// Rate limits of tenants, over all their tokens.
    pub tenant_rate: KeyedRateLimit<TenantId>,
    pub metrics: ApiMetrics,
    /// Notifies the scheduler and all API servers.
    pub commit_notifier: CommitNotifier,
    /// Wakes the streams of this process.
    pub event_notifications: EventNotifications,
    /// Waiting requests for trials.
    pub long_poll_queues: LongPollQueues,
    /// Limits of open streams.
    pub streams: KeyedSemaphore<TenantId>,
    /// Limits of uploads of code archives.
    pub uploads: KeyedSemaphore<TenantId>,
    /// Cancelled when the daemon stops, so that open streams end.
    pub stopping: CancellationToken,
}

impl std::ops::Deref for ApiState {
    type Target = ApiStateInner;

    fn deref(&self) -> &ApiStateInner {
        &self.inner
    }
}

impl ApiState {
    /// Starts the background tasks, which end with `stopping`. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// If the address of the database is invalid, or the environment lacks the settings of the
    /// bucket.
    pub fn start(settings: &ApiSettings, stopping: CancellationToken) -> Result<Self, StartError> {
        let pool = pool::api(&settings.database_url, settings.database_connections)?;
        let limits = &settings.limits;
        let (uploads, uploads_of_tenant) = match settings.checkpoint_root {
            Some(Place::Bucket(_)) => MAX_UPLOADS_TO_BUCKET,
            _ => MAX_UPLOADS,
        };
        let inner = ApiStateInner {
            limits: limits.clone(),
            files: settings
                .checkpoint_root
                .as_ref()
                .map(Files::open)
                .transpose()?,
            secret_keys: SecretKeys::new(settings.secret_keys.clone()),
            scheduler: settings
                .scheduler
                .as_ref()
                .map(SchedulerDialer::new)
                .transpose()?,
            readers: Readers::default(),
            web_root: settings.web_root.clone(),
            tokens: TokenCache::default(),
            failures: Failures::new(limits),
            token_rate: KeyedRateLimit::new(limits.requests_per_s, limits.requests_burst),
            tenant_rate: KeyedRateLimit::new(
                limits.tenant_requests_per_s.max(limits.requests_per_s),
                limits.tenant_requests_burst.max(limits.requests_burst),
            ),
            metrics: ApiMetrics::default(),
            commit_notifier: CommitNotifier::start(pool.clone(), stopping.clone()),
            event_notifications: EventNotifications::start(pool.clone(), stopping.clone()),
            long_poll_queues: LongPollQueues::default(),
            streams: KeyedSemaphore::new(limits.streams, limits.streams_per_tenant),
            uploads: KeyedSemaphore::new(uploads, uploads_of_tenant),
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
