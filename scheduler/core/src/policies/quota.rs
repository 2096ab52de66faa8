//! Remaining quotas of tenants and their ancestors.

use crate::problem::{ProblemTenant, SchedulingProblem};

/// GPUs that each tenant may still take.
#[derive(Debug, Clone)]
pub struct Quota<'a> {
    tenants: &'a [ProblemTenant],
    /// Remaining GPUs by tenant; `None` without a quota.
    left: Vec<Option<u32>>,
}

impl<'a> Quota<'a> {
    /// Returns the full quotas.
    pub fn whole(problem: &'a SchedulingProblem) -> Self {
        Self {
            tenants: &problem.tenants,
            left: problem.tenants.iter().map(|of| of.gpu_quota).collect(),
        }
    }

    /// Whether the quotas of a tenant and of its ancestors allow `gpus` more GPUs.
    pub fn allows(&self, tenant: u32, gpus: u32) -> bool {
        self.lineage(tenant)
            .all(|of| self.left[of].is_none_or(|left| left >= gpus))
    }

    /// Returns the GPUs that the quotas of a tenant and of its ancestors still allow.
    pub fn remaining(&self, tenant: u32) -> u32 {
        let left = self.lineage(tenant).filter_map(|of| self.left[of]);
        left.min().unwrap_or(u32::MAX)
    }

    /// Charges GPUs to a tenant. A quota that was lowered below its use has 0 left.
    pub fn charge(&mut self, tenant: u32, gpus: u32) {
        for of in self.lineage(tenant) {
            if let Some(left) = &mut self.left[of] {
                *left = left.saturating_sub(gpus);
            }
        }
    }

    /// Reverses a charge.
    pub fn refund(&mut self, tenant: u32, gpus: u32) {
        for of in self.lineage(tenant) {
            if let Some(left) = &mut self.left[of] {
                *left += gpus;
            }
        }
    }

    /// Returns the tenants with a quota and their remaining GPUs: the rows of a linear programme.
    pub fn rows(&self) -> impl Iterator<Item = (usize, u32)> {
        let left = self.left.iter().enumerate();
        left.filter_map(|(tenant, left)| left.map(|left| (tenant, left)))
    }

    /// Whether the quota of the tenant `of` also limits a tenant: itself or a descendant.
    pub fn covers(&self, of: usize, tenant: u32) -> bool {
        self.lineage(tenant).any(|above| above == of)
    }

    /// Returns the tenant and its ancestors.
    pub fn lineage(&self, tenant: u32) -> impl Iterator<Item = usize> + use<'a> {
        let tenants = self.tenants;
        // `take` bounds the iteration if the parents form a cycle.
        std::iter::successors(Some(tenant), move |&of| tenants.get(of as usize)?.parent)
            .take(tenants.len())
            .map(|tenant| tenant as usize)
    }
}
