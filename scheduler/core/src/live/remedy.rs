//! Changes that might let a waiting job start, the smallest first: what is worth a trial.
//!
//! Others' jobs are named only where nobody is asked to do anything to them: to end a job is proposed within its own tenant.

use super::free::When;
use super::pass::Rest;
use super::standing::{Standing, Turn, gpus_of};
use super::world::{LiveJob, World};
use muster_model::wait::{Change, Wait};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Of changes of one kind so many are tried.
const TRIED: usize = 4;
/// Jobs whose ends are waited for.
const ENDS: usize = 16;
/// What is further off is no answer.
const LONGEST_WAIT_S: f64 = 7.0 * 86_400.0;
/// An expected end that moves by less than this share of the time until then is no news.
const MOVED: f64 = 0.25;
/// The highest priority that a job may have.
const HIGHEST: i32 = 100;

pub(crate) struct Remedies<'e, 'a> {
    pub world: &'e World<'a>,
    pub rest: &'e Rest,
    /// Free after the round and promised to nobody.
    pub free_gpus: u32,
}

impl Remedies<'_, '_> {
    /// In the order of [`Change::rank`].
    pub(crate) fn of(&self, index: usize, why: &Wait) -> Vec<Change> {
        let live = &self.world.jobs[index];
        let mut candidates = match *why {
            Wait::WaitingForQuota {
                needed_gpus,
                used_gpus,
                quota_gpus,
            } => {
                let missing = (needed_gpus + used_gpus).saturating_sub(quota_gpus);
                let mut candidates = self.for_turn(live, missing, true);
                candidates.push(Change::RaiseQuota { by_gpus: missing });
                let left = quota_gpus.saturating_sub(used_gpus);
                candidates.extend(lower_min_workers(live, left));
                candidates
            }
            Wait::ExceedsMaxQuota {
                needed_gpus,
                quota_gpus,
            } => {
                let per_worker = quota_gpus / live.shape.workers.min.max(1);
                let mut candidates: Vec<Change> =
                    lower_min_workers(live, quota_gpus).into_iter().collect();
                candidates.extend(lower_gpus_per_worker(live, per_worker));
                candidates.push(Change::RaiseQuota {
                    by_gpus: needed_gpus - quota_gpus,
                });
                candidates
            }
            Wait::WaitingForGpus { needed_gpus, .. }
            | Wait::TopologyPlacementFailed {
                needed_gpus,
                short: None,
                ..
            } => {
                let missing = needed_gpus.saturating_sub(self.free_gpus).max(1);
                let mut candidates = self.for_turn(live, missing, false);
                candidates.extend(self.for_room(live, needed_gpus));
                candidates
            }
            Wait::NoMatchingNodes {
                needed_gpus_per_worker: needed_gpus,
                ..
            }
            | Wait::ExceedsCluster { needed_gpus, .. } => self.for_room(live, needed_gpus),
            // More nodes like those that are there are too small as well.
            Wait::TopologyPlacementFailed { short: Some(_), .. }
            | Wait::NotConsidered
            | Wait::Suspended
            | Wait::WaitingForPreemptedWorkloads { .. }
            | Wait::BackingOff { .. } => Vec::new(),
        };
        candidates.sort_by_key(|change| change.rank(self.world.now_ms));
        candidates
    }

    /// What would make it the job's turn: time, a priority, or another job of its tenant out of the way.
    fn for_turn(&self, live: &LiveJob<'_>, missing: u32, of_tenant: bool) -> Vec<Change> {
        let mut candidates = self.waits(live, missing, of_tenant);
        candidates.extend(self.priorities(live));
        let mut own: Vec<&LiveJob<'_>> = self.running().collect();
        own.retain(|other| other.tenant == live.tenant && gpus_of(&other.holdings) >= missing);
        own.sort_by_key(|other| (gpus_of(&other.holdings), Reverse(Turn::of(other))));
        candidates.extend(own.into_iter().take(TRIED).map(|other| Change::EndJob {
            job: other.job.id,
            name: other.job.name.clone(),
        }));
        candidates
    }

    fn running(&self) -> impl Iterator<Item = &LiveJob<'_>> {
        let jobs = self.world.jobs.iter();
        jobs.filter(|live| live.standing == Standing::Running)
    }

    /// Until those have ended who end first: as many as together hold what is missing, then some more.
    fn waits(&self, live: &LiveJob<'_>, missing: u32, of_tenant: bool) -> Vec<Change> {
        let mut ends: Vec<(i64, &LiveJob<'_>)> = self
            .running()
            .filter_map(|other| Some((self.end_ms(other)?, other)))
            .collect();
        ends.sort_by_key(|&(end_ms, other)| (end_ms, other.job.id));
        ends.truncate(ENDS);
        let mut freed = 0;
        let mut candidates: Vec<Change> = self.told(live).into_iter().collect();
        for (count, &(until_unix_ms, other)) in (1..).zip(&ends) {
            if !of_tenant || other.tenant == live.tenant {
                freed += gpus_of(&other.holdings);
            }
            if freed >= missing && candidates.len() < TRIED {
                let ended = ends[..count].iter().map(|(_, other)| other.job.id);
                candidates.push(Change::Wait {
                    until_unix_ms,
                    ended: ended.collect(),
                });
            }
        }
        candidates
    }

    /// What it was told to wait for, while that is still what is expected: an estimate moves with every report, and a new minute is
    /// no news.
    fn told(&self, live: &LiveJob<'_>) -> Option<Change> {
        let told = live.job.waiting.as_ref()?.smallest_change.clone()?;
        let Change::Wait {
            until_unix_ms,
            ended,
        } = &told
        else {
            return None;
        };
        let mut last_ms = self.world.now_ms;
        for id in ended {
            let other = self.running().find(|other| other.job.id == *id)?;
            last_ms = last_ms.max(self.end_ms(other)?);
        }
        let left_ms = until_unix_ms.saturating_sub(self.world.now_ms);
        let moved_ms = last_ms.saturating_sub(*until_unix_ms).unsigned_abs();
        let is_same = left_ms > 0 && moved_ms as f64 <= MOVED * left_ms as f64;
        is_same.then_some(told)
    }

    /// When a running job is expected to end.
    fn end_ms(&self, live: &LiveJob<'_>) -> Option<i64> {
        let left_s = live.estimate.time_s(live.size);
        (left_s < LONGEST_WAIT_S).then(|| {
            let left_ms = (left_s * 1000.0).max(0.0) as i64;
            self.world.now_ms.saturating_add(left_ms)
        })
    }

    /// Just above those that hold GPUs or wait in front, the lowest first.
    fn priorities(&self, live: &LiveJob<'_>) -> Vec<Change> {
        let others = self.world.jobs.iter();
        let others = others.filter(|other| other.standing.stays() || other.standing.waits());
        let above: BTreeSet<i32> = others
            .map(|other| other.priority.saturating_add(1))
            .filter(|&to| to > live.priority && to <= HIGHEST)
            .collect();
        let highest = above.last().copied();
        let lowest = above.into_iter().take(TRIED - 1);
        let tried: BTreeSet<i32> = lowest.chain(highest).collect();
        tried
            .into_iter()
            .map(|to| Change::RaisePriority { to })
            .collect()
    }

    fn for_room(&self, live: &LiveJob<'_>, needed_gpus: u32) -> Vec<Change> {
        let free = self.rest.free.iter();
        let gaps = free.map(|node| node.gpus_of_a_task(When::Now));
        let largest_gap = gaps.max().unwrap_or(0);
        let drained = self.world.snapshot.nodes.iter();
        let drained =
            drained.filter(|node| node.up && !node.is_open() && !node.cordoned && node.gpus > 0);
        let mut candidates: Vec<Change> = drained
            .take(TRIED)
            .map(|node| Change::UncordonNode {
                name: node.name.clone(),
            })
            .collect();
        candidates.extend(lower_min_workers(live, self.free_gpus));
        candidates.extend(lower_gpus_per_worker(live, largest_gap));
        let missing = needed_gpus.saturating_sub(self.free_gpus).max(1);
        let all = live.shape.min_gpus();
        let added = BTreeSet::from([missing, all]).into_iter();
        candidates.extend(added.map(|gpus| Change::AddGpus { gpus }));
        candidates
    }
}

fn lower_min_workers(live: &LiveJob<'_>, gpus: u32) -> Option<Change> {
    let least = live.shape.workers.min;
    let mut to = (gpus / live.shape.worker.gpus.max(1)).min(least.saturating_sub(1));
    while to > 0 && !live.shape.takes(to) {
        to -= 1;
    }
    (to > 0).then_some(Change::LowerMinWorkers { to })
}

fn lower_gpus_per_worker(live: &LiveJob<'_>, gpus: u32) -> Option<Change> {
    let to = gpus.min(live.shape.worker.gpus.saturating_sub(1));
    (to > 0).then_some(Change::LowerGpusPerWorker { to })
}
