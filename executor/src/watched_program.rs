//! A running program whose idleness is measured. The ledger lists such programs for the activity
//! monitor.

use crate::folder::NodeTaskFolder;
use crate::process::ProcessId;
use muster_model::id::TaskId;
use muster_model::spec::JobSpec;

/// Shortest interval of measurements. In a shorter one, a clock tick is a large share of a core.
pub(crate) const SHORTEST_EVERY_MS: u64 = 1_000;
/// Idle time after which a task is reported, if its document has no shorter limit.
const LONGEST_FIRST_MS: u64 = 60_000;

/// A running program, as the node loop passes it to the activity monitor.
#[derive(Debug, Clone)]
pub struct WatchedProgram {
    pub task: TaskId,
    pub folder: NodeTaskFolder,
    /// The task's processes are the descendants of its shim.
    pub shim: ProcessId,
    /// The task's process, which becomes the program.
    pub program: ProcessId,
    pub gpus: Vec<u32>,
    pub is_suspended: bool,
    pub is_interactive: bool,
    /// Idle time after which the task is reported.
    pub first_ms: u64,
}

/// Returns the idle time after which a task of this job is reported: early enough for each limit
/// of its document.
#[must_use]
pub fn first_ms(spec: &JobSpec) -> u64 {
    match spec.idle_limit_ms().unwrap_or_else(|| spec.hang_ms()) {
        0 => LONGEST_FIRST_MS,
        limit_ms => (limit_ms / 4).clamp(SHORTEST_EVERY_MS, LONGEST_FIRST_MS),
    }
}
