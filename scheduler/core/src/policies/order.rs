//! Orders of jobs.

use crate::problem::{ProblemJob, SchedulingProblem};

/// Returns all jobs by descending priority, then by ascending key, then by submission.
pub fn by_key(problem: &SchedulingProblem, keys: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..problem.jobs.len()).collect();
    // The sort is stable and jobs are in order of submission.
    order.sort_by(|&a, &b| {
        let by_priority = problem.jobs[b].priority.cmp(&problem.jobs[a].priority);
        by_priority.then(keys[a].total_cmp(&keys[b]))
    });
    order
}

/// Returns all jobs by descending priority, then by submission.
pub fn by_submission(problem: &SchedulingProblem) -> Vec<usize> {
    by_key(problem, &vec![0.0; problem.jobs.len()])
}

/// Returns the size that policies without elasticity allocate: the requested size in whole units,
/// within the job's bounds.
pub fn request(job: &ProblemJob) -> u32 {
    let unit = job.unit.gpus.max(1);
    let wanted = job.request_gpus.min(job.max_gpus) / unit * unit;
    wanted.max(minimum(job))
}

/// Returns the size of the smallest gang in whole units.
pub fn minimum(job: &ProblemJob) -> u32 {
    let unit = job.unit.gpus.max(1);
    job.min_gpus.max(1).div_ceil(unit) * unit
}

/// Returns the size of the largest gang in whole units.
pub fn maximum(job: &ProblemJob) -> u32 {
    let unit = job.unit.gpus.max(1);
    job.max_gpus / unit * unit
}
