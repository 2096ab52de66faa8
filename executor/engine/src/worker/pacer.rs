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
    /// It is over, or what was on its way is told.
    changed: Condvar,
}

#[derive(Debug)]
struct Counts {
    doing: Doing,
    step: u64,
    /// Since the report before.
    steps: u32,
    own: Duration,
    /// A report is on its way.
    is_telling: bool,
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
            is_telling: false,
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

    /// Nothing is told after this, so that how the task ends can be the last that is.
    pub fn end(&self) {
        let mut counts = self.stop();
        while counts.is_telling {
            let told = self.0.changed.wait(counts);
            counts = told.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tells until [`Telling`] goes or [`Self::end`].
    pub fn tell<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        reporter: &'scope dyn Reporter,
    ) -> Telling<'scope> {
        let pacer = self.clone();
        let thread = scope.spawn(move || pacer.tell_on(reporter, TELL_EVERY));
        Telling {
            pacer: self.clone(),
            _thread: thread,
        }
    }

    fn tell_on(&self, reporter: &dyn Reporter, every: Duration) {
        let mut counts = self.counts();
        while !counts.is_over {
            let waited = self.0.changed.wait_timeout(counts, every);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            counts = now;
            if counts.is_over || !timeout.timed_out() {
                continue;
            }
            let pace = counts.take();
            counts.is_telling = true;
            drop(counts);
            if let Err(error) = reporter.report(&TaskReport::Pace { pace }) {
                log::line(format_args!("could not keep a report of the pace: {error}"));
            }
            counts = self.counts();
            counts.is_telling = false;
            self.0.changed.notify_all();
        }
    }

    /// No further report is begun.
    fn stop(&self) -> MutexGuard<'_, Counts> {
        let mut counts = self.counts();
        counts.is_over = true;
        self.0.changed.notify_all();
        counts
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
        drop(self.pacer.stop());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

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

    /// Takes a while to keep a report, as a disk may.
    #[derive(Default)]
    struct Slow {
        begun: AtomicU32,
        kept: AtomicU32,
    }

    impl Reporter for Slow {
        fn report(&self, _: &TaskReport) -> io::Result<()> {
            self.begun.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(50));
            self.kept.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    #[test]
    fn nothing_is_told_after_the_end_nor_is_on_its_way() {
        let (pacer, slow) = (Pacer::default(), Slow::default());
        thread::scope(|scope| {
            scope.spawn(|| pacer.tell_on(&slow, Duration::from_millis(1)));
            while slow.begun.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            pacer.end();
            let begun = slow.begun.load(Ordering::SeqCst);
            assert_eq!(slow.kept.load(Ordering::SeqCst), begun);
            thread::sleep(Duration::from_millis(20));
            assert_eq!(slow.begun.load(Ordering::SeqCst), begun);
        });
    }
}
