//! Who is served before others: higher priorities, and tenants that hold less than their share while their jobs wait.

use super::choose::Choice;
use super::menu::{Dish, Menu};
use crate::problem::{Job, Problem};
use std::cmp::Reverse;

/// Classes of jobs, the higher served first: all jobs of a class get at least their minimum before any of a lower one does.
pub(super) type Classes = Vec<i64>;

/// By priority, with room between for who is owed a share.
pub(super) fn priorities(problem: &Problem) -> Classes {
    let of = |priority: i32| 2 * i64::from(priority);
    problem.jobs.iter().map(|job| of(job.priority)).collect()
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
