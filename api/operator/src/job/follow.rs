//! Follower of one tenant's jobs. The tenant's event stream names changed jobs, which are read in
//! batches. A list of all unfinished jobs finds changes that the stream does not report or that
//! were missed. Without a stream there are only lists.

use super::tenant_jobs::TenantJobs;
use crate::clock;
use futures::StreamExt as _;
use muster_client::{Messages, StreamItem};
use muster_model::id::JobId;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Changes within this time are read together, because one scheduling round changes many jobs.
const GATHER: Duration = Duration::from_millis(40);
/// Pause after a stream or a request has failed.
const PAUSE: Duration = Duration::from_secs(2);

/// Pending work with its times.
#[derive(Debug)]
struct FollowerSchedule {
    list: Instant,
    /// Jobs that have changed and are read at `read`.
    changed: HashSet<JobId>,
    read: Instant,
    /// Time of the next attempt to open a stream.
    stream: Instant,
}

/// Follows the tenant's jobs until no reconciliation asks for them.
pub(super) async fn follow(tenant_jobs: Arc<TenantJobs>) {
    let now = clock::monotonic();
    let mut due = FollowerSchedule {
        list: now,
        changed: HashSet::new(),
        read: now,
        stream: now,
    };
    let mut messages = None;
    while !tenant_jobs.is_left() {
        let now = clock::monotonic();
        if messages.is_none() && now >= due.stream {
            messages = Some(tenant_jobs.client().watch(None));
        }
        let next = due.next(messages.is_some());
        tokio::select! {
            heard = hear(&mut messages) => due.hear(&tenant_jobs, heard, &mut messages),
            doubted = tenant_jobs.doubted() => due.changed(doubted),
            () = tokio::time::sleep_until(next.into()) => due.carry_out(&tenant_jobs).await,
        }
    }
}

/// Returns the next message; waits for ever without a stream.
async fn hear(messages: &mut Option<Messages>) -> Option<StreamItem> {
    match messages {
        Some(messages) => match messages.next().await {
            Some(Ok(item)) => Some(item),
            Some(Err(error)) => {
                tracing::debug!(%error, "jobs are listed until there is a stream again");
                None
            }
            None => None,
        },
        None => std::future::pending().await,
    }
}

impl FollowerSchedule {
    fn next(&self, is_streaming: bool) -> Instant {
        let mut next = self.list;
        if !self.changed.is_empty() {
            next = next.min(self.read);
        }
        if !is_streaming {
            next = next.min(self.stream);
        }
        next
    }

    /// Handles a message; `None` is the end of the stream.
    fn hear(
        &mut self,
        tenant_jobs: &TenantJobs,
        heard: Option<StreamItem>,
        messages: &mut Option<Messages>,
    ) {
        let now = clock::monotonic();
        match heard {
            Some(StreamItem::Event(event)) => {
                let known = event.job_id.filter(|id| tenant_jobs.knows(*id));
                self.changed(known);
            }
            // Changes before the stream was opened are found by a list.
            Some(StreamItem::Opened(_)) => self.list = now,
            Some(_) => {}
            None => {
                *messages = None;
                self.stream = now + PAUSE;
            }
        }
    }

    /// Schedules a read of `jobs`.
    fn changed(&mut self, jobs: impl IntoIterator<Item = JobId>) {
        if self.changed.is_empty() {
            self.read = self.read.max(clock::monotonic() + GATHER);
        }
        self.changed.extend(jobs);
    }

    async fn carry_out(&mut self, tenant_jobs: &TenantJobs) {
        let client = tenant_jobs.client();
        let asked = clock::monotonic();
        if !self.changed.is_empty() && asked >= self.read {
            let read = tenant_jobs.read(&client, &mut self.changed).await;
            let now = clock::monotonic();
            // Reads take at most half of the time of one connection.
            self.read = now + now.duration_since(asked);
            if let Err(error) = read {
                tracing::debug!(%error, "jobs that have changed were not read");
                self.read = now + PAUSE;
                // An API server of an older release reads only one job by its id.
                if error.status() == Some(400) {
                    tenant_jobs.forget(&std::mem::take(&mut self.changed));
                }
            }
        }
        if clock::monotonic() >= self.list {
            match tenant_jobs.list(&client).await {
                Ok((missing, next)) => {
                    self.changed.extend(missing);
                    self.list = next;
                }
                Err(error) => {
                    tracing::debug!(%error, "jobs were not listed");
                    self.list = clock::monotonic() + PAUSE;
                }
            }
        }
    }
}
