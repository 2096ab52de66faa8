//! Result of the passes of a round.

use super::free::FreeNode;
use crate::problem::PolicyDecision;
use muster_model::id::JobId;
use std::collections::BTreeMap;

/// Result of the last pass, which changed nothing: the decision and the promised GPUs.
pub(crate) struct RoundFixpoint {
    pub decision: PolicyDecision,
    /// Members that wait because they may no longer overtake an older job.
    pub behind: BTreeMap<usize, JobId>,
    /// GPUs by node of each member that waits for stopping tasks.
    pub promised: BTreeMap<usize, Vec<(u32, u64)>>,
    /// Resources that are free now and not promised.
    pub free: Vec<FreeNode>,
}
