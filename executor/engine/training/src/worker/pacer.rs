//! Pace reports of a rank: its activity and the duration of its own part of a step. A separate
//! thread reports them every few seconds. They distinguish a rank that hangs from one that waits
//! for it.

use super::Reporter;
use super::progress::StepTimes;
use muster_comm::log;
use muster_model::assignment::TaskReport;
use muster_model::pace::{Doing, PaceReport};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// Interval between pace reports.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Counters that the training thread and the reporting thread share.
#[derive(Debug, Clone, Default)]
pub(super) struct Pacer(Arc<PacerState>);

#[derive(Debug, Default)]
struct PacerState {
    counts: Mutex<PacerCounts>,
    /// Signals the end, or the end of a report in progress.
    changed: Condvar,
}

#[derive(Debug)]
struct PacerCounts {
    doing: Doing,
    step: u64,
    /// Steps and their duration since the last report.
    steps: u32,
    own: Duration,
    /// A report is in progress.
    is_telling: bool,
    is_over: bool,
}

impl Default for PacerCounts {
    fn default() -> Self {
        Self {
            // Loading: the other workers wait for this rank legitimately.
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
    /// Sets the present activity.
    pub fn doing(&self, doing: Doing) {
        self.counts().doing = doing;
    }

    /// Counts a step: `step` steps are done over the job's whole life, the last one with `times`.
    pub fn stepped(&self, step: u64, times: StepTimes) {
        let mut counts = self.counts();
        counts.step = step;
        // A step without computation of this rank, as when ranks average in turns, has no own time.
        if times.compute > Duration::ZERO {
            counts.steps += 1;
            counts.own += times.data + times.compute;
        }
    }

    /// Ends reporting and waits for a report in progress. So the report of the task's end is the
    /// last one.
    pub fn end(&self) {
        let mut counts = self.stop();
        while counts.is_telling {
            let told = self.0.changed.wait(counts);
            counts = told.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Starts the reporting thread; it ends when [`ReportingGuard`] is dropped or after
    /// [`Self::end`].
    pub fn tell<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        reporter: &'scope dyn Reporter,
    ) -> ReportingGuard<'scope> {
        let pacer = self.clone();
        let thread = scope.spawn(move || pacer.tell_on(reporter, TELL_EVERY));
        ReportingGuard {
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

    /// Prevents further reports.
    fn stop(&self) -> MutexGuard<'_, PacerCounts> {
        let mut counts = self.counts();
        counts.is_over = true;
        self.0.changed.notify_all();
        counts
    }

    fn counts(&self) -> MutexGuard<'_, PacerCounts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PacerCounts {
    /// Returns the report and resets the counters.
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

/// Guard of the reporting thread, which ends when the guard is dropped.
#[derive(Debug)]
pub(super) struct ReportingGuard<'scope> {
    pacer: Pacer,
    _thread: ScopedJoinHandle<'scope, ()>,
}

impl Drop for ReportingGuard<'_> {
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
    fn waiting_does_not_count_as_own_time() {
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

    /// Needs a while for each report, like a slow disk.
    #[derive(Default)]
    struct SlowReporter {
        begun: AtomicU32,
        kept: AtomicU32,
    }

    impl Reporter for SlowReporter {
        fn report(&self, _: &TaskReport) -> io::Result<()> {
            self.begun.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(50));
            self.kept.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    #[test]
    fn no_report_begins_or_runs_after_the_end() {
        let (pacer, slow) = (Pacer::default(), SlowReporter::default());
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
