//! Places for event streams: so many in all, and so many of each tenant, so that none can take them all.

use crate::auth::Caller;
use crate::config::Limits;
use crate::problem::{Kind, Refusal};
use muster_model::id::TenantId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

type Open = Arc<Mutex<HashMap<TenantId, usize>>>;

#[derive(Debug)]
pub struct Places {
    all: Arc<Semaphore>,
    /// Of tenants that have any.
    open: Open,
    most: usize,
    most_of_tenant: usize,
}

/// One open stream's; free again when it is dropped.
#[derive(Debug)]
pub struct Place {
    tenant: TenantId,
    open: Open,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            all: Arc::new(Semaphore::new(limits.streams)),
            open: Open::default(),
            most: limits.streams,
            most_of_tenant: limits.streams_per_tenant,
        }
    }

    /// It counts for the tenant of the token: an administrator's looks at others take nothing from them.
    ///
    /// # Errors
    /// When the tenant has as many as it may have, or all are taken.
    pub fn take(&self, caller: &Caller) -> Result<Place, Refusal> {
        let tenant = caller.home();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.get(&tenant).copied().unwrap_or(0);
        if count >= self.most_of_tenant {
            return Err(full(self.most_of_tenant, " of your tenant"));
        }
        let permit = Arc::clone(&self.all).try_acquire_owned();
        let permit = permit.map_err(|_| full(self.most, ""))?;
        open.insert(tenant, count + 1);
        Ok(Place {
            tenant,
            open: Arc::clone(&self.open),
            _permit: permit,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let left = open.get(&self.tenant).map_or(0, |count| count - 1);
        if left == 0 {
            open.remove(&self.tenant);
        } else {
            open.insert(self.tenant, left);
        }
    }
}

fn full(most: usize, whose: &str) -> Refusal {
    let detail =
        format!("{most} event streams{whose} are open already; close one or try again later");
    Refusal::new(Kind::TooManyRequests, detail).retry_after(5)
}
