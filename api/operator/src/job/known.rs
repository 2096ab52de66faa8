//! What is known of the jobs of this operator's objects. For each tenant that has some, a follower (`follow.rs`) keeps it as it is, and whoever
//! looks at an object finds its job here. Where the follower has heard nothing for a while, whoever looks asks by itself.

use super::document::label;
use super::follow;
use super::kept::{Kept, Read, Taken};
use super::wakes::Wakes;
use crate::clock;
use crate::error::Error;
use muster_client::{Client, ClientError, JobQuery};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::{JobView, Page};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Between two lists of a tenant's jobs at least, while its stream tells of changes: what that does not tell is how far the jobs are, and
/// their places among those that wait.
const EVERY: Duration = Duration::from_secs(1);
/// And a list takes at most this share of the time, however long it is.
const SHARE: u32 = 5;
/// A list that should have come by now and has not, nobody relies on any more after this.
const LATE: Duration = Duration::from_secs(3);
/// The follower of a tenant of whose jobs nobody has asked for so long ends.
const UNASKED: Duration = Duration::from_secs(60);
const PAGE: u32 = 500;
/// Jobs asked for by their ids in one request; an address of more is too long for some proxies.
const BATCH: usize = 100;

#[derive(Debug)]
pub struct Known {
    operator: String,
    wakes: Arc<Wakes>,
    tenants: Mutex<HashMap<String, Arc<Followed>>>,
}

/// One tenant's.
#[derive(Debug)]
pub(super) struct Followed {
    operator: String,
    wakes: Arc<Wakes>,
    /// One list at a time.
    listing: tokio::sync::Mutex<()>,
    /// That there are some in [`State::doubted`].
    doubt: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    kept: Kept,
    /// The newest: tokens are made anew now and then.
    client: Client,
    /// When the newest list was asked for that was answered, or the first was to be.
    listed: Instant,
    /// When somebody wanted to know last.
    asked: Instant,
    /// What is kept is relied on until then.
    good_until: Option<Instant>,
    is_followed: bool,
    /// Jobs that may have changed without a word.
    doubted: HashSet<JobId>,
}

impl Known {
    #[must_use]
    pub fn new(operator: String) -> Self {
        Self {
            operator,
            wakes: Arc::default(),
            tenants: Mutex::default(),
        }
    }

    /// The job as it is, or as it was a moment ago. `None` when there is no such job.
    ///
    /// # Errors
    /// When the REST interface does not answer.
    pub async fn job(
        &self,
        tenant: &str,
        client: &Client,
        id: JobId,
    ) -> Result<Option<JobView>, Error> {
        let followed = self.followed(tenant, client);
        if !followed.is_good() {
            followed.list_unless_good(client).await?;
        }
        if let Some(job) = followed.get(id) {
            return Ok(Some(job));
        }
        let asked = clock::monotonic();
        let found = client
            .find_job(id)
            .await
            .map_err(Error::muster("a job was not read"))?;
        if let Some(job) = &found {
            followed.take(job, since(asked));
        }
        Ok(found)
    }

    /// The job as it was answered just now to what was asked then. What happened to a job before it was known here was told to nobody, and an
    /// answer that took long may be older than what is known: then it is read once more.
    pub fn note(&self, client: &Client, job: &JobView, asked: Instant) {
        let followed = self.followed(&job.tenant, client);
        let was_known = followed.knows(job.id);
        let taken = followed.take(job, since(asked));
        if taken == Taken::Older || (!was_known && followed.knows(job.id)) {
            followed.state().doubted.insert(job.id);
            followed.doubt.notify_one();
        }
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

    #[must_use]
    pub fn operator(&self) -> &str {
        &self.operator
    }

    /// Since the newest list was asked for that was answered, of the tenant that has waited longest. `None` where no tenant is followed.
    #[must_use]
    pub fn list_age(&self, now: Instant) -> Option<Duration> {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let followed = tenants.values().filter(|followed| !followed.is_over());
        let ages = followed.map(|followed| now.saturating_duration_since(followed.state().listed));
        ages.max()
    }

    /// Who is woken when a job has changed.
    #[must_use]
    pub fn wakes(&self) -> &Wakes {
        &self.wakes
    }

    fn followed(&self, tenant: &str, client: &Client) -> Arc<Followed> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::monotonic();
        tenants.retain(|name, followed| name == tenant || !followed.is_over());
        let followed = tenants.entry(tenant.to_owned()).or_insert_with(|| {
            Arc::new(Followed {
                operator: self.operator.clone(),
                wakes: Arc::clone(&self.wakes),
                listing: tokio::sync::Mutex::default(),
                doubt: Notify::new(),
                state: Mutex::new(State {
                    kept: Kept::default(),
                    client: client.clone(),
                    listed: now,
                    asked: now,
                    good_until: None,
                    is_followed: false,
                    doubted: HashSet::new(),
                }),
            })
        });
        if followed.is_asked(client, now) {
            tokio::spawn(follow::follow(Arc::clone(followed)));
        }
        Arc::clone(followed)
    }
}

impl Followed {
    pub(super) fn client(&self) -> Client {
        self.state().client.clone()
    }

    /// Notes that somebody wants to know, and whether it has to be followed anew.
    fn is_asked(&self, client: &Client, now: Instant) -> bool {
        let mut state = self.state();
        state.asked = now;
        state.client = client.clone();
        !std::mem::replace(&mut state.is_followed, true)
    }

    /// Whether nobody has asked for long; who is told so follows it no more.
    pub(super) fn is_left(&self) -> bool {
        let mut state = self.state();
        let is_left = clock::monotonic().saturating_duration_since(state.asked) >= UNASKED;
        state.is_followed = !is_left;
        is_left
    }

    fn is_over(&self) -> bool {
        !self.state().is_followed
    }

    fn is_good(&self) -> bool {
        let now = clock::monotonic();
        self.state().good_until.is_some_and(|until| now < until)
    }

    fn get(&self, id: JobId) -> Option<JobView> {
        self.state().kept.get(id).cloned()
    }

    pub(super) fn knows(&self, id: JobId) -> bool {
        self.state().kept.get(id).is_some()
    }

    /// Waits until there are jobs that may have changed without a word, and gives them.
    pub(super) async fn doubted(&self) -> HashSet<JobId> {
        self.doubt.notified().await;
        std::mem::take(&mut self.state().doubted)
    }

    /// Keeps what was read, and wakes who looks at its object if that is news.
    fn take(&self, job: &JobView, read: Read) -> Taken {
        // Whoever writes a status can name any job in it; and trials have the labels of their study.
        let is_ours = job.labels.get(label::OPERATOR) == Some(&self.operator);
        if !is_ours || job.trial.is_some() {
            return Taken::Same;
        }
        let taken = self.state().kept.take(job, read);
        if taken == Taken::Changed {
            self.wakes.wake(job);
        }
        taken
    }

    /// Whoever looks waits for one list, and not each for one of its own.
    async fn list_unless_good(&self, client: &Client) -> Result<(), Error> {
        let listing = self.listing.lock().await;
        if self.is_good() {
            return Ok(());
        }
        let listed = self.listed(client).await;
        drop(listing);
        // What has ended meanwhile the follower reads.
        listed
            .map(drop)
            .map_err(Error::muster("jobs were not listed"))
    }

    /// Reads all that have not ended. The jobs that were thought not to have and are not among them, and when the next list is due.
    ///
    /// # Errors
    /// When the REST interface does not answer.
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
        state.kept.sweep(read.answered);
        state.listed = state.listed.max(read.asked);
        state.good_until = Some(read.answered + 2 * pause + LATE);
        Ok((state.kept.missing(&living, read), read.answered + pause))
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

    /// Reads some of these, and takes them from among them. What may have been read too early stays.
    ///
    /// # Errors
    /// When the REST interface does not answer.
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
            if self.take(job, read) == Taken::Older {
                changed.insert(job.id);
            }
        }
        for id in gone {
            let was = self.state().kept.forget(id, read);
            if let Some(job) = was {
                self.wakes.wake(&job);
            }
        }
        Ok(())
    }

    /// These are no longer known; whoever looks at one of them asks for it by itself, and is woken to.
    pub(super) fn forget(&self, jobs: &HashSet<JobId>) {
        for id in jobs {
            let was = self.state().kept.discard(*id);
            if let Some(job) = was {
                self.wakes.wake(&job);
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answered now.
fn since(asked: Instant) -> Read {
    Read {
        asked,
        answered: clock::monotonic(),
    }
}
