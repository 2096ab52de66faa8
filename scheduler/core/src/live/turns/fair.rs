//! Fairness between tenants among queued jobs that wait for their first time slice.
//!
//! Waiting jobs are served in the order of their wait. A tenant with a long queue would therefore
//! hold up every other tenant until its whole queue had run.

use super::{Waiter, count, home, needs, quota_has_room};
use crate::live::standing::SchedulingState;
use crate::live::world::RoundState;
use crate::policies::tenant_share;
use std::collections::BTreeSet;

/// Shares of the tenants, and what they use.
pub(super) struct TenantShares {
    /// GPUs of each tenant.
    shares: Vec<f64>,
    /// GPUs that running jobs hold and that suspended jobs resume on, by tenant.
    used: Vec<f64>,
    /// Tenants with a queued job that fits their share.
    owed: BTreeSet<u32>,
}

impl TenantShares {
    /// Returns `None` if fewer than two tenants have jobs.
    pub fn of(world: &RoundState<'_>, line: &[Waiter]) -> Option<Self> {
        let tenants = &world.problem.tenants;
        let of_jobs = world.jobs.iter().map(|live| live.tenant);
        let shares = tenant_share::of(tenants, of_jobs, world.problem.gpus())?;
        let mut used: Vec<f64> = world.held.iter().copied().map(f64::from).collect();
        for (index, live) in world.jobs.iter().enumerate() {
            if live.standing == SchedulingState::Suspended {
                used[live.tenant as usize] += f64::from(count(&home(world, index)));
            }
        }
        let mut of = Self {
            shares,
            used,
            owed: BTreeSet::new(),
        };
        for index in line.iter().map(|waiter| waiter.index) {
            let live = &world.jobs[index];
            let is_owed = live.standing == SchedulingState::Queued
                && of.fits(world, index)
                && quota_has_room(world, index, needs(world, index));
            if is_owed {
                of.owed.insert(live.tenant);
            }
        }
        Some(of)
    }

    /// Whether a queued job must not be served for its age: its tenant would exceed its share, and a
    /// queued job of another tenant fits that tenant's share.
    pub fn defers(&self, world: &RoundState<'_>, waiter: Waiter) -> bool {
        let tenant = world.jobs[waiter.index].tenant;
        !waiter.stands
            && !self.fits(world, waiter.index)
            && self.owed.iter().any(|&owed| owed != tenant)
    }

    fn fits(&self, world: &RoundState<'_>, index: usize) -> bool {
        let tenant = world.jobs[index].tenant as usize;
        self.used[tenant] + f64::from(needs(world, index)) <= self.shares[tenant]
    }
}
