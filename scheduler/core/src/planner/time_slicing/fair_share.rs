//! Fairness between tenants among queued jobs that wait for their first time slice.
//!
//! Waiting jobs are served in the order of their wait. A tenant with a long queue would therefore
//! hold up every other tenant until its whole queue had run.

use super::{SliceWaiter, needs, quota_has_room};
use crate::planner::free::count_gpus;
use crate::planner::round_state::RoundState;
use crate::planner::scheduling_state::SchedulingState;
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
    pub fn of(round: &RoundState<'_>, line: &[SliceWaiter]) -> Option<Self> {
        let tenants = &round.problem.tenants;
        let of_jobs = round.jobs.iter().map(|live| live.tenant);
        let shares = tenant_share::of(tenants, of_jobs, round.problem.gpus())?;
        let mut used: Vec<f64> = round.held.iter().copied().map(f64::from).collect();
        for (index, live) in round.jobs.iter().enumerate() {
            if live.scheduling_state == SchedulingState::Suspended {
                used[live.tenant as usize] += f64::from(count_gpus(&round.jobs[index].home()));
            }
        }
        let mut of = Self {
            shares,
            used,
            owed: BTreeSet::new(),
        };
        for index in line.iter().map(|waiter| waiter.index) {
            let live = &round.jobs[index];
            let is_owed = live.scheduling_state == SchedulingState::Queued
                && of.fits(round, index)
                && quota_has_room(round, index, needs(round, index));
            if is_owed {
                of.owed.insert(live.tenant);
            }
        }
        Some(of)
    }

    /// Whether a queued job must not be served for its age: its tenant would exceed its share, and
    /// a queued job of another tenant fits that tenant's share.
    pub fn defers(&self, round: &RoundState<'_>, waiter: SliceWaiter) -> bool {
        let tenant = round.jobs[waiter.index].tenant;
        !waiter.is_suspended
            && !self.fits(round, waiter.index)
            && self.owed.iter().any(|&owed| owed != tenant)
    }

    fn fits(&self, round: &RoundState<'_>, index: usize) -> bool {
        let tenant = round.jobs[index].tenant as usize;
        self.used[tenant] + f64::from(needs(round, index)) <= self.shares[tenant]
    }
}
