//! A bounded number of places, in total and per key: event streams by tenant, connections by client
//! address.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

type PermitCounts<Key> = Arc<Mutex<HashMap<Key, usize>>>;

/// A limited number of places, of which each key has at most a part.
#[derive(Debug)]
pub struct KeyedSemaphore<Key: Hash + Eq> {
    all: Arc<Semaphore>,
    /// Number of places per key, for keys with at least one.
    taken: PermitCounts<Key>,
    most: usize,
    most_of_key: usize,
}

/// One place, which is free again when it is dropped.
#[derive(Debug)]
pub struct KeyedPermit<Key: Hash + Eq + Copy> {
    /// `None` if the place counts for no key.
    key: Option<Key>,
    taken: PermitCounts<Key>,
    _permit: OwnedSemaphorePermit,
}

/// Why no place is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermitError {
    /// All places (this number) are in use.
    All(usize),
    /// The key has its maximum (this number) in use.
    OfKey(usize),
}

impl<Key: Hash + Eq + Copy> KeyedSemaphore<Key> {
    /// Creates `most` places, of which a key can hold `most_of_key`.
    #[must_use]
    pub fn new(most: usize, most_of_key: usize) -> Self {
        Self {
            // A semaphore panics above its own maximum.
            all: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            taken: PermitCounts::default(),
            most,
            most_of_key,
        }
    }

    /// Takes a place that counts for `key`, if given.
    ///
    /// # Errors
    /// If the key has its maximum, or no place is free.
    pub fn take(&self, key: Option<Key>) -> Result<KeyedPermit<Key>, PermitError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = key.and_then(|key| taken.get(&key).copied()).unwrap_or(0);
        if count >= self.most_of_key {
            return Err(PermitError::OfKey(self.most_of_key));
        }
        let permit = Arc::clone(&self.all).try_acquire_owned();
        let permit = permit.map_err(|_| PermitError::All(self.most))?;
        if let Some(key) = key {
            taken.insert(key, count + 1);
        }
        Ok(KeyedPermit {
            key,
            taken: Arc::clone(&self.taken),
            _permit: permit,
        })
    }
}

impl<Key: Hash + Eq + Copy> Drop for KeyedPermit<Key> {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let left = taken.get(&key).map_or(0, |count| count - 1);
        if left == 0 {
            taken.remove(&key);
        } else {
            taken.insert(key, left);
        }
    }
}
