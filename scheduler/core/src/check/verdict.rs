//! Check of verdicts.

use super::Checker;
use super::violation::Violation;
use crate::snapshot::{SnapshotJob, SnapshotTask};
use muster_model::job::JobState;
use muster_model::pace::Doing;
use muster_model::verdict::{Finding, Verdict};

impl Checker<'_> {
    /// The rank must exist, the job must be running, and the limits of its document must have
    /// expired. Only an idle rank may be the only worker.
    pub(super) fn verdict(&mut self, job: &SnapshotJob, verdict: &Verdict) {
        let workers = job.tasks.iter().filter(|task| task.is_worker());
        let is_idle = matches!(verdict.finding, Finding::Idle { .. });
        if workers.clone().count() < 2 && !is_idle {
            self.unjust_verdict(job, "which is alone");
        }
        let mut tasks = job.tasks.iter();
        if !tasks.any(|task| task.id == verdict.task_id && (is_idle || task.is_worker())) {
            self.unjust_verdict(job, "which is not there");
        }
        if job.state != JobState::Running || !job.leaving.is_empty() {
            self.unjust_verdict(job, "while others come or go");
        }
        let now_ms = self.snapshot.now_ms;
        if workers.clone().any(|task| is_excused(task, now_ms)) {
            self.unjust_verdict(job, "while others rightly wait");
        }
        let limit_ms = job.watch.as_ref().map_or(0, |watch| match verdict.finding {
            Finding::Straggler { .. } => watch.straggler_ms,
            Finding::Hang { .. } => watch.hang_ms,
            Finding::Idle { .. } if watch.restarts_idle => watch.hang_ms,
            Finding::Idle { .. } => 0,
        });
        if limit_ms == 0 || verdict.for_ms < limit_ms {
            self.unjust_verdict(job, "earlier than its document says");
        }
    }

    fn unjust_verdict(&mut self, job: &SnapshotJob, what: &'static str) {
        let job = job.id;
        self.violations.push(Violation::UnjustVerdict { job, what });
    }
}

/// Whether the task has just reported that it is busy or suspended.
fn is_excused(task: &SnapshotTask, now_ms: i64) -> bool {
    task.pace.is_some_and(|pace| {
        matches!(pace.doing, Doing::Busy | Doing::Standing)
            && now_ms.saturating_sub(pace.heard_ms) < 10_000
    })
}
