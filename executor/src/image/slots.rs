//! Number of images that a node pulls at a time. Each pull may use the whole network and much of
//! the disk's bandwidth.

use muster_model::id::TenantId;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Maximum number of pulls at a time.
pub(super) const MAX_PULLS: usize = 2;

/// Places for pulls.
#[derive(Debug, Clone, Default)]
pub(super) struct PullSlots(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    pulls: Mutex<Pulls>,
    changed: Condvar,
}

/// Tenants of the pulls, each once per pull.
#[derive(Debug, Default)]
struct Pulls {
    running: Vec<TenantId>,
    waiting: Vec<TenantId>,
}

/// A taken place, until it is dropped.
#[derive(Debug)]
pub(super) struct PullSlot {
    shared: Arc<Shared>,
    tenant: TenantId,
}

impl PullSlots {
    /// Returns a place if one is free for the tenant.
    pub(super) fn take_free(&self, tenant: TenantId) -> Option<PullSlot> {
        let pulls = self.0.pulls.lock();
        let mut pulls = pulls.unwrap_or_else(PoisonError::into_inner);
        if !pulls.may_run(tenant) {
            return None;
        }
        pulls.running.push(tenant);
        Some(self.slot(tenant))
    }

    /// Waits for a place.
    pub(super) fn take(&self, tenant: TenantId) -> PullSlot {
        let pulls = self.0.pulls.lock();
        let mut pulls = pulls.unwrap_or_else(PoisonError::into_inner);
        pulls.waiting.push(tenant);
        let changed = &self.0.changed;
        let waited = changed.wait_while(pulls, |pulls| !pulls.may_run(tenant));
        let mut pulls = waited.unwrap_or_else(PoisonError::into_inner);
        remove_one(&mut pulls.waiting, tenant);
        pulls.running.push(tenant);
        drop(pulls);
        changed.notify_all();
        self.slot(tenant)
    }

    fn slot(&self, tenant: TenantId) -> PullSlot {
        PullSlot {
            shared: Arc::clone(&self.0),
            tenant,
        }
    }
}

impl Pulls {
    /// Whether a pull of the tenant may begin. A tenant gets a second place only if no tenant
    /// without a place waits.
    fn may_run(&self, tenant: TenantId) -> bool {
        let mut waiting = self.waiting.iter();
        let is_first = !self.running.contains(&tenant);
        let is_free = self.running.len() < MAX_PULLS;
        is_free
            && (is_first || !waiting.any(|other| *other != tenant && !self.running.contains(other)))
    }
}

fn remove_one(tenants: &mut Vec<TenantId>, tenant: TenantId) {
    if let Some(at) = tenants.iter().position(|one| *one == tenant) {
        tenants.swap_remove(at);
    }
}

impl Drop for PullSlot {
    fn drop(&mut self) {
        let pulls = self.shared.pulls.lock();
        let mut pulls = pulls.unwrap_or_else(PoisonError::into_inner);
        remove_one(&mut pulls.running, self.tenant);
        drop(pulls);
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn waiting_tenant_precedes_a_second_pull() {
        let [one, other] = [1, 2].map(|number| TenantId(uuid::Uuid::from_u128(number)));
        let mut pulls = Pulls {
            running: vec![one],
            waiting: vec![one, other],
        };
        assert!(!pulls.may_run(one) && pulls.may_run(other));
        pulls.waiting = vec![one, one];
        assert!(pulls.may_run(one), "no other tenant waits");
        pulls.running = vec![one, one];
        assert!(!pulls.may_run(one) && !pulls.may_run(other));
    }

    #[test]
    fn third_pull_waits_for_a_place() {
        let slots = PullSlots::default();
        let tenant = TenantId(uuid::Uuid::from_u128(1));
        let first = slots.take_free(tenant).expect("a place");
        let _second = slots.take(tenant);
        assert!(slots.take_free(tenant).is_none());
        let (told, heard) = mpsc::channel();
        let waiting = slots.clone();
        let third = thread::spawn(move || {
            let slot = waiting.take(tenant);
            told.send(()).expect("heard");
            drop(slot);
        });
        assert!(heard.try_recv().is_err(), "it waits");
        drop(first);
        heard.recv().expect("it has a place");
        third.join().expect("it ended");
        assert!(slots.take_free(tenant).is_some());
    }
}
