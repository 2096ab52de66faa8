//! Stop request of a task: set by a signal, polled between steps and during waits.

use muster_compute::clock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Flag that is set once and never cleared.
#[derive(Debug, Clone)]
pub struct StopFlag {
    flag: Arc<AtomicBool>,
    noticed: Arc<OnceLock<Instant>>,
    grace: Duration,
}

impl StopFlag {
    /// Creates the flag. `grace` is the time from SIGTERM to SIGKILL.
    #[must_use]
    pub fn new(grace: Duration) -> Self {
        Self {
            flag: Arc::default(),
            noticed: Arc::default(),
            grace,
        }
    }

    /// The atomic flag, for a signal handler.
    #[must_use]
    pub fn raw(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Sets the flag from within the process.
    pub fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        let set = self.flag.load(Ordering::Relaxed);
        if set {
            self.noticed.get_or_init(clock::now);
        }
        set
    }

    /// Whether half of the grace period has passed: the task must no longer wait for peers, because
    /// the rest is for the checkpoint.
    #[must_use]
    pub fn must_hurry(&self) -> bool {
        self.is_set()
            && self
                .noticed
                .get()
                .is_some_and(|at| at.elapsed() > self.grace / 2)
    }

    /// Time for which the task may still wait for peers; `None` if no stop was requested.
    #[must_use]
    pub fn to_wait(&self) -> Option<Duration> {
        if !self.is_set() {
            return None;
        }
        let waited = self.noticed.get().map_or(Duration::ZERO, Instant::elapsed);
        Some((self.grace / 2).saturating_sub(waited))
    }

    /// Whether 90 % of the grace period has passed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_set()
            && self
                .noticed
                .get()
                .is_some_and(|at| at.elapsed() > self.grace * 9 / 10)
    }
}
