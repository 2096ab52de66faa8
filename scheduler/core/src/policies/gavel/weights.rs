//! What each job should have beside the others, by the weights of the tenants.

use crate::policies::quota::Quota;
use crate::problem::Problem;

/// The parts of the cluster of these jobs, together about 1: a tenant's part is its weight among its siblings that have jobs here,
/// times the part of the tenant above it; a tenant's jobs divide its part evenly (Gavel, section 4.3, fairness by entities).
pub fn shares(problem: &Problem, jobs: &[usize]) -> Vec<f64> {
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

/// A weight of 0 would be a share of nothing, by which nobody's throughput can be divided.
fn weight(weight: f64) -> f64 {
    weight.max(1e-3)
}
