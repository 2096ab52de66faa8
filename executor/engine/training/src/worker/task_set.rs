//! The job's task set, which the executor keeps for its tasks. The views of PS shards and those of
//! all-reduce follow it: the coordinator looks for a newer one, the other workers wait to join.

use super::context::RosterSource;
use muster_compute::clock;
use muster_model::assignment::Peers;
use muster_model::id::TaskId;
use std::time::{Duration, Instant};

/// Poll interval of waits for a task set, and for connections to the tasks in it.
pub(super) const POLL_EVERY: Duration = Duration::from_millis(20);

/// Time for which a named task may refuse connections before it counts as lost.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Returns the workers of a task set, in order of rank.
#[must_use]
pub(super) fn worker_ids(peers: &Peers) -> Vec<TaskId> {
    peers.workers.iter().map(|worker| worker.task_id).collect()
}

/// Finds task sets that the coordinator's newest view does not follow yet.
pub(super) struct TaskSetWatch {
    peers: RosterSource,
    /// Minimum interval between two reads.
    every: Duration,
    read_at: Instant,
    /// Revision of the task set that the newest view follows.
    revision: u64,
}

impl TaskSetWatch {
    /// Starts with a view that follows the task set of `revision`.
    #[must_use]
    pub fn new(peers: RosterSource, every: Duration, revision: u64) -> Self {
        Self {
            peers,
            every,
            read_at: clock::now(),
            revision,
        }
    }

    /// Whether [`Self::newer`] finds a newer task set now.
    pub fn has_newer(&mut self) -> bool {
        let read_at = self.read_at;
        let has_newer = self.newer().is_some();
        if has_newer {
            // The next call of `newer` reads again.
            self.read_at = read_at;
        }
        has_newer
    }

    /// Reads the task set if the interval has passed. Returns it if it is newer.
    pub fn newer(&mut self) -> Option<Peers> {
        if self.read_at.elapsed() < self.every {
            return None;
        }
        self.read_at = clock::now();
        (self.peers)().filter(|peers| peers.revision > self.revision)
    }

    /// Records that the newest view follows the task set of `revision`.
    pub fn follow(&mut self, revision: u64) {
        self.revision = revision;
    }
}
