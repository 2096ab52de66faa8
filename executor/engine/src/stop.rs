//! The wish to stop: set by a signal, looked at between steps and while waiting.

use crate::clock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Set once, never taken back.
#[derive(Debug, Clone)]
pub struct StopFlag {
    flag: Arc<AtomicBool>,
    noticed: Arc<OnceLock<Instant>>,
    grace: Duration,
}

impl StopFlag {
    /// `grace` is the time from SIGTERM to SIGKILL.
    #[must_use]
    pub fn new(grace: Duration) -> Self {
        Self {
            flag: Arc::default(),
            noticed: Arc::default(),
            grace,
        }
    }

    /// The bare flag, for a signal handler.
    #[must_use]
    pub fn raw(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Sets it from within the process.
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

    /// Whether so much of the grace is gone that one must not wait for peers any longer: what is left is for the checkpoint.
    #[must_use]
    pub fn must_hurry(&self) -> bool {
        self.is_set()
            && self
                .noticed
                .get()
                .is_some_and(|at| at.elapsed() > self.grace / 2)
    }

    /// How long one may wait for peers yet; `None` while nobody wishes to stop.
    #[must_use]
    pub fn to_wait(&self) -> Option<Duration> {
        let waited = || self.noticed.get().map_or(Duration::ZERO, Instant::elapsed);
        self.is_set()
            .then(|| (self.grace / 2).saturating_sub(waited()))
    }

    /// Whether the grace is nearly over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_set()
            && self
                .noticed
                .get()
                .is_some_and(|at| at.elapsed() > self.grace * 9 / 10)
    }
}
