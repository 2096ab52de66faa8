//! Identity of a shard.

use muster_model::id::{JobId, TaskId};

/// Identity of the shard, and of the job whose tasks are its peers.
#[derive(Debug, Clone)]
pub struct Identity {
    pub job_id: JobId,
    pub task_id: TaskId,
    pub secret: String,
}
