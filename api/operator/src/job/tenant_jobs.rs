//! Jobs of one tenant, as last read.

use super::cache::{JobCache, JobCacheUpdate, RequestTimes};
use super::change_notifier::JobChangeNotifier;
use super::document::label;
use crate::clock;
use crate::error::Error;
use muster_client::{Client, ClientError, JobQuery};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::{JobView, Page};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Minimum time between two lists of a tenant's jobs. The stream reports changes but not progress
/// or queue positions.
const EVERY: Duration = Duration::from_secs(1);
/// Minimum ratio of the pause between lists to the duration of a list.
const SHARE: u32 = 5;
/// Tolerance after the expected time of a list, after which the cache is not used.
const LATE: Duration = Duration::from_secs(3);
/// Time without a request after which the follower of a tenant ends.
const UNASKED: Duration = Duration::from_secs(60);
const PAGE: u32 = 500;
/// Maximum number of ids in one request; a longer URL exceeds the limit of some proxies.
const BATCH: usize = 100;

/// Jobs of one tenant.
#[derive(Debug)]
pub(super) struct TenantJobs {
    operator: String,
    change_notifier: Arc<JobChangeNotifier>,
    /// Permits one list at a time.
    listing: tokio::sync::Mutex<()>,
    /// Notified when [`TenantJobsState::doubted`] is not empty.
    doubt: Notify,
    state: Mutex<TenantJobsState>,
}

#[derive(Debug)]
struct TenantJobsState {
    cache: JobCache,
    /// Newest client; tokens are replaced from time to time.
    client: Client,
    /// Request time of the newest answered list; before the first list, the time at which following
    /// started.
    listed: Instant,
    /// Time of the last request of a reconciliation.
    asked: Instant,
    /// Time until which the cache is used.
    good_until: Option<Instant>,
    is_followed: bool,
    /// Jobs that may have changed without an event.
    doubted: HashSet<JobId>,
}

impl TenantJobs {
    pub(super) fn new(
        operator: String,
        change_notifier: Arc<JobChangeNotifier>,
        client: Client,
        now: Instant,
    ) -> Self {
        Self {
            operator,
            change_notifier,
            listing: tokio::sync::Mutex::default(),
            doubt: Notify::new(),
            state: Mutex::new(TenantJobsState {
                cache: JobCache::default(),
                client,
                listed: now,
                asked: now,
                good_until: None,
                is_followed: false,
                doubted: HashSet::new(),
            }),
        }
    }

    /// Request time of the newest answered list.
    pub(super) fn listed_at(&self) -> Instant {
        self.state().listed
    }

    /// Records that the job may have changed without an event.
    pub(super) fn doubt(&self, id: JobId) {
        self.state().doubted.insert(id);
        self.doubt.notify_one();
    }

    pub(super) fn client(&self) -> Client {
        self.state().client.clone()
    }

    /// Records a request, and returns whether a follower must be started.
    pub(super) fn is_asked(&self, client: &Client, now: Instant) -> bool {
        let mut state = self.state();
        state.asked = now;
        state.client = client.clone();
        !std::mem::replace(&mut state.is_followed, true)
    }

    /// Returns whether the tenant has had no request for long; if so, the caller must stop
    /// following.
    pub(super) fn is_left(&self) -> bool {
        let mut state = self.state();
        let is_left = clock::monotonic().saturating_duration_since(state.asked) >= UNASKED;
        state.is_followed = !is_left;
        is_left
    }

    pub(super) fn is_over(&self) -> bool {
        !self.state().is_followed
    }

    pub(super) fn is_good(&self) -> bool {
        let now = clock::monotonic();
        self.state().good_until.is_some_and(|until| now < until)
    }

    pub(super) fn get(&self, id: JobId) -> Option<JobView> {
        self.state().cache.get(id).cloned()
    }

    pub(super) fn knows(&self, id: JobId) -> bool {
        self.state().cache.get(id).is_some()
    }

    /// Waits until there are jobs that may have changed without an event, and returns them.
    pub(super) async fn doubted(&self) -> HashSet<JobId> {
        self.doubt.notified().await;
        std::mem::take(&mut self.state().doubted)
    }

    /// Caches a read, and wakes the reconciliation of its object if the state is new.
    pub(super) fn take(&self, job: &JobView, read: RequestTimes) -> JobCacheUpdate {
        // A writer of statuses can name any job, so other jobs are ignored; trials carry the labels
        // of their study.
        let is_ours = job.labels.get(label::OPERATOR) == Some(&self.operator);
        if !is_ours || job.trial.is_some() {
            return JobCacheUpdate::Same;
        }
        let taken = self.state().cache.take(job, read);
        if taken == JobCacheUpdate::Changed {
            self.change_notifier.notify(job);
        }
        taken
    }

    /// Concurrent reconciliations share one list.
    pub(super) async fn list_unless_good(&self, client: &Client) -> Result<(), Error> {
        let listing = self.listing.lock().await;
        if self.is_good() {
            return Ok(());
        }
        let listed = self.listed(client).await;
        drop(listing);
        // The follower reads the jobs that have ended since.
        listed
            .map(drop)
            .map_err(Error::muster("jobs were not listed"))
    }

    /// Reads all unfinished jobs. Returns the jobs that the cache believed unfinished and that the
    /// list lacks, and the time of the next list.
    ///
    /// # Errors
    /// If the REST interface does not answer.
    pub(super) async fn list(&self, client: &Client) -> Result<(Vec<JobId>, Instant), ClientError> {
        let _listing = self.listing.lock().await;
        self.listed(client).await
    }

    async fn listed(&self, client: &Client) -> Result<(Vec<JobId>, Instant), ClientError> {
        let asked = clock::monotonic();
        let jobs = self.living(client).await?;
        let read = since(asked);
        for job in &jobs {
            self.take(job, read);
        }
        let living: HashSet<JobId> = jobs.iter().map(|job| job.id).collect();
        let took = read.answered.saturating_duration_since(read.asked);
        let pause = EVERY.max(took * SHARE);
        let mut state = self.state();
        state.cache.sweep(read.answered);
        state.listed = state.listed.max(read.asked);
        state.good_until = Some(read.answered + 2 * pause + LATE);
        Ok((state.cache.missing(&living, read), read.answered + pause))
    }

    async fn living(&self, client: &Client) -> Result<Vec<JobView>, ClientError> {
        let mut query = JobQuery {
            phases: JobPhase::ALL
                .into_iter()
                .filter(|phase| !phase.is_terminal())
                .collect(),
            labels: vec![format!("{}={}", label::OPERATOR, self.operator)],
            limit: Some(PAGE),
            ..JobQuery::default()
        };
        let mut jobs = Vec::new();
        loop {
            let page: Page<JobView> = client.jobs(&query).await?;
            jobs.extend(page.items);
            if page.next.is_none() {
                return Ok(jobs);
            }
            query.after = page.next;
        }
    }

    /// Reads some of the changed jobs and removes them from `changed`. Jobs whose answer may be too
    /// old stay in it.
    ///
    /// # Errors
    /// If the REST interface does not answer.
    pub(super) async fn read(
        &self,
        client: &Client,
        changed: &mut HashSet<JobId>,
    ) -> Result<(), ClientError> {
        let ids: Vec<JobId> = changed.iter().copied().take(BATCH).collect();
        let query = JobQuery {
            ids: ids.clone(),
            limit: Some(PAGE),
            ..JobQuery::default()
        };
        let asked = clock::monotonic();
        let page = client.jobs(&query).await?;
        let read = since(asked);
        for id in &ids {
            changed.remove(id);
        }
        let mut gone: HashSet<JobId> = ids.into_iter().collect();
        for job in &page.items {
            gone.remove(&job.id);
            if self.take(job, read) == JobCacheUpdate::Older {
                changed.insert(job.id);
            }
        }
        for id in gone {
            let was = self.state().cache.forget(id, read);
            if let Some(job) = was {
                self.change_notifier.notify(&job);
            }
        }
        Ok(())
    }

    /// Removes jobs from the cache and wakes their reconciliations, which then send their own
    /// requests.
    pub(super) fn forget(&self, jobs: &HashSet<JobId>) {
        for id in jobs {
            let was = self.state().cache.discard(*id);
            if let Some(job) = was {
                self.change_notifier.notify(&job);
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, TenantJobsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Read that is answered now.
pub(super) fn since(asked: Instant) -> RequestTimes {
    RequestTimes {
        asked,
        answered: clock::monotonic(),
    }
}
