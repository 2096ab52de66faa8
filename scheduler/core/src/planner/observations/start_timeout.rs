//! Tasks that their nodes have not started in time.

use super::ObservationContext;
use crate::plan::Action;
use crate::policy::StartLimit;
use crate::snapshot::{SnapshotJob, SnapshotTask};
use muster_model::task::TaskState;

impl ObservationContext<'_> {
    /// Gives up tasks of a starting or growing job that have exceeded the start limit. Each counts
    /// as refused by its node, and the next round decides what follows. Tasks on lost nodes are not
    /// included.
    pub(super) fn late(&self, job: &SnapshotJob) -> Option<Action> {
        let limit = self.policy.start_limit?;
        let waited_ms = self.now_ms.saturating_sub(job.placed_ms?);
        let waited_ms = u64::try_from(waited_ms).ok()?;
        let late: Vec<&SnapshotTask> = job
            .tasks
            .iter()
            .filter(|task| task.state == TaskState::Assigned && self.up.contains(&task.node))
            .filter(|task| waited_ms >= self.start_limit_ms(job, task, limit))
            .collect();
        let first = late.first()?;
        Some(Action::GiveUp {
            tasks: late.iter().map(|task| task.id).collect(),
            why: format!(
                "its node has not started it within {} s",
                self.start_limit_ms(job, first, limit) / 1_000
            ),
        })
    }

    /// An image is pulled before the start, on each kind of node.
    fn start_limit_ms(&self, job: &SnapshotJob, task: &SnapshotTask, limit: StartLimit) -> u64 {
        if self.processes.contains(&task.node) && !job.image {
            limit.process_ms
        } else {
            limit.pod_ms
        }
    }
}
