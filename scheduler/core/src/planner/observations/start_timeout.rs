//! Tasks that their nodes have not started in time.

use super::ObservationContext;
use crate::plan::Action;
use crate::snapshot::{SnapshotJob, SnapshotTask};
use muster_model::task::TaskState;

impl ObservationContext<'_> {
    /// Gives up tasks of a starting or growing job that have exceeded the start limit. Each counts
    /// as refused by its node, and the next round decides what follows. Tasks on lost nodes are not
    /// included.
    pub(super) fn late(&self, job: &SnapshotJob) -> Option<Action> {
        let limit = self.policy.start_limit?;
        let waited_ms = self.now_ms.saturating_sub(job.placed_ms?);
        let limit_ms = |task: &SnapshotTask| {
            if self.processes.contains(&task.node) {
                limit.process_ms
            } else {
                limit.pod_ms
            }
        };
        let is_late = |task: &&SnapshotTask| {
            task.state == TaskState::Assigned
                && self.up.contains(&task.node)
                && u64::try_from(waited_ms).is_ok_and(|waited_ms| waited_ms >= limit_ms(task))
        };
        let late: Vec<&SnapshotTask> = job.tasks.iter().filter(is_late).collect();
        let first = late.first()?;
        Some(Action::GiveUp {
            tasks: late.iter().map(|task| task.id).collect(),
            why: format!(
                "its node has not started it within {} s",
                limit_ms(first) / 1_000
            ),
        })
    }
}
