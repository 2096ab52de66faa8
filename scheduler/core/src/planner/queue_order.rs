//! Order of waiting jobs.

use super::planned_job::PlannedJob;
use muster_model::id::JobId;
use std::cmp::Reverse;

/// Order of waiting jobs in explanations and starvation protection. Higher priorities come first,
/// then jobs that have started before, because they own a checkpoint, then earlier submissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueOrder {
    priority: Reverse<i32>,
    is_new: bool,
    submitted_ms: i64,
    job: JobId,
}

impl QueueOrder {
    pub(crate) fn of(live: &PlannedJob<'_>) -> Self {
        Self {
            priority: Reverse(live.priority),
            is_new: live.revision == 0,
            submitted_ms: live.job.submitted_ms,
            job: live.job.id,
        }
    }
}
