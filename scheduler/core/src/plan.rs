//! Plans a round.

use crate::planner::EstimateCache;
use crate::policy::Policy;
use crate::report::RoundReport;
use crate::snapshot::ClusterSnapshot;
pub use muster_model::plan::{
    Action, JobDecision, NodeDecision, PlannedTask, RemainderWait, RoundPlan,
};

/// Plans one round. The same snapshot and policy give the same bytes.
#[must_use]
pub fn plan(snapshot: &ClusterSnapshot, policy: &Policy) -> (RoundPlan, RoundReport) {
    crate::planner::plan_round(snapshot, policy)
}

/// Plans one round with the estimates of the last one. They shorten the computation and do not
/// change the result.
#[must_use]
pub fn plan_again(
    snapshot: &ClusterSnapshot,
    policy: &Policy,
    memory: &mut EstimateCache,
) -> (RoundPlan, RoundReport) {
    crate::planner::plan_round_with_cache(snapshot, policy, memory)
}
