//! What of a wrong plan can still be carried out.

use super::{Violation, check};
use crate::plan::{Action, Decision, Plan};
use crate::snapshot::Snapshot;
use muster_model::id::JobId;
use std::collections::BTreeSet;

/// The part of a plan that breaks no rule, and every rule that the whole of it breaks.
///
/// Jobs that a broken rule names are left out; where none is named, all that gives anybody a GPU or takes a node away; and if that was not
/// it, everything. So one job that the planner gets wrong, round after round, does not stop the scheduling of all others.
#[must_use]
pub fn sound(snapshot: &Snapshot, plan: Plan) -> (Plan, Vec<Violation>) {
    let (mut plan, mut broken) = (plan, Vec::new());
    loop {
        let wrong = check(snapshot, &plan);
        if wrong.is_empty() {
            return (plan, broken);
        }
        // What is wrong without any plan, as two on a GPU that it does not hold any more, is not mended by leaving something out.
        let given = check(snapshot, &Plan::default());
        let by_plan = wrong.iter().filter(|one| !given.contains(one));
        let by_plan: Vec<&Violation> = by_plan.collect();
        let named: BTreeSet<JobId> = by_plan.iter().filter_map(|one| one.job()).collect();
        let is_right = by_plan.is_empty();
        broken.extend(wrong);
        if is_right {
            return (plan, broken);
        }
        let before = plan.decisions.len() + plan.excluded.len();
        plan.decisions.retain(|one| !named.contains(&one.job));
        if plan.decisions.len() + plan.excluded.len() == before {
            plan.decisions.retain(|one| !gives(one));
            plan.excluded.clear();
        }
        if plan.decisions.len() + plan.excluded.len() == before {
            plan.decisions.clear();
        }
    }
}

/// Whether somebody holds more by it.
fn gives(decision: &Decision) -> bool {
    matches!(
        decision.action,
        Action::Start { .. } | Action::Resize { .. } | Action::Continue { .. }
    )
}
