//! Result of one round.

use muster_core::{RoundPlan, RoundReport};
use muster_store::plan::CommitOutcome;
use std::collections::BTreeMap;

#[derive(Debug)]
pub struct RoundResult {
    pub plan: RoundPlan,
    pub report: RoundReport,
    pub outcome: CommitOutcome,
    /// Number of broken rules in the plan.
    pub refusals: u64,
    /// Waiting jobs after the round, by wait reason.
    pub queue: BTreeMap<&'static str, u64>,
    /// Whether the round left work without a wake-up for it.
    pub has_more: bool,
}

impl RoundResult {
    /// Whether the plan is empty.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.plan.is_empty()
    }
}
