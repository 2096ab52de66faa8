//! What is known of the jobs of this operator's objects: for each tenant one list of those that have not ended, not older than half a second.
//!
//! Every object asks for its own job several times in two seconds; they share the list, so the REST interface answers one request for
//! 500 of them. A stream of events was not used for this, because it says nothing of waiting jobs' places, which move with every round.

use super::document::label;
use crate::clock;
use crate::error::Error;
use muster_client::{Client, ClientError, JobQuery};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::{JobView, Page};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// A list is not asked for more often than this.
const FRESH: Duration = Duration::from_millis(500);
/// And takes at most this share of the time, however long it is.
const SHARE: u32 = 5;
const PAGE: u32 = 500;

#[derive(Debug)]
pub struct Known {
    operator: String,
    tenants: Mutex<HashMap<String, Arc<Mutex<List>>>>,
}

#[derive(Debug, Default)]
struct List {
    /// Until then it is fresh.
    until: Option<Instant>,
    jobs: HashMap<JobId, JobView>,
}

impl Known {
    #[must_use]
    pub fn new(operator: String) -> Self {
        Self {
            operator,
            tenants: Mutex::default(),
        }
    }

    /// The job as it was at most half a second ago, or now. `None` when there is no such job.
    ///
    /// # Errors
    /// When the REST interface does not answer.
    pub async fn job(
        &self,
        tenant: &str,
        client: &Client,
        id: JobId,
    ) -> Result<Option<JobView>, Error> {
        let list = self.list(tenant).await;
        let found = {
            let mut list = list.lock().await;
            let now = clock::monotonic();
            if list.until.is_none_or(|until| now >= until) {
                let jobs = self.living(client).await?;
                let done = clock::monotonic();
                let took = done.duration_since(now);
                list.jobs = jobs.into_iter().map(|job| (job.id, job)).collect();
                list.until = Some(done + FRESH.max(took * SHARE));
            }
            list.jobs.get(&id).cloned()
        };
        match found {
            Some(job) => Ok(Some(job)),
            // It has ended, or is younger than the list.
            None => client
                .find_job(id)
                .await
                .map_err(Error::muster("a job was not read")),
        }
    }

    /// The job as it was answered just now: the list may be older, and would show it as it was before.
    pub async fn note(&self, job: &JobView) {
        let list = self.list(&job.tenant).await;
        list.lock().await.jobs.insert(job.id, job.clone());
    }

    /// The job of an object of this uid.
    ///
    /// # Errors
    /// When the REST interface does not answer.
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
        // Trials have the labels of their study.
        Ok(page.items.into_iter().find(|job| job.trial.is_none()))
    }

    async fn list(&self, tenant: &str) -> Arc<Mutex<List>> {
        let mut tenants = self.tenants.lock().await;
        Arc::clone(tenants.entry(tenant.to_owned()).or_default())
    }

    async fn living(&self, client: &Client) -> Result<Vec<JobView>, Error> {
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
            let page: Page<JobView> = client
                .jobs(&query)
                .await
                .map_err(Error::muster("jobs were not listed"))?;
            jobs.extend(page.items);
            if page.next.is_none() {
                return Ok(jobs);
            }
            query.after = page.next;
        }
    }

    #[must_use]
    pub fn operator(&self) -> &str {
        &self.operator
    }
}
