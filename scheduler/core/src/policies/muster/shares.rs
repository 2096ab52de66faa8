//! Classes of jobs, in order: higher priorities, then overdue jobs, then tenants that hold less
//! than their share while their jobs wait.

use super::Muster;
use super::options::{AllocationOption, JobOptions, OptionIndex};
use crate::policies::quota::Quota;
use crate::policies::tenant_share;
use crate::problem::{ProblemJob, SchedulingProblem};
use std::cmp::Reverse;

/// Class of each job. All jobs of a class get at least their minimum before any job of a lower
/// class.
pub(super) type Classes = Vec<i64>;

/// Maximum number of overdue jobs that precede others. An overdue job that fits nowhere yet
/// therefore does not block all others.
const MOST_OVERDUE: usize = 4;

/// Returns the classes by priority with overdue jobs first. The numbers leave room for jobs that
/// are owed a share.
pub(super) fn priorities(
    problem: &SchedulingProblem,
    policy: &Muster,
    all_options: &[JobOptions<'_>],
) -> Classes {
    let jobs = problem.jobs.iter();
    let mut classes: Classes = jobs.map(|job| 4 * i64::from(job.priority)).collect();
    for job in overdue(problem, policy, all_options) {
        classes[job] += 2;
    }
    classes
}

/// Returns the oldest overdue jobs, running or not. A job that was started because it was overdue
/// must stay overdue, or it would be stopped at once.
///
/// The value of waiting alone does not bound the wait: under permanent overload some other job
/// always weighs more.
fn overdue(
    problem: &SchedulingProblem,
    policy: &Muster,
    all_options: &[JobOptions<'_>],
) -> Vec<usize> {
    let quota = Quota::whole(problem);
    let mut overdue: Vec<usize> = (0..problem.jobs.len())
        .filter(|&index| {
            let job = &problem.jobs[index];
            is_overdue(problem, policy, job, &all_options[index])
                && quota.allows(job.tenant, job.min_gpus)
        })
        .collect();
    overdue.sort_by(|&a, &b| {
        let (one, other) = (&problem.jobs[a], &problem.jobs[b]);
        let by_priority = other.priority.cmp(&one.priority);
        by_priority.then(one.submitted_s.total_cmp(&other.submitted_s))
    });
    overdue.truncate(MOST_OVERDUE);
    overdue
}

/// Whether a job is older than its limit and can run at all.
fn is_overdue(
    problem: &SchedulingProblem,
    policy: &Muster,
    job: &ProblemJob,
    job_options: &JobOptions<'_>,
) -> bool {
    let age_s = job.age_s(problem.now_s) - policy.overdue_restarts * job.restart_s.max(1e-3);
    if age_s < 0.0 {
        return false;
    }
    let fastest = job_options
        .options
        .iter()
        .map(|option| job.outlook.speed(option.kind, option.gpus, option.nodes))
        .fold(0.0, f64::max);
    let work = job.outlook.work_done + job.outlook.work_left;
    fastest > 0.0 && age_s >= policy.overdue_lengths * work / fastest
}

/// Returns classes in which the jobs of tenants below their share come first, as far as the share
/// goes. Returns `None` if no tenant is owed a share.
pub(super) fn owed(
    problem: &SchedulingProblem,
    all_options: &[JobOptions<'_>],
    classes: &Classes,
    chosen: &[OptionIndex],
) -> Option<Classes> {
    let jobs = problem.jobs.iter().map(|job| job.tenant);
    let shares = tenant_share::of(&problem.tenants, jobs, problem.gpus())?;
    let mut used = vec![0.0; problem.tenants.len()];
    for (job, choice) in chosen.iter().enumerate() {
        let of = &problem.jobs[job];
        let gpus = match choice {
            Some(option) => all_options[job].options[*option].gpus,
            None if of.is_movable() => 0,
            None => of.held_gpus(),
        };
        used[of.tenant as usize] += f64::from(gpus);
    }

    let mut waiting: Vec<usize> = (0..chosen.len())
        .filter(|&job| chosen[job].is_none() && !all_options[job].options.is_empty())
        .collect();
    // The smallest first, so that as many jobs as possible fit into the share.
    waiting.sort_by_key(|&job| (Reverse(classes[job]), all_options[job].fewest_gpus(), job));
    let mut classes = classes.clone();
    let mut any = false;
    for job in waiting {
        let tenant = problem.jobs[job].tenant as usize;
        let gpus = f64::from(all_options[job].fewest_gpus().unwrap_or(0));
        if used[tenant] + gpus <= shares[tenant] {
            used[tenant] += gpus;
            classes[job] += 1;
            any = true;
        }
    }
    if any {
        // Jobs that their tenant already has must not be stopped for the owed ones.
        let kept = (0..chosen.len()).filter(|&job| chosen[job].is_some());
        for job in kept {
            let tenant = problem.jobs[job].tenant as usize;
            let option = chosen[job].map(|option| all_options[job].options[option]);
            let is_due = option.is_some_and(|option| {
                let is_only_one = used[tenant] <= f64::from(option.gpus);
                let least = all_options[job].fewest_gpus().unwrap_or(0);
                let is_wide = f64::from(least) > shares[tenant];
                is_only_one
                    && is_wide
                    && is_due(problem, &problem.jobs[job], option, shares[tenant])
            });
            if used[tenant] <= shares[tenant] || is_due {
                classes[job] += 1;
            }
        }
    }
    any.then_some(classes)
}

/// Whether a gang wider than its tenant's share is due.
///
/// It is due if its part of the GPU time since the submission would have sufficed to end it by its
/// earliest possible end. Without this rule, gangs wider than any share would wait as long as other
/// tenants have jobs.
fn is_due(
    problem: &SchedulingProblem,
    job: &ProblemJob,
    option: AllocationOption,
    share: f64,
) -> bool {
    let width = f64::from(option.gpus) / share.max(1e-12);
    let (work, speed) = (
        job.outlook.work_left,
        job.outlook.speed(option.kind, option.gpus, option.nodes),
    );
    let in_share_s = (job.outlook.work_done + work) / speed * width;
    job.age_s(problem.now_s) + work / speed >= in_share_s
}
