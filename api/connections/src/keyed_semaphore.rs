//! Semaphore with a limit in total and one per key: event streams by tenant, connections by client
//! address.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

type PermitCounts<Key> = Arc<Mutex<HashMap<Key, usize>>>;

/// A limited number of permits, of which each key holds at most a part.
#[derive(Debug)]
pub struct KeyedSemaphore<Key: Hash + Eq> {
    all: Arc<Semaphore>,
    /// Number of permits per key, for keys with at least one.
    held: PermitCounts<Key>,
    most: usize,
    most_of_key: usize,
}

/// One permit, which is free again when it is dropped.
#[derive(Debug)]
pub struct KeyedPermit<Key: Hash + Eq + Copy> {
    /// `None` if the permit counts for no key.
    key: Option<Key>,
    held: PermitCounts<Key>,
    _permit: OwnedSemaphorePermit,
}

/// Why no permit is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermitError {
    /// All permits (this number) are in use.
    All(usize),
    /// The key has its maximum (this number) in use.
    OfKey(usize),
}

impl<Key: Hash + Eq + Copy> KeyedSemaphore<Key> {
    /// Creates `most` permits, of which a key can hold `most_of_key`.
    #[must_use]
    pub fn new(most: usize, most_of_key: usize) -> Self {
        Self {
            // A semaphore panics above its own maximum.
            all: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            held: PermitCounts::default(),
            most,
            most_of_key,
        }
    }

    /// Takes a permit that counts for `key`, if given.
    ///
    /// # Errors
    /// If the key has its maximum, or no permit is free.
    pub fn take(&self, key: Option<Key>) -> Result<KeyedPermit<Key>, PermitError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let count = key.and_then(|key| held.get(&key).copied()).unwrap_or(0);
        if count >= self.most_of_key {
            return Err(PermitError::OfKey(self.most_of_key));
        }
        let permit = Arc::clone(&self.all).try_acquire_owned();
        let permit = permit.map_err(|_| PermitError::All(self.most))?;
        if let Some(key) = key {
            held.insert(key, count + 1);
        }
        Ok(KeyedPermit {
            key,
            held: Arc::clone(&self.held),
            _permit: permit,
        })
    }
}

impl<Key: Hash + Eq + Copy> Drop for KeyedPermit<Key> {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let left = held.get(&key).map_or(0, |count| count - 1);
        if left == 0 {
            held.remove(&key);
        } else {
            held.insert(key, left);
        }
    }
}
