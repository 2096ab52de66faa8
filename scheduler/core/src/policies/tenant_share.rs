//! Fair shares of tenants: the GPUs that each tenant may count on while it has jobs.

use crate::problem::ProblemTenant;

/// Returns the share of each tenant in GPUs: `gpus` divided by weight among the tenants that have
/// jobs, level by level of the tree. Returns `None` if fewer than two tenants have jobs.
///
/// `of_jobs` are the tenants of the jobs, with repetitions.
pub(crate) fn of(
    tenants: &[ProblemTenant],
    of_jobs: impl IntoIterator<Item = u32>,
    gpus: u32,
) -> Option<Vec<f64>> {
    let mut with_jobs: Vec<u32> = of_jobs.into_iter().collect();
    with_jobs.sort_unstable();
    with_jobs.dedup();
    if with_jobs.len() < 2 {
        return None;
    }
    let mut active = vec![false; tenants.len()];
    for tenant in with_jobs {
        lineage(tenants, tenant).for_each(|of| active[of] = true);
    }
    // Sums of the weights of active children, by parent.
    let mut of_children = vec![0.0; tenants.len() + 1];
    for of in (0..tenants.len()).filter(|&of| active[of]) {
        of_children[parent_or_last(tenants, of)] += tenants[of].weight;
    }
    let mut shares = Vec::with_capacity(tenants.len());
    for tenant in (0..).take(tenants.len()) {
        let parts = lineage(tenants, tenant).map(|of| {
            let siblings = of_children[parent_or_last(tenants, of)];
            tenants[of].weight / siblings.max(1e-12)
        });
        shares.push(parts.product::<f64>() * f64::from(gpus));
    }
    Some(shares)
}

/// Returns the index of a tenant's parent. Tenants without a parent share the index behind the last
/// tenant.
fn parent_or_last(tenants: &[ProblemTenant], tenant: usize) -> usize {
    let parent = tenants[tenant].parent;
    parent.map_or(tenants.len(), |parent| parent as usize)
}

/// Returns the tenant and its ancestors.
fn lineage(tenants: &[ProblemTenant], tenant: u32) -> impl Iterator<Item = usize> {
    // `take` bounds the iteration if the parents form a cycle.
    std::iter::successors(Some(tenant), |&of| tenants[of as usize].parent)
        .take(tenants.len())
        .map(|of| of as usize)
}

#[cfg(test)]
mod tests {
    use super::{ProblemTenant, of};

    fn tenant(weight: f64, parent: Option<u32>) -> ProblemTenant {
        ProblemTenant {
            weight,
            gpu_quota: None,
            parent,
        }
    }

    #[test]
    fn one_tenant_has_no_share() {
        let tenants = [tenant(1.0, None), tenant(1.0, None)];
        assert_eq!(of(&tenants, [], 8), None);
        assert_eq!(of(&tenants, [1, 1], 8), None);
    }

    #[test]
    fn tenants_with_jobs_share_by_weight_and_level() {
        // Two children of tenant 0, and tenants without a parent, of which the last has no jobs.
        let tenants = [
            tenant(1.0, None),
            tenant(3.0, Some(0)),
            tenant(1.0, Some(0)),
            tenant(1.0, None),
            tenant(5.0, None),
        ];
        let shares = of(&tenants, [1, 2, 3, 1], 8).expect("three have jobs");
        assert_eq!(shares[1..4], [3.0, 1.0, 4.0]);
    }
}
