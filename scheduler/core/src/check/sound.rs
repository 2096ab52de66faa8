//! Reduction of an invalid plan to the part that can be committed.

use super::{Violation, check_with};
use crate::plan::{Action, JobDecision, RoundPlan};
use crate::policies::name::PolicyName;
use crate::policy::Policy;
use crate::snapshot::ClusterSnapshot;
use muster_model::id::JobId;
use std::collections::BTreeSet;

/// Maximum number of jobs that are searched for because no violation names them. Each search checks
/// the plan several times.
const SOUGHT: u32 = 16;

/// Returns the part of a plan that breaks no rule, and every rule that the whole plan breaks.
///
/// Decisions on jobs that a violation names are removed. If that removes none, the decision that
/// first breaks a rule is removed, then the next, up to a limit. After that, all decisions that
/// give GPUs and all exclusions are removed, and finally all decisions. So a job that the planner
/// handles wrongly in every round does not stop the scheduling of the others.
///
/// The default settings apply.
#[must_use]
pub fn sound(snapshot: &ClusterSnapshot, plan: RoundPlan) -> (RoundPlan, Vec<Violation>) {
    sound_with(snapshot, plan, &Policy::named(PolicyName::Muster))
}

/// Like [`sound`], with these settings.
#[must_use]
pub fn sound_with(
    snapshot: &ClusterSnapshot,
    plan: RoundPlan,
    policy: &Policy,
) -> (RoundPlan, Vec<Violation>) {
    let (mut plan, mut broken, mut sought) = (plan, Vec::new(), 0);
    loop {
        let wrong = check_with(snapshot, &plan, policy);
        if wrong.is_empty() {
            return (plan, broken);
        }
        // A violation that exists without a plan, such as two jobs on a GPU, cannot be fixed by
        // removing decisions.
        let given = check_with(snapshot, &RoundPlan::default(), policy);
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
            if let Some(job) = first_wrong(snapshot, &plan, (&by_plan, policy)) {
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

/// Returns the job whose decision first breaks one of these rules, by bisection. Returns `None` if
/// they are broken without any decision.
fn first_wrong(
    snapshot: &ClusterSnapshot,
    plan: &RoundPlan,
    broken: (&[Violation], &Policy),
) -> Option<JobId> {
    if breaks(snapshot, plan, 0, broken) {
        return None;
    }
    let (mut right, mut wrong) = (0, plan.decisions.len());
    while right + 1 < wrong {
        let middle = usize::midpoint(right, wrong);
        if breaks(snapshot, plan, middle, broken) {
            wrong = middle;
        } else {
            right = middle;
        }
    }
    Some(plan.decisions.get(right)?.job)
}

/// Whether the first `count` decisions of a plan break one of these rules.
fn breaks(
    snapshot: &ClusterSnapshot,
    plan: &RoundPlan,
    count: usize,
    (broken, policy): (&[Violation], &Policy),
) -> bool {
    let part = RoundPlan {
        decisions: plan.decisions[..count].to_vec(),
        excluded: plan.excluded.clone(),
        ..RoundPlan::default()
    };
    let wrong = check_with(snapshot, &part, policy);
    wrong.iter().any(|one| broken.contains(one))
}

/// Whether the decision gives GPUs to a job.
fn gives(decision: &JobDecision) -> bool {
    matches!(
        decision.action,
        Action::Start { .. } | Action::Resize { .. } | Action::Continue { .. }
    )
}
