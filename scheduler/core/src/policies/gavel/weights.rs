//! Fair share of each job by the weights of the tenants.

use crate::policies::quota::Quota;
use crate::problem::SchedulingProblem;

/// Returns the fair share of each of these jobs; the sum is about 1. The share of a tenant is its
/// weight among its siblings with jobs, times the share of its parent. The jobs of a tenant divide
/// its share evenly (Gavel, section 4.3, fairness by entities).
pub fn shares(problem: &SchedulingProblem, jobs: &[usize]) -> Vec<f64> {
    let quota = Quota::whole(problem);
    let lineage = |job: usize| quota.lineage(problem.jobs[job].tenant);
    let mut own = vec![0_u32; problem.tenants.len()];
    let mut active = vec![false; problem.tenants.len()];
    for &job in jobs {
        for (above, tenant) in lineage(job).enumerate() {
            own[tenant] += u32::from(above == 0);
            active[tenant] = true;
        }
    }
    let part = |tenant: usize| {
        let siblings = problem.tenants.iter().zip(&active);
        let of = &problem.tenants[tenant];
        let sum: f64 = siblings
            .filter(|&(other, &active)| active && other.parent == of.parent)
            .map(|(other, _)| weight(other.weight))
            .sum();
        weight(of.weight) / sum
    };
    let share = |job: usize| {
        let tenant = problem.jobs[job].tenant as usize;
        let jobs = own.get(tenant).copied().unwrap_or(1).max(1);
        lineage(job).map(part).product::<f64>() / f64::from(jobs)
    };
    jobs.iter().map(|&job| share(job)).collect()
}

/// Lower bound for weights, because throughputs are divided by the share.
fn weight(weight: f64) -> f64 {
    weight.max(1e-3)
}
