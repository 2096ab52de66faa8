//! Who is served before others: higher priorities, then who has waited beyond all measure, then tenants that hold less than their
//! share while their jobs wait.

use super::Muster;
use super::choose::Choice;
use super::menu::{Dish, Menu};
use crate::policies::quota::Quota;
use crate::problem::{Job, Problem};
use std::cmp::Reverse;

/// Classes of jobs, the higher served first: all jobs of a class get at least their minimum before any of a lower one does.
pub(super) type Classes = Vec<i64>;

/// Overdue jobs that are served before others at a time: one that fits nowhere yet does not keep all others waiting.
const MOST_OVERDUE: usize = 4;

/// By priority, and within one who is overdue first, with room between for who is owed a share.
pub(super) fn priorities(problem: &Problem, policy: &Muster, menus: &[Menu<'_>]) -> Classes {
    let of = |priority: i32| 4 * i64::from(priority);
    let mut classes: Classes = problem.jobs.iter().map(|job| of(job.priority)).collect();
    for job in overdue(problem, policy, menus) {
        classes[job] += 2;
    }
    classes
}

/// The oldest jobs whose age is beyond all measure, run or not: what was started for its age must not be stopped for it.
///
/// The value of waiting alone does not bound it: where more work comes than can ever be done, there is always somebody whose wait
/// weighs more.
fn overdue(problem: &Problem, policy: &Muster, menus: &[Menu<'_>]) -> Vec<usize> {
    let quota = Quota::whole(problem);
    let is_overdue = |index: usize| {
        let job = &problem.jobs[index];
        let age_s = job.age_s(problem.now_s) - policy.overdue_restarts * job.restart_s.max(1e-3);
        if age_s < 0.0 || !quota.allows(job.tenant, job.min_gpus) {
            return false;
        }
        let speed = |dish: &Dish| job.outlook.speed(dish.kind, dish.gpus, dish.nodes);
        let fastest = menus[index].dishes.iter().map(speed).fold(0.0, f64::max);
        let work = job.outlook.work_done + job.outlook.work_left;
        fastest > 0.0 && age_s >= policy.overdue_lengths * work / fastest
    };
    let mut overdue: Vec<usize> = (0..problem.jobs.len())
        .filter(|&index| is_overdue(index))
        .collect();
    overdue.sort_by(|&a, &b| {
        let (one, other) = (&problem.jobs[a], &problem.jobs[b]);
        let by_priority = other.priority.cmp(&one.priority);
        by_priority.then(one.submitted_s.total_cmp(&other.submitted_s))
    });
    overdue.truncate(MOST_OVERDUE);
    overdue
}

/// The classes in which the tenants that came off with less than their share come first, job by job as far as their share goes;
/// `None` when nobody is owed anything.
pub(super) fn owed(
    problem: &Problem,
    menus: &[Menu<'_>],
    classes: &Classes,
    chosen: &[Choice],
) -> Option<Classes> {
    let shares = shares(problem)?;
    let mut used = vec![0.0; problem.tenants.len()];
    for (job, choice) in chosen.iter().enumerate() {
        let of = &problem.jobs[job];
        let gpus = match choice {
            Some(dish) => menus[job].dishes[*dish].gpus,
            None if of.is_movable() => 0,
            None => of.held_gpus(),
        };
        used[of.tenant as usize] += f64::from(gpus);
    }
    let least = |job: usize| menus[job].dishes.iter().map(|dish| dish.gpus).min();
    let mut waiting: Vec<usize> = (0..chosen.len())
        .filter(|&job| chosen[job].is_none() && !menus[job].dishes.is_empty())
        .collect();
    // The smallest first: as many as the share holds.
    waiting.sort_by_key(|&job| (Reverse(classes[job]), least(job), job));
    let mut classes = classes.clone();
    let mut any = false;
    for job in waiting {
        let tenant = problem.jobs[job].tenant as usize;
        let gpus = f64::from(least(job).unwrap_or(0));
        if used[tenant] + gpus <= shares[tenant] {
            used[tenant] += gpus;
            classes[job] += 1;
            any = true;
        }
    }
    if any {
        // What its tenant has already must not be given away for it.
        let kept = (0..chosen.len()).filter(|&job| chosen[job].is_some());
        for job in kept {
            let tenant = problem.jobs[job].tenant as usize;
            let dish = chosen[job].map(|dish| menus[job].dishes[dish]);
            let is_due = dish.is_some_and(|dish| {
                let is_only_one = used[tenant] <= f64::from(dish.gpus);
                let is_wide = f64::from(least(job).unwrap_or(0)) > shares[tenant];
                is_only_one && is_wide && is_due(problem, &problem.jobs[job], dish, shares[tenant])
            });
            if used[tenant] <= shares[tenant] || is_due {
                classes[job] += 1;
            }
        }
    }
    any.then_some(classes)
}

/// Whether a gang that is wider than its tenant's share would have ended by the time at which it could end now, had it had that part of
/// its GPUs' time since it was submitted. Without that, gangs that no share holds would wait as long as others have any job.
fn is_due(problem: &Problem, job: &Job, dish: Dish, share: f64) -> bool {
    let width = f64::from(dish.gpus) / share.max(1e-12);
    let (work, speed) = (
        job.outlook.work_left,
        job.outlook.speed(dish.kind, dish.gpus, dish.nodes),
    );
    let in_share_s = (job.outlook.work_done + work) / speed * width;
    job.age_s(problem.now_s) + work / speed >= in_share_s
}

/// GPUs that each tenant may count on among those that have jobs; `None` when only one has.
fn shares(problem: &Problem) -> Option<Vec<f64>> {
    let tenants = &problem.tenants;
    let first = problem.jobs.first()?.tenant;
    if problem.jobs.iter().all(|job| job.tenant == first) {
        return None;
    }
    let mut active = vec![false; tenants.len()];
    for job in &problem.jobs {
        lineage(problem, job.tenant).for_each(|of| active[of] = true);
    }
    // Weights of the active children of every tenant, and of those without a parent.
    let mut of_children = vec![0.0; tenants.len() + 1];
    let parent = |of: usize| {
        tenants[of]
            .parent
            .map_or(tenants.len(), |parent| parent as usize)
    };
    for of in (0..tenants.len()).filter(|&of| active[of]) {
        of_children[parent(of)] += tenants[of].weight;
    }
    let part = |of: usize| tenants[of].weight / of_children[parent(of)].max(1e-12);
    let gpus = f64::from(problem.gpus());
    let share = |of: u32| lineage(problem, of).map(part).product::<f64>() * gpus;
    Some((0..).take(tenants.len()).map(share).collect())
}

/// The tenant and those above it.
fn lineage(problem: &Problem, tenant: u32) -> impl Iterator<Item = usize> {
    let parent = |of: &u32| problem.tenants[*of as usize].parent;
    // A circle of parents, which nobody should make, ends too.
    std::iter::successors(Some(tenant), parent)
        .take(problem.tenants.len())
        .map(|of| of as usize)
}
