//! Number of images that a node pulls at a time. Each pull may use the whole network and much of
//! the disk's bandwidth.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Maximum number of pulls at a time.
pub(super) const MAX_PULLS: usize = 2;

/// Places for pulls.
#[derive(Debug, Clone, Default)]
pub(super) struct PullSlots(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    taken: Mutex<usize>,
    freed: Condvar,
}

/// A taken place, until it is dropped.
#[derive(Debug)]
pub(super) struct PullSlot(Arc<Shared>);

impl PullSlots {
    /// Returns a place if one is free.
    pub(super) fn take_free(&self) -> Option<PullSlot> {
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if *taken >= MAX_PULLS {
            return None;
        }
        *taken += 1;
        Some(PullSlot(Arc::clone(&self.0)))
    }

    /// Waits for a place.
    pub(super) fn take(&self) -> PullSlot {
        let taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let freed = &self.0.freed;
        let waited = freed.wait_while(taken, |taken| *taken >= MAX_PULLS);
        let mut taken = waited.unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
        PullSlot(Arc::clone(&self.0))
    }
}

impl Drop for PullSlot {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn third_pull_waits_for_a_place() {
        let slots = PullSlots::default();
        let first = slots.take_free().expect("a place");
        let _second = slots.take();
        assert!(slots.take_free().is_none());
        let (told, heard) = mpsc::channel();
        let waiting = slots.clone();
        let third = thread::spawn(move || {
            let slot = waiting.take();
            told.send(()).expect("heard");
            drop(slot);
        });
        assert!(heard.try_recv().is_err(), "it waits");
        drop(first);
        heard.recv().expect("it has a place");
        third.join().expect("it ended");
        assert!(slots.take_free().is_some());
    }
}
