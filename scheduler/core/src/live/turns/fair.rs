//! Fairness between tenants among queued jobs that wait for their first time slice.
//!
//! The line of waiters is in the order of waiting time. A tenant with a long queue would therefore
//! hold up every other tenant until its whole queue had run. So the places of queued jobs in the
//! line go to the tenants by what they already use of their shares. Within a tenant the longest
//! wait comes first.

use super::{Waiter, count, home, needs, quota_has_room};
use crate::live::standing::Standing;
use crate::live::world::World;
use crate::policies::tenant_share;
use std::collections::{BTreeMap, VecDeque};

/// What each tenant uses of its share, in GPUs.
pub(super) struct Shares {
    shares: Vec<f64>,
    /// GPUs that running jobs hold and that suspended jobs resume on.
    used: Vec<f64>,
}

impl Shares {
    /// Returns `None` if fewer than two tenants have jobs.
    pub fn of(world: &World<'_>) -> Option<Self> {
        let tenants = &world.problem.tenants;
        let of_jobs = world.jobs.iter().map(|live| live.tenant);
        let shares = tenant_share::of(tenants, of_jobs, world.problem.gpus())?;
        let mut used: Vec<f64> = world.held.iter().copied().map(f64::from).collect();
        for (index, live) in world.jobs.iter().enumerate() {
            if live.standing == Standing::Suspended {
                used[live.tenant as usize] += f64::from(count(&home(world, index)));
            }
        }
        Some(Self { shares, used })
    }

    /// Part of the tenant's share that is used once it gets `gpus` more.
    fn part(&self, tenant: u32, gpus: u32) -> f64 {
        let tenant = tenant as usize;
        (self.used[tenant] + f64::from(gpus)) / self.shares[tenant].max(1e-12)
    }

    fn fits(&self, tenant: u32, gpus: u32) -> bool {
        self.part(tenant, gpus) <= 1.0
    }

    /// Gives the places of queued jobs in `line` to the tenants, least used part of the share
    /// first.
    pub fn order(mut self, world: &World<'_>, line: &mut [Waiter]) {
        let tenant = |waiter: &Waiter| world.jobs[waiter.index].tenant;
        let mut queues: BTreeMap<u32, VecDeque<Waiter>> = BTreeMap::new();
        for waiter in line.iter().filter(|waiter| !waiter.stands) {
            queues.entry(tenant(waiter)).or_default().push_back(*waiter);
        }
        if queues.len() < 2 {
            return;
        }
        for place in line.iter_mut().filter(|waiter| !waiter.stands) {
            let heads = queues
                .iter()
                .filter_map(|(of, queue)| Some((*of, queue.front()?)));
            let next = heads.min_by(|(one, a), (other, b)| {
                let a_part = self.part(*one, needs(world, a.index));
                let b_part = self.part(*other, needs(world, b.index));
                a_part.total_cmp(&b_part).then(a.cmp(b))
            });
            let of = next.map(|(of, _)| of).expect("as many waiters as places");
            let waiter = queues.get_mut(&of).and_then(VecDeque::pop_front);
            *place = waiter.expect("its head was chosen");
            self.used[of as usize] += f64::from(needs(world, place.index));
        }
    }
}

/// Whether a queued job must leave the free GPUs to the policy.
///
/// That is so if its tenant would exceed its share, and a queued job of another tenant fits that
/// tenant's share. The policy serves that tenant first.
pub(super) fn defers(world: &World<'_>, line: &[Waiter], index: usize) -> bool {
    let Some(shares) = Shares::of(world) else {
        return false;
    };
    let tenant = world.jobs[index].tenant;
    if shares.fits(tenant, needs(world, index)) {
        return false;
    }
    let queued = |waiter: &&Waiter| world.jobs[waiter.index].standing == Standing::Queued;
    line.iter().filter(queued).any(|waiter| {
        let (of, gpus) = (world.jobs[waiter.index].tenant, needs(world, waiter.index));
        of != tenant && shares.fits(of, gpus) && quota_has_room(world, waiter.index, gpus)
    })
}
