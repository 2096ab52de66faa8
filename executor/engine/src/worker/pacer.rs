//! What this rank is doing and how long its own part of a step takes, told every few seconds by a thread of its own: so that a rank that
//! is stuck, or whose process stands still, can be told from one that waits for it.

use super::Reporter;
use super::progress::StepTimes;
use crate::log;
use muster_model::assignment::TaskReport;
use muster_model::pace::{Doing, PaceReport};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// How often it is told.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// What is counted, shared by the thread that trains and the one that tells.
#[derive(Debug, Clone, Default)]
pub(super) struct Pacer(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    counts: Mutex<Counts>,
    ended: Condvar,
}

#[derive(Debug)]
struct Counts {
    doing: Doing,
    step: u64,
    /// Since the report before.
    steps: u32,
    own: Duration,
    is_over: bool,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            // Loading, which the others rightly wait for.
            doing: Doing::Busy,
            step: 0,
            steps: 0,
            own: Duration::ZERO,
            is_over: false,
        }
    }
}

impl Pacer {
    /// From now on it does this.
    pub fn doing(&self, doing: Doing) {
        self.counts().doing = doing;
    }

    /// So many steps are done over the job's whole life, the last of them with these times.
    pub fn stepped(&self, step: u64, times: StepTimes) {
        let mut counts = self.counts();
        counts.step = step;
        // Of a step that was another's, as when ranks average in turns, nothing is learnt.
        if times.compute > Duration::ZERO {
            counts.steps += 1;
            counts.own += times.data + times.compute;
        }
    }

    /// Tells until [`Telling`] goes.
    pub fn tell<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        reporter: &'scope dyn Reporter,
    ) -> Telling<'scope> {
        let pacer = self.clone();
        let thread = scope.spawn(move || pacer.tell_on(reporter));
        Telling {
            pacer: self.clone(),
            _thread: thread,
        }
    }

    fn tell_on(&self, reporter: &dyn Reporter) {
        let mut counts = self.counts();
        while !counts.is_over {
            let waited = self.0.ended.wait_timeout(counts, TELL_EVERY);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            counts = now;
            if counts.is_over || !timeout.timed_out() {
                continue;
            }
            let pace = counts.take();
            drop(counts);
            if let Err(error) = reporter.report(&TaskReport::Pace { pace }) {
                log::line(format_args!("could not keep a report of the pace: {error}"));
            }
            counts = self.counts();
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// What is to be told; counting begins anew.
    fn take(&mut self) -> PaceReport {
        let steps = std::mem::take(&mut self.steps);
        let own = std::mem::take(&mut self.own);
        PaceReport {
            step: self.step,
            own_ms: (steps > 0).then(|| own.as_secs_f64() * 1e3 / f64::from(steps)),
            doing: self.doing,
        }
    }
}

/// The thread that tells; it ends when this goes.
#[derive(Debug)]
pub(super) struct Telling<'scope> {
    pacer: Pacer,
    _thread: ScopedJoinHandle<'scope, ()>,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.pacer.counts().is_over = true;
        self.pacer.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(data_ms: u64, compute_ms: u64, exchange_ms: u64) -> StepTimes {
        StepTimes {
            data: Duration::from_millis(data_ms),
            compute: Duration::from_millis(compute_ms),
            exchange: Duration::from_millis(exchange_ms),
        }
    }

    #[test]
    fn waiting_is_no_time_of_its_own() {
        let pacer = Pacer::default();
        pacer.doing(Doing::Waiting);
        pacer.stepped(7, times(1, 3, 500));
        pacer.stepped(8, times(1, 7, 0));
        let told = pacer.counts().take();
        assert_eq!((told.step, told.doing), (8, Doing::Waiting));
        assert!((told.own_ms.expect("two steps") - 6.0).abs() < 1e-9);
        let told = pacer.counts().take();
        assert_eq!((told.step, told.own_ms), (8, None), "none since");
    }
}
