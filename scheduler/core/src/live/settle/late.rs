//! Tasks that their nodes have not started in time: they are given up, so that the job can go elsewhere.

use super::Facts;
use crate::plan::Action;
use crate::snapshot::{Job, Task};
use muster_model::task::TaskState;

impl Facts<'_> {
    /// Gives up the tasks of a starting or growing job that have waited for their nodes beyond the limit. What this means for the job
    /// the next round finds: each counts as refused by its node. Tasks of nodes that are lost are not among them.
    pub(super) fn late(&self, job: &Job) -> Option<Action> {
        let limit = self.policy.start_limit?;
        let waited_ms = self.now_ms.saturating_sub(job.placed_ms?);
        let limit_ms = |task: &Task| match self.processes.contains(&task.node) {
            true => limit.process_ms,
            false => limit.pod_ms,
        };
        let is_late = |task: &&Task| {
            task.state == TaskState::Assigned
                && self.up.contains(&task.node)
                && u64::try_from(waited_ms).is_ok_and(|waited_ms| waited_ms >= limit_ms(task))
        };
        let late: Vec<&Task> = job.tasks.iter().filter(is_late).collect();
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
