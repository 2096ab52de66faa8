//! What of a wrong plan can still be carried out.

use super::{Violation, check};
use crate::plan::{Action, Decision, Plan};
use crate::snapshot::Snapshot;
use muster_model::id::JobId;
use std::collections::BTreeSet;

/// So many jobs are sought that no rule names: each takes a few looks at the whole plan.
const SOUGHT: u32 = 16;

/// The part of a plan that breaks no rule, and every rule that the whole of it breaks.
///
/// Jobs that a broken rule names are left out; where none is named about whom anything is decided, the job with whose decision the rule is
/// first broken, and then the next. After so many, all that gives anybody a GPU or takes a node away; and if that was not it, everything.
/// So one job that the planner gets wrong, round after round, does not stop the scheduling of all others.
#[must_use]
pub fn sound(snapshot: &Snapshot, plan: Plan) -> (Plan, Vec<Violation>) {
    let (mut plan, mut broken, mut sought) = (plan, Vec::new(), 0);
    loop {
        let wrong = check(snapshot, &plan);
        if wrong.is_empty() {
            return (plan, broken);
        }
        // What is wrong without any plan, as two on a GPU that it does not hold any more, is not mended by leaving something out.
        let given = check(snapshot, &Plan::default());
        let by_plan = wrong.iter().filter(|one| !given.contains(one));
        let by_plan: Vec<Violation> = by_plan.cloned().collect();
        let named: BTreeSet<JobId> = by_plan.iter().filter_map(|one| one.job()).collect();
        let is_right = by_plan.is_empty();
        broken.extend(wrong);
        if is_right {
            return (plan, broken);
        }
        let before = plan.decisions.len() + plan.excluded.len();
        plan.decisions.retain(|one| !named.contains(&one.job));
        for behind in &mut plan.behind {
            behind.jobs.retain(|one| !named.contains(&one.job));
        }
        plan.behind.retain(|behind| !behind.jobs.is_empty());
        if plan.decisions.len() + plan.excluded.len() == before && sought < SOUGHT {
            sought += 1;
            if let Some(job) = first_wrong(snapshot, &plan, &by_plan) {
                plan.decisions.retain(|one| one.job != job);
            }
        }
        if plan.decisions.len() + plan.excluded.len() == before {
            plan.decisions.retain(|one| !gives(one));
            plan.excluded.clear();
        }
        if plan.decisions.len() + plan.excluded.len() == before {
            plan.decisions.clear();
        }
    }
}

/// The job with whose decision one of these rules is first broken, found by halves; `None` if they are broken without any.
fn first_wrong(snapshot: &Snapshot, plan: &Plan, rules: &[Violation]) -> Option<JobId> {
    let breaks = |count: usize| {
        let part = Plan {
            decisions: plan.decisions[..count].to_vec(),
            excluded: plan.excluded.clone(),
            ..Plan::default()
        };
        check(snapshot, &part).iter().any(|one| rules.contains(one))
    };
    if breaks(0) {
        return None;
    }
    let (mut right, mut wrong) = (0, plan.decisions.len());
    while right + 1 < wrong {
        let middle = usize::midpoint(right, wrong);
        match breaks(middle) {
            true => wrong = middle,
            false => right = middle,
        }
    }
    Some(plan.decisions.get(right)?.job)
}

/// Whether somebody holds more by it.
fn gives(decision: &Decision) -> bool {
    matches!(
        decision.action,
        Action::Start { .. } | Action::Resize { .. } | Action::Continue { .. }
    )
}
