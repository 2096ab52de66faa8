//! Reduction of a plan that breaks a rule: only the decisions of the affected job are removed.

use crate::scene::{Scene, job, tenant};
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::{Action, apply, check, plan, sound};
use muster_model::spec::Range;

fn two_starts() -> (
    muster_core::snapshot::ClusterSnapshot,
    muster_core::RoundPlan,
) {
    let mut snapshot = Scene::cluster(1, 2).snapshot;
    for number in 0..2 {
        let mut new = job(number, &format!("j{number}"), snapshot.now_ms);
        new.workers = Range { min: 1, max: 1 };
        new.ps_shards = Range::NONE;
        snapshot.jobs.push(new);
    }
    let (plan, _) = plan(&snapshot, &Policy::named(PolicyName::Fifo));
    assert_eq!(check(&snapshot, &plan), Vec::new());
    (snapshot, plan)
}

#[test]
fn sound_plan_is_unchanged() {
    let (snapshot, plan) = two_starts();
    let (kept, broken) = sound(&snapshot, plan.clone());
    assert_eq!((kept, broken.len()), (plan, 0));
}

#[test]
fn sound_removes_wrong_job_and_starts_the_others() {
    let (snapshot, mut plan) = two_starts();
    let wronged = snapshot.jobs[0].id;
    for decision in plan.decisions.iter_mut().filter(|one| one.job == wronged) {
        decision.expected_revision += 1;
    }
    let (kept, broken) = sound(&snapshot, plan);
    assert!(!broken.is_empty() && broken.iter().all(|one| one.job() == Some(wronged)));
    let starts = kept.decisions.iter();
    let starts = starts.filter(|one| matches!(one.action, Action::Start { .. }));
    let started: Vec<_> = starts.map(|one| one.job).collect();
    assert_eq!(started, [snapshot.jobs[1].id]);
    assert_eq!(check(&snapshot, &kept), Vec::new());
}

#[test]
fn sound_removes_first_job_that_breaks_unnamed_rule() {
    let (mut snapshot, plan) = two_starts();
    // Each start fits alone; both together exceed the quota.
    snapshot.tenants[0].gpu_quota = Some(1);
    let (kept, broken) = sound(&snapshot, plan);
    assert!(!broken.is_empty() && broken.iter().all(|one| one.job().is_none()));
    let starts = kept.decisions.iter();
    let starts = starts.filter(|one| matches!(one.action, Action::Start { .. }));
    let started: Vec<_> = starts.map(|one| one.job).collect();
    assert_eq!(started, [snapshot.jobs[0].id]);
    assert_eq!(check(&snapshot, &kept), Vec::new());
}

#[test]
fn violations_without_plan_remove_no_decision() {
    let (mut snapshot, begun) = two_starts();
    snapshot.nodes[0].gpus = 3;
    apply(&mut snapshot, &begun).expect("a checked plan");
    snapshot.tenants[0].gpu_quota = Some(1);
    let mut other = snapshot.tenants[0].clone();
    (other.id, other.gpu_quota) = (tenant(1), None);
    snapshot.tenants.push(other);
    let mut new = job(2, "new", snapshot.now_ms);
    (new.tenant, new.workers, new.ps_shards) = (tenant(1), Range { min: 1, max: 1 }, Range::NONE);
    let id = new.id;
    snapshot.jobs.push(new);
    // The plan of a planner that does not enforce the lowered quota.
    let (mut plan, _) = plan(&snapshot, &Policy::named(PolicyName::Fifo));
    plan.decisions.retain(|one| one.job == id);
    assert!(
        plan.decisions
            .iter()
            .any(|one| matches!(one.action, Action::Start { .. }))
    );
    let (kept, broken) = sound(&snapshot, plan.clone());
    assert!(!broken.is_empty());
    assert_eq!(kept, plan);
}
