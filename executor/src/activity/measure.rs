//! Decides from measurements whether a task is idle. Reads nothing itself.

use muster_model::assignment::TaskReport;
use muster_model::idle::{GpuEvidence, IdleReport};

/// CPU use above which a task is active, in thousandths of a core, averaged over a measurement. A
/// process that waits and polls stays below it.
pub(super) const IDLE_CPU_MILLI: u64 = 20;
/// Milliseconds of a clock tick of `/proc`, times the thousandths of a core.
const MILLI_PER_TICK: u64 = 10 * 1_000;

/// Position in the output of a task. A different position means new output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OutputMark {
    pub changed_s: i64,
    pub changed_ns: i64,
    pub bytes: u64,
}

/// What a measurement finds of a task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signals {
    /// Whether its program runs: it is not suspended and not in preparation.
    pub is_at_work: bool,
    /// CPU time of its processes.
    pub cpu_ticks: u64,
    pub output: OutputMark,
    /// Time of the last logged metric, on the clock of the measurements.
    pub metric_ms: Option<u64>,
    /// Time at which a remote session last carried data; only for interactive jobs.
    pub session_ms: Option<u64>,
}

/// Use of the GPUs of a task since the last measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GpuUse {
    Busy,
    Quiet(GpuEvidence),
}

/// Newest report of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastReport {
    /// An earlier daemon may have reported the task as idle.
    Unknown,
    /// The task is active, or there is no report.
    Active,
    Idle {
        idle_ms: u64,
    },
}

/// State of one task.
#[derive(Debug)]
pub(super) struct TaskActivity {
    at_ms: u64,
    last: Signals,
    /// Time of the last activity.
    active_ms: u64,
    output_ms: Option<u64>,
    /// Highest CPU use since the last activity.
    cpu_milli: u64,
    gpu: GpuEvidence,
    last_report: LastReport,
}

impl TaskActivity {
    /// Begins with the first measurement. The task counts as active until then.
    pub fn new(first: Signals, now_ms: u64, last_report: LastReport) -> Self {
        Self {
            at_ms: now_ms,
            last: first,
            active_ms: now_ms,
            output_ms: (first.output.bytes > 0).then_some(now_ms),
            cpu_milli: 0,
            gpu: GpuEvidence::Absent,
            last_report,
        }
    }

    /// Takes a measurement. Returns whether only the use of GPUs can still make the task active.
    pub fn take(&mut self, new: Signals, now_ms: u64) -> bool {
        let over_ms = now_ms.saturating_sub(self.at_ms).max(1);
        let ticks = new.cpu_ticks.checked_sub(self.last.cpu_ticks);
        // The sum falls when a process has ended, which is activity.
        let cpu_milli = ticks.map(|ticks| ticks.saturating_mul(MILLI_PER_TICK) / over_ms);
        let has_output = new.output != self.last.output;
        if has_output {
            self.output_ms = Some(now_ms);
        }
        let is_active =
            !new.is_at_work || has_output || cpu_milli.is_none_or(|milli| milli > IDLE_CPU_MILLI);
        (self.at_ms, self.last) = (now_ms, new);
        if is_active {
            self.active(now_ms);
            return false;
        }
        let others = new.metric_ms.max(new.session_ms).unwrap_or(0);
        if others > self.active_ms {
            self.active(others.min(now_ms));
        }
        self.cpu_milli = self.cpu_milli.max(cpu_milli.unwrap_or(0));
        true
    }

    /// Takes the use of the GPUs over the same time.
    pub fn take_gpu(&mut self, gpu: GpuUse) {
        match gpu {
            GpuUse::Busy => self.active(self.at_ms),
            GpuUse::Quiet(evidence) => self.gpu = evidence,
        }
    }

    fn active(&mut self, at_ms: u64) {
        (self.active_ms, self.cpu_milli) = (at_ms, 0);
    }

    /// Returns the report that is due: the task has been idle for `first_ms`, still is idle, or is
    /// active again.
    pub fn due(&self, first_ms: u64) -> Option<TaskReport> {
        let idle_ms = self.at_ms.saturating_sub(self.active_ms);
        let is_idle = idle_ms >= first_ms;
        let every_ms = renewed_every_ms(first_ms);
        let is_due = match self.last_report {
            LastReport::Unknown => is_idle || idle_ms == 0,
            LastReport::Active => is_idle,
            LastReport::Idle { idle_ms: told_ms } => {
                !is_idle || idle_ms / every_ms != told_ms / every_ms
            }
        };
        is_due.then(|| TaskReport::Activity {
            idle: is_idle.then(|| self.evidence(idle_ms)),
        })
    }

    /// Records that the report was written.
    pub fn told(&mut self, report: &TaskReport) {
        self.last_report = match report {
            TaskReport::Activity { idle: Some(idle) } => LastReport::Idle {
                idle_ms: idle.idle_ms,
            },
            _ => LastReport::Active,
        };
    }

    fn ago(&self, at_ms: Option<u64>) -> Option<u64> {
        at_ms.map(|at_ms| self.at_ms.saturating_sub(at_ms))
    }

    fn evidence(&self, idle_ms: u64) -> IdleReport {
        IdleReport {
            idle_ms,
            output_ms: self.ago(self.output_ms),
            metric_ms: self.ago(self.last.metric_ms),
            session_ms: self.ago(self.last.session_ms),
            cpu_milli: u32::try_from(self.cpu_milli).unwrap_or(u32::MAX),
            gpu: self.gpu,
        }
    }
}

/// Returns the idle time between two reports: a fifth of a limit of which `first_ms` is a quarter.
/// The scheduler acts at 80 % and 100 % of the limit, and counts idleness up to a report.
fn renewed_every_ms(first_ms: u64) -> u64 {
    (first_ms.saturating_mul(4) / 5).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_MS: u64 = 60_000;
    const EVERY_MS: u64 = 5_000;

    fn quiet() -> Signals {
        Signals {
            is_at_work: true,
            cpu_ticks: 100,
            output: OutputMark::default(),
            metric_ms: None,
            session_ms: None,
        }
    }

    /// Measures every five seconds for `for_ms` milliseconds; the CPU time rises by `ticks` each.
    fn pass(task: &mut TaskActivity, for_ms: u64, ticks: u64) {
        for _ in 0..for_ms / EVERY_MS {
            let new = Signals {
                cpu_ticks: task.last.cpu_ticks + ticks,
                ..task.last
            };
            let at_ms = task.at_ms + EVERY_MS;
            if task.take(new, at_ms) {
                task.take_gpu(GpuUse::Quiet(GpuEvidence::Absent));
            }
        }
    }

    fn reported(task: &mut TaskActivity) -> Option<Option<IdleReport>> {
        let report = task.due(FIRST_MS)?;
        task.told(&report);
        match report {
            TaskReport::Activity { idle } => Some(idle),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn task_below_the_cpu_limit_is_reported_idle() {
        let mut task = TaskActivity::new(quiet(), 0, LastReport::Active);
        pass(&mut task, 55_000, 10);
        assert_eq!(reported(&mut task), None, "not long enough");
        pass(&mut task, 5_000, 10);
        let idle = reported(&mut task).expect("news").expect("idle");
        assert_eq!((idle.idle_ms, idle.cpu_milli), (60_000, 20));
        pass(&mut task, 30_000, 10);
        assert_eq!(reported(&mut task), None, "it is known");
        pass(&mut task, 10_000, 10);
        let idle = reported(&mut task).expect("renewed").expect("idle");
        assert_eq!((idle.idle_ms, idle.cpu_milli), (100_000, 20));
        pass(&mut task, 5_000, 11);
        assert_eq!(reported(&mut task), Some(None), "active again");
        pass(&mut task, 3_600_000, 11);
        assert_eq!(reported(&mut task), None, "above 2 % of a core");
    }

    #[test]
    fn each_sign_of_life_makes_a_task_active() {
        let output = OutputMark {
            bytes: 1,
            ..OutputMark::default()
        };
        let signs = [
            Signals { output, ..quiet() },
            Signals {
                metric_ms: Some(64_000),
                ..quiet()
            },
            Signals {
                session_ms: Some(64_000),
                ..quiet()
            },
            Signals {
                is_at_work: false,
                ..quiet()
            },
            // A process has ended.
            Signals {
                cpu_ticks: 50,
                ..quiet()
            },
        ];
        for sign in signs {
            let mut task = TaskActivity::new(quiet(), 0, LastReport::Active);
            pass(&mut task, 60_000, 0);
            assert!(reported(&mut task).flatten().is_some());
            task.take(sign, 65_000);
            assert_eq!(reported(&mut task), Some(None), "{sign:?}");
        }
        let mut task = TaskActivity::new(quiet(), 0, LastReport::Active);
        pass(&mut task, 60_000, 0);
        task.take_gpu(GpuUse::Busy);
        assert_eq!(reported(&mut task), None, "its GPU works");
    }

    #[test]
    fn idle_task_is_reported_at_80_and_100_percent_of_its_limit() {
        let limit_ms = 12_000;
        let mut task = TaskActivity::new(quiet(), 0, LastReport::Active);
        let mut reported_ms = Vec::new();
        for at_ms in (1_000..=limit_ms).step_by(1_000) {
            task.take(quiet(), at_ms);
            if let Some(report) = task.due(limit_ms / 4) {
                task.told(&report);
                reported_ms.push(at_ms);
            }
        }
        assert_eq!(reported_ms, [3_000, 5_000, 8_000, 10_000, 12_000]);
    }

    #[test]
    fn task_of_an_earlier_daemon_is_reported_in_any_case() {
        let mut task = TaskActivity::new(quiet(), 0, LastReport::Unknown);
        pass(&mut task, 5_000, 0);
        assert_eq!(reported(&mut task), None, "not known yet");
        pass(&mut task, 5_000, 500);
        assert_eq!(reported(&mut task), Some(None));
        assert_eq!(reported(&mut task), None);
    }

    #[test]
    fn evidence_has_the_age_of_output_and_metric() {
        let mut task = TaskActivity::new(quiet(), 0, LastReport::Active);
        let last = Signals {
            output: OutputMark {
                bytes: 9,
                ..OutputMark::default()
            },
            metric_ms: Some(7_000),
            ..quiet()
        };
        task.take(last, 5_000);
        pass(&mut task, 65_000, 0);
        task.take_gpu(GpuUse::Quiet(GpuEvidence::Unused));
        let idle = reported(&mut task).flatten().expect("idle");
        assert_eq!(idle.output_ms, Some(65_000));
        assert_eq!((idle.metric_ms, idle.idle_ms), (Some(63_000), 63_000));
        assert_eq!((idle.session_ms, idle.gpu), (None, GpuEvidence::Unused));
    }
}
