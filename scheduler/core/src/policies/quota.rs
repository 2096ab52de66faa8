//! What the quotas of the tenants leave, those of the tenants above a tenant included.

use crate::problem::{Problem, Tenant};

/// GPUs that every tenant may still take.
#[derive(Debug, Clone)]
pub struct Quota<'a> {
    tenants: &'a [Tenant],
    /// `None` without a quota.
    left: Vec<Option<u32>>,
}

impl<'a> Quota<'a> {
    /// All of it.
    pub fn whole(problem: &'a Problem) -> Self {
        Self {
            tenants: &problem.tenants,
            left: problem.tenants.iter().map(|of| of.gpu_quota).collect(),
        }
    }

    /// Whether the quotas of a tenant and of those above allow so many GPUs more.
    pub fn allows(&self, tenant: u32, gpus: u32) -> bool {
        self.lineage(tenant)
            .all(|of| self.left[of].is_none_or(|left| left >= gpus))
    }

    /// GPUs that the quotas of a tenant and of those above still allow.
    pub fn room(&self, tenant: u32) -> u32 {
        let left = self.lineage(tenant).filter_map(|of| self.left[of]);
        left.min().unwrap_or(u32::MAX)
    }

    /// Takes so many GPUs. A quota that was lowered under its jobs has 0 left.
    pub fn charge(&mut self, tenant: u32, gpus: u32) {
        for of in self.lineage(tenant) {
            if let Some(left) = &mut self.left[of] {
                *left = left.saturating_sub(gpus);
            }
        }
    }

    /// Gives back what was charged.
    pub fn refund(&mut self, tenant: u32, gpus: u32) {
        for of in self.lineage(tenant) {
            if let Some(left) = &mut self.left[of] {
                *left += gpus;
            }
        }
    }

    /// The tenants with a quota and what each has left: the rows of a linear programme.
    pub fn rows(&self) -> impl Iterator<Item = (usize, u32)> {
        let left = self.left.iter().enumerate();
        left.filter_map(|(tenant, left)| left.map(|left| (tenant, left)))
    }

    /// The tenant and those above it.
    pub fn lineage(&self, tenant: u32) -> impl Iterator<Item = usize> + use<'a> {
        let tenants = self.tenants;
        let parent = move |of: &u32| tenants.get(*of as usize).and_then(|of| of.parent);
        // A circle of parents, which nobody should make, ends too.
        std::iter::successors(Some(tenant), parent)
            .take(tenants.len())
            .map(|tenant| tenant as usize)
    }
}
