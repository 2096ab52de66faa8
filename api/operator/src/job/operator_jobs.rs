//! Jobs of this operator's objects. A follower (`follow.rs`) per tenant keeps the cache current,
//! and reconciliations read it. If the follower has received nothing for a while, a reconciliation
//! sends its own request.

use super::cache::JobCacheUpdate;
use super::change_notifier::JobChangeNotifier;
use super::document::label;
use super::follow;
use super::tenant_jobs::{TenantJobs, since};
use crate::clock;
use crate::error::Error;
use muster_client::{Client, ClientError, JobQuery};
use muster_model::id::JobId;
use muster_model::view::JobView;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct OperatorJobs {
    operator: String,
    change_notifier: Arc<JobChangeNotifier>,
    tenants: Mutex<HashMap<String, Arc<TenantJobs>>>,
}

impl OperatorJobs {
    #[must_use]
    pub fn new(operator: String) -> Self {
        Self {
            operator,
            change_notifier: Arc::default(),
            tenants: Mutex::default(),
        }
    }

    /// Returns the current state of the job from the cache or by a request, or `None` if it does
    /// not exist.
    ///
    /// # Errors
    /// If the REST interface does not answer.
    pub async fn job(
        &self,
        tenant: &str,
        client: &Client,
        id: JobId,
    ) -> Result<Option<JobView>, Error> {
        let tenant_jobs = self.tenant_jobs(tenant, client);
        if !tenant_jobs.is_good() {
            tenant_jobs.list_unless_good(client).await?;
        }
        if let Some(job) = tenant_jobs.get(id) {
            return Ok(Some(job));
        }
        let asked = clock::monotonic();
        let found = client
            .find_job(id)
            .await
            .map_err(Error::muster("a job was not read"))?;
        if let Some(job) = &found {
            tenant_jobs.take(job, since(asked));
        }
        Ok(found)
    }

    /// Caches the answer to a request that was sent at `asked`. Reads the job again if it was not
    /// cached before, because its earlier events were ignored. Also reads it again after a slow
    /// answer, which may be older than the cache.
    pub fn note(&self, client: &Client, job: &JobView, asked: Instant) {
        let tenant_jobs = self.tenant_jobs(&job.tenant, client);
        let was_known = tenant_jobs.knows(job.id);
        let taken = tenant_jobs.take(job, since(asked));
        if taken == JobCacheUpdate::Older || (!was_known && tenant_jobs.knows(job.id)) {
            tenant_jobs.doubt(job.id);
        }
    }

    /// Returns the job of the object with this uid.
    ///
    /// # Errors
    /// If the REST interface does not answer.
    pub async fn by_uid(&self, client: &Client, uid: &str) -> Result<Option<JobView>, ClientError> {
        let query = JobQuery {
            labels: vec![
                format!("{}={}", label::OPERATOR, self.operator),
                format!("{}={uid}", label::UID),
            ],
            limit: Some(10),
            ..JobQuery::default()
        };
        let page = client.jobs(&query).await?;
        // Trials carry the labels of their study.
        Ok(page.items.into_iter().find(|job| job.trial.is_none()))
    }

    #[must_use]
    pub fn operator(&self) -> &str {
        &self.operator
    }

    /// Returns the age of the newest answered list, of the tenant with the oldest one. `None` if no
    /// tenant is followed.
    #[must_use]
    pub fn list_age(&self, now: Instant) -> Option<Duration> {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let tenant_jobs = tenants
            .values()
            .filter(|tenant_jobs| !tenant_jobs.is_over());
        let ages =
            tenant_jobs.map(|tenant_jobs| now.saturating_duration_since(tenant_jobs.listed_at()));
        ages.max()
    }

    /// Returns the notifier of changed jobs.
    #[must_use]
    pub fn change_notifier(&self) -> &JobChangeNotifier {
        &self.change_notifier
    }

    fn tenant_jobs(&self, tenant: &str, client: &Client) -> Arc<TenantJobs> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::monotonic();
        tenants.retain(|name, tenant_jobs| name == tenant || !tenant_jobs.is_over());
        let tenant_jobs = tenants.entry(tenant.to_owned()).or_insert_with(|| {
            let (operator, change_notifier) =
                (self.operator.clone(), Arc::clone(&self.change_notifier));
            Arc::new(TenantJobs::new(
                operator,
                change_notifier,
                client.clone(),
                now,
            ))
        });
        if tenant_jobs.is_asked(client, now) {
            tokio::spawn(follow::follow(Arc::clone(tenant_jobs)));
        }
        Arc::clone(tenant_jobs)
    }
}
