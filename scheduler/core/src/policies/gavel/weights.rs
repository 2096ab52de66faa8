//! Fair share of each job by the weights of the tenants.

use crate::policies::quota::Quota;
use crate::problem::{ProblemTenant, SchedulingProblem};

/// Returns the fair share of each of these jobs; the sum is about 1. The share of a tenant is its
/// weight among its siblings with jobs, times the share of its parent. The jobs of a tenant divide
/// its share evenly (Gavel, section 4.3, fairness by entities).
pub fn shares(problem: &SchedulingProblem, jobs: &[usize]) -> Vec<f64> {
    let quota = Quota::whole(problem);

    let mut own = vec![0_u32; problem.tenants.len()];
    let mut active = vec![false; problem.tenants.len()];
    for &job in jobs {
        for (above, tenant) in quota.lineage(problem.jobs[job].tenant).enumerate() {
            own[tenant] += u32::from(above == 0);
            active[tenant] = true;
        }
    }
    let mut shares = Vec::with_capacity(jobs.len());
    for &job in jobs {
        let tenant = problem.jobs[job].tenant;
        let jobs = own.get(tenant as usize).copied().unwrap_or(1).max(1);
        let lineage = quota.lineage(tenant);
        let parts = lineage.map(|tenant| part(&problem.tenants, &active, tenant));
        shares.push(parts.product::<f64>() / f64::from(jobs));
    }
    shares
}

/// Returns the part of a tenant in the share of its parent: its weight among its active siblings.
fn part(tenants: &[ProblemTenant], active: &[bool], tenant: usize) -> f64 {
    let of = &tenants[tenant];
    let sum: f64 = tenants
        .iter()
        .zip(active)
        .filter(|&(other, &active)| active && other.parent == of.parent)
        .map(|(other, _)| weight(other.weight))
        .sum();
    weight(of.weight) / sum
}

/// Lower bound for weights, because throughputs are divided by the share.
fn weight(weight: f64) -> f64 {
    weight.max(1e-3)
}
