//! Jobs that share a GPU, and the job for which the GPU counts.

use super::RoundState;
use crate::planner::free::Holding;
use crate::planner::observations::ObservedJob;
use muster_model::id::{JobId, NodeId};
use std::collections::BTreeMap;

/// The second job of each pair, by id.
pub(crate) struct PackedPairs(BTreeMap<JobId, PackedJob>);

/// A job on a shared GPU that counts as the other job's.
pub(crate) struct PackedJob {
    holder: JobId,
    node: NodeId,
    gpus: u64,
}

impl PackedPairs {
    /// A GPU counts as the host's while the host stays, then as the guest's. So it is never given
    /// to a third job while a guest runs on it.
    pub fn of(settled: &[ObservedJob<'_>], now_ms: i64) -> Self {
        let mut holders: BTreeMap<(NodeId, u32), Vec<(u32, usize)>> = BTreeMap::new();
        for (gpu, guest) in on_lanes(settled, |lane| lane > 0) {
            holders.entry(gpu).or_default().push(guest);
        }
        if holders.is_empty() {
            return Self(BTreeMap::new());
        }
        for (gpu, host) in on_lanes(settled, |lane| lane == 0) {
            if let Some(of) = holders.get_mut(&gpu) {
                of.insert(0, host);
            }
        }
        let mut pairs = BTreeMap::new();
        for ((node, gpu), of) in holders {
            let &[(_, host), (_, guest)] = of.as_slice() else {
                continue;
            };
            let (host, guest) = (&settled[host], &settled[guest]);
            let stays = guest.scheduling_state(now_ms).stays();
            let (holder, second) = if !host.scheduling_state(now_ms).stays() && stays {
                (guest, host)
            } else {
                (host, guest)
            };
            let second_of = PackedJob {
                holder: holder.job.id,
                node,
                gpus: 1 << gpu,
            };
            pairs.insert(second.job.id, second_of);
        }
        Self(pairs)
    }

    pub fn second(&self, job: JobId) -> Option<&PackedJob> {
        self.0.get(&job)
    }
}

/// GPUs that tasks in these lanes hold, each with the lane and the place of its job.
fn on_lanes(
    settled: &[ObservedJob<'_>],
    lanes: fn(u32) -> bool,
) -> impl Iterator<Item = ((NodeId, u32), (u32, usize))> {
    settled.iter().enumerate().flat_map(move |(place, one)| {
        let held = one.job.held_tasks();
        let held = held.filter(move |task| task.state.holds_gpus() && lanes(task.lane));
        held.flat_map(move |task| {
            let gpus = task.gpus.iter();
            gpus.map(move |&gpu| ((task.node, gpu), (task.lane, place)))
        })
    })
}

impl PackedJob {
    /// Removes the shared GPU from the job's own holdings.
    pub fn yields(&self, held: &mut [Holding], find: impl Fn(NodeId) -> Option<u32>) {
        let node = find(self.node);
        let there = held.iter_mut().filter(|held| Some(held.node) == node);
        there.for_each(|held| held.gpus &= !self.gpus);
    }
}

impl RoundState<'_> {
    /// Links hosts and guests and charges quotas, once all jobs are known. A tenant pays once for
    /// each GPU that any of its jobs uses.
    pub(super) fn join(&mut self, pairs: &PackedPairs) {
        if pairs.0.is_empty() {
            return;
        }
        let ids = self.jobs.iter().map(|live| live.job.id);
        let places: BTreeMap<JobId, usize> = ids.zip(0..).collect();
        for (job, second) in &pairs.0 {
            let (index, holder) = (places[job], places[&second.holder]);
            let pays = u32::from(self.jobs[index].tenant != self.jobs[holder].tenant);
            let live = &mut self.jobs[index];
            live.shared = pays;
            self.held[live.tenant as usize] += pays;
            if !live.scheduling_state.stays() {
                continue;
            }
            live.host = Some(holder);
            if let Some(&node) = live.places.first() {
                *self.inherited.entry(node).or_default() |= second.gpus;
            }
            self.jobs[holder].guest = Some(index);
        }
    }

    /// Ends the pairing of a guest. The GPU is then free once the last of both has left. In a
    /// trial, which is undone, the GPU counts as held.
    pub(crate) fn unpair(&mut self, guest: usize) {
        if self.journal.is_some() {
            return;
        }
        let live = &mut self.jobs[guest];
        let Some(host) = live.host.take() else {
            return;
        };
        if let Some((node, gpu)) = live.seat()
            && let Some(gpus) = self.inherited.get_mut(&node)
        {
            *gpus &= !(1 << gpu);
        }
        self.jobs[host].guest = None;
    }
}
