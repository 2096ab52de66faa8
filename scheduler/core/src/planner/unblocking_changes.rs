//! Candidate changes that might let a waiting job start, smallest first.
//!
//! A candidate may name jobs of other tenants only where no user has to act on them. Ending a job
//! is proposed only within the waiting job's tenant.

use super::fixpoint::RoundFixpoint;
use super::free::{Availability, gpus_of};
use super::place;
use super::planned_job::PlannedJob;
use super::queue_order::QueueOrder;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use crate::snapshot::SnapshotNode;
use muster_model::priority::{self, PriorityUser};
use muster_model::tenant::Access;
use muster_model::wait::{Change, Wait};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Maximum number of candidates of one kind.
const TRIED: usize = 4;
/// Maximum number of ends of jobs that are considered.
const ENDS: usize = 16;
/// Ends further in the future are not proposed.
const LONGEST_WAIT_S: f64 = 7.0 * 86_400.0;
/// Share of the time until an expected end by which the end may move without a new proposal.
const MOVED: f64 = 0.25;
/// Change of a time slice's start below which the reported time stays. Slices end when a round
/// finds them expired, so the time is not exact.
const SAME_TURN_MS: i64 = 10_000;

pub(crate) struct UnblockingChanges<'e, 'a> {
    pub round: &'e RoundState<'a>,
    pub fixpoint: &'e RoundFixpoint,
    /// GPUs that are free after the round where the job may run, and not promised.
    pub free_gpus: u32,
}

impl UnblockingChanges<'_, '_> {
    /// Candidates in the order of [`Change::rank`].
    pub(crate) fn of(&self, index: usize, why: &Wait) -> Vec<Change> {
        let live = &self.round.jobs[index];
        let is_never = never_could_start(self.round, live, why);
        let mut candidates = match *why {
            _ if is_never => self.ever(live, why),
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
            Wait::WaitingForGpus { needed_gpus, .. }
            | Wait::TopologyPlacementFailed {
                needed_gpus,
                short: None,
                ..
            } => {
                let missing = needed_gpus.saturating_sub(self.free_gpus).max(1);
                let mut candidates = self.for_turn(live, missing, false);
                candidates.extend(allowances(why));
                candidates.extend(self.for_room(live, needed_gpus));
                candidates
            }
            Wait::WaitingForCpuAndMemory { .. } => self.for_cpu_and_memory(live),
            Wait::ExceedsMaxQuota { .. }
            | Wait::NoMatchingNodes { .. }
            | Wait::ExceedsCluster { .. }
            | Wait::TopologyPlacementFailed { short: Some(_), .. }
            | Wait::NotConsidered
            | Wait::BehindEarlierJobs { .. }
            | Wait::WaitingForJobs { .. }
            | Wait::WaitingForArray { .. }
            | Wait::Suspended
            | Wait::WaitingForPreemptedWorkloads { .. }
            | Wait::BackingOff { .. } => Vec::new(),
        };
        candidates.sort_by_key(|change| change.rank(self.round.now_ms));
        candidates
    }

    /// Candidates that put the job in front of others: time, priority, or the end of another job of
    /// its tenant.
    fn for_turn(&self, live: &PlannedJob<'_>, missing: u32, of_tenant: bool) -> Vec<Change> {
        let mut candidates = self.waits(live, missing, of_tenant);
        candidates.extend(self.priorities(live));
        let mut own: Vec<&PlannedJob<'_>> = self.running().collect();
        own.retain(|other| other.tenant == live.tenant && !other.job.is_cpu_only());
        own.retain(|other| gpus_of(&other.holdings) >= missing);
        own.sort_by_key(|other| (gpus_of(&other.holdings), Reverse(QueueOrder::of(other))));
        candidates.extend(own.into_iter().take(TRIED).map(|other| Change::EndJob {
            job: other.job.id,
            name: other.job.name.clone(),
        }));
        candidates
    }

    /// Candidates for a job without GPUs: ends of jobs of any kind, because all of them hold CPU
    /// and memory.
    fn for_cpu_and_memory(&self, live: &PlannedJob<'_>) -> Vec<Change> {
        let mut candidates: Vec<Change> = self.reported_change(live).into_iter().collect();
        let ends = self.ends(|_| true);
        let counts = (1..=ends.len()).filter(|count| count.is_power_of_two());
        candidates.extend(counts.take(TRIED).map(|count| {
            let ended = ends[..count].iter().map(|(_, other)| other.job.id);
            Change::Wait {
                until_unix_ms: ends[count - 1].0,
                ended: ended.collect(),
            }
        }));
        candidates.extend(self.closed(|_| true));
        candidates.extend(self.priorities(live));
        let mut own: Vec<&PlannedJob<'_>> = self.running().collect();
        own.retain(|other| other.tenant == live.tenant);
        own.sort_by_key(|other| (gpus_of(&other.holdings), Reverse(QueueOrder::of(other))));
        candidates.extend(own.into_iter().take(TRIED).map(|other| Change::EndJob {
            job: other.job.id,
            name: other.job.name.clone(),
        }));
        candidates
    }

    /// The earliest expected ends of running jobs, Unix ms.
    fn ends(&self, is_counted: impl Fn(&PlannedJob<'_>) -> bool) -> Vec<(i64, &PlannedJob<'_>)> {
        let running = self.running().filter(|other| is_counted(other));
        let ends = running.filter_map(|other| Some((self.end_ms(other)?, other)));
        let mut ends: Vec<(i64, &PlannedJob<'_>)> = ends.collect();
        ends.sort_by_key(|&(end_ms, other)| (end_ms, other.job.id));
        ends.truncate(ENDS);
        ends
    }

    fn running(&self) -> impl Iterator<Item = &PlannedJob<'_>> {
        let jobs = self.round.jobs.iter();
        jobs.filter(|live| live.scheduling_state == SchedulingState::Running)
    }

    /// Waits for the earliest expected ends: for as many jobs as together hold the missing GPUs,
    /// then for more.
    fn waits(&self, live: &PlannedJob<'_>, missing: u32, of_tenant: bool) -> Vec<Change> {
        let ends = self.ends(|other| !other.job.is_cpu_only());
        let mut freed = 0;
        let mut candidates: Vec<Change> = self.reported_change(live).into_iter().collect();
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

    /// The wait that the owner sees, while it is still expected. Estimates change with each report,
    /// and a small change is not worth a new message.
    fn reported_change(&self, live: &PlannedJob<'_>) -> Option<Change> {
        let reported = live.job.waiting.as_ref()?.smallest_change.clone()?;
        let Change::Wait {
            until_unix_ms,
            ended,
        } = &reported
        else {
            return None;
        };
        // The start of a time slice is simulated anew in each round.
        if ended.is_empty() {
            return None;
        }
        let mut last_ms = self.round.now_ms;
        for id in ended {
            let other = self.running().find(|other| other.job.id == *id)?;
            last_ms = last_ms.max(self.end_ms(other)?);
        }
        let left_ms = until_unix_ms.saturating_sub(self.round.now_ms);
        let moved_ms = last_ms.saturating_sub(*until_unix_ms).unsigned_abs();
        let is_same = left_ms > 0 && moved_ms as f64 <= MOVED * left_ms as f64;
        is_same.then_some(reported)
    }

    /// Expected end of a running job, Unix ms.
    fn end_ms(&self, live: &PlannedJob<'_>) -> Option<i64> {
        let left_s = live.estimate.time_s(live.size);
        (left_s < LONGEST_WAIT_S).then(|| {
            let left_ms = (left_s * 1000.0).max(0.0) as i64;
            self.round.now_ms.saturating_add(left_ms)
        })
    }

    /// Priorities above those of jobs that hold GPUs or wait, lowest first: for each of these jobs
    /// the next number that the tenant's members may give the job.
    fn priorities(&self, live: &PlannedJob<'_>) -> Vec<Change> {
        let (class, allowed) = self.allowed_priorities(live);
        let others = self.round.jobs.iter();
        let others =
            others.filter(|other| other.scheduling_state.stays() || other.scheduling_state.waits());
        let above: BTreeSet<i32> = others
            .filter(|other| other.priority >= live.priority)
            .filter_map(|other| lowest_from(other.priority.saturating_add(1), &allowed))
            .collect();
        let highest = above.last().copied();
        let lowest = above.into_iter().take(TRIED - 1);
        let tried: BTreeSet<i32> = lowest.chain(highest).collect();
        let raised = tried.into_iter().map(|to| Change::RaisePriority {
            to,
            class: class.map(str::to_owned),
        });
        raised.collect()
    }

    /// Class of the job, and the numbers that the tenant's members may give it; none for a trial,
    /// whose study has its priority. A class that was deleted does not bind the job.
    fn allowed_priorities<'s>(
        &'s self,
        live: &'s PlannedJob<'_>,
    ) -> (Option<&'s str>, Vec<RangeInclusive<i32>>) {
        let snapshot = self.round.snapshot;
        let classes = snapshot.priority_classes.as_slice();
        let class = live.job.priority_class.as_deref();
        let class = class.filter(|name| classes.iter().any(|class| class.name == *name));
        let tenant = snapshot.tenants.get(live.tenant as usize);
        let allowed = match tenant {
            Some(tenant) if live.job.trial.is_none() => {
                let user = PriorityUser {
                    access: Access::Member,
                    tenant: &tenant.name,
                };
                priority::allowed(class, classes, user)
            }
            _ => Vec::new(),
        };
        (class, allowed)
    }

    /// Candidates for a job that could never start. They are derived from the empty cluster, not
    /// from the free resources.
    fn ever(&self, live: &PlannedJob<'_>, why: &Wait) -> Vec<Change> {
        // More nodes like the present ones would be too small as well.
        if matches!(why, Wait::TopologyPlacementFailed { short: Some(_), .. }) {
            return Vec::new();
        }
        let nodes = self.round.empty.iter();
        let nodes = nodes.filter(|node| node.suits(&live.shape));
        let cluster: u32 = nodes.clone().map(|node| node.gpus(Availability::Now)).sum();
        let of_a_task = nodes.map(|node| node.gpus_of_a_task(Availability::Now));
        let largest = of_a_task.max().unwrap_or(0);
        let quota = self.round.quota(live).unwrap_or(u32::MAX);
        let (least, per_worker) = (live.shape.min_gpus(), live.shape.worker.gpus);
        let mut candidates = self.closed(has_gpus);
        candidates.extend(allowances(why));
        candidates.extend(self.fewer_workers(live, cluster.min(quota)));
        let fits = largest.min(quota / live.shape.workers.min.max(1));
        candidates.extend(lower_gpus_per_worker(live, fits));
        if least > quota {
            candidates.push(Change::RaiseQuota {
                by_gpus: least - quota,
            });
        }
        let missing = least.saturating_sub(cluster).max(1);
        let added = BTreeSet::from([missing, per_worker.max(missing), least]).into_iter();
        candidates.extend(added.map(|gpus| Change::AddGpus { gpus }));
        candidates
    }

    /// The largest number of workers below the minimum that fits on the empty cluster and `gpus`
    /// GPUs.
    fn fewer_workers(&self, live: &PlannedJob<'_>, gpus: u32) -> Option<Change> {
        let shape = &live.shape;
        let below = shape.workers.min.saturating_sub(1);
        let most = below.min(gpus / shape.worker.gpus.max(1));
        let sizes: Vec<u32> = (1..=most).filter(|&to| shape.takes(to)).collect();
        // If a number fits, all smaller ones fit.
        let fitting = sizes.partition_point(|&to| {
            let size = (to, shape.ps_shards.min);
            place::find(&self.round.empty, shape, size, Availability::Now).is_some()
        });
        let to = *sizes[..fitting].last()?;
        Some(Change::LowerMinWorkers { to })
    }

    /// Nodes that an administrator can open.
    fn closed(&self, helps: impl Fn(&SnapshotNode) -> bool) -> Vec<Change> {
        let nodes = self.round.snapshot.nodes.iter();
        let closed = nodes.filter(|node| node.up && !node.is_open() && !node.cordoned);
        let closed = closed.filter(|node| helps(node));
        let closed = closed.take(TRIED).map(|node| Change::UncordonNode {
            name: node.name.clone(),
        });
        closed.collect()
    }

    fn for_room(&self, live: &PlannedJob<'_>, needed_gpus: u32) -> Vec<Change> {
        let free = self.fixpoint.free.iter();
        let free = free.filter(|node| node.suits(&live.shape));
        let gaps = free.map(|node| node.gpus_of_a_task(Availability::Now));
        let largest_gap = gaps.max().unwrap_or(0);
        let mut candidates = self.closed(has_gpus);
        candidates.extend(lower_min_workers(live, self.free_gpus));
        candidates.extend(lower_gpus_per_worker(live, largest_gap));
        let missing = needed_gpus.saturating_sub(self.free_gpus).max(1);
        let all = live.shape.min_gpus();
        let added = BTreeSet::from([missing, all]).into_iter();
        candidates.extend(added.map(|gpus| Change::AddGpus { gpus }));
        candidates
    }
}

/// Whether the job could not start even on the empty cluster, and its wait reason says so.
pub(crate) fn never_could_start(round: &RoundState<'_>, live: &PlannedJob<'_>, why: &Wait) -> bool {
    let is_of_room = match why {
        Wait::ExceedsMaxQuota { .. }
        | Wait::NoMatchingNodes { .. }
        | Wait::ExceedsCluster { .. }
        | Wait::TopologyPlacementFailed { .. } => true,
        Wait::NotConsidered
        | Wait::BehindEarlierJobs { .. }
        | Wait::WaitingForJobs { .. }
        | Wait::WaitingForArray { .. }
        | Wait::Suspended
        | Wait::WaitingForQuota { .. }
        | Wait::WaitingForGpus { .. }
        | Wait::WaitingForCpuAndMemory { .. }
        | Wait::WaitingForPreemptedWorkloads { .. }
        | Wait::BackingOff { .. } => false,
    };
    is_of_room && !place::could_ever_run(round, live)
}

/// The wait for a time slice. The reported time is kept while it is close to the simulated one.
pub(crate) fn turn(live: &PlannedJob<'_>, turn_ms: i64) -> Change {
    let waiting = live.job.waiting.as_ref();
    let reported = waiting.and_then(|waiting| match &waiting.smallest_change {
        Some(Change::Wait {
            until_unix_ms,
            ended,
        }) if ended.is_empty() => Some(*until_unix_ms),
        _ => None,
    });
    Change::Wait {
        until_unix_ms: reported
            .filter(|told_ms| turn_ms.saturating_sub(*told_ms).abs() <= SAME_TURN_MS)
            .unwrap_or(turn_ms),
        ended: Vec::new(),
    }
}

/// Inserts the wait for a time slice among the candidates, before larger changes and longer waits.
pub(crate) fn with_turn(mut candidates: Vec<Change>, turn: Change, now_ms: i64) -> Vec<Change> {
    let until_ms = end_of_wait_ms(&turn);
    let at = candidates.iter().position(|change| {
        let is_later = end_of_wait_ms(change).is_some_and(|at_ms| Some(at_ms) > until_ms);
        is_later || change.rank(now_ms) > turn.rank(now_ms)
    });
    candidates.insert(at.unwrap_or(candidates.len()), turn);
    candidates
}

fn end_of_wait_ms(change: &Change) -> Option<i64> {
    match change {
        Change::Wait { until_unix_ms, .. } => Some(*until_unix_ms),
        _ => None,
    }
}

fn has_gpus(node: &SnapshotNode) -> bool {
    node.gpus > 0
}

/// Nodes that the job could allow.
fn allowances(why: &Wait) -> Vec<Change> {
    let forbidden = match why {
        Wait::WaitingForGpus { forbidden, .. }
        | Wait::NoMatchingNodes { forbidden, .. }
        | Wait::ExceedsCluster { forbidden, .. } => forbidden.as_slice(),
        _ => &[],
    };
    let allowed = forbidden.iter().map(|one| Change::AllowNodes {
        constraint: one.by,
        gpu_model: one.gpu_model.clone(),
    });
    allowed.collect()
}

/// The lowest number of the ranges that is not below `least`.
fn lowest_from(least: i32, ranges: &[RangeInclusive<i32>]) -> Option<i32> {
    let reaching = ranges.iter().filter(|range| *range.end() >= least);
    reaching.map(|range| least.max(*range.start())).min()
}

fn lower_min_workers(live: &PlannedJob<'_>, gpus: u32) -> Option<Change> {
    let least = live.shape.workers.min;
    let mut to = (gpus / live.shape.worker.gpus.max(1)).min(least.saturating_sub(1));
    while to > 0 && !live.shape.takes(to) {
        to -= 1;
    }
    (to > 0).then_some(Change::LowerMinWorkers { to })
}

fn lower_gpus_per_worker(live: &PlannedJob<'_>, gpus: u32) -> Option<Change> {
    let to = gpus.min(live.shape.worker.gpus.saturating_sub(1));
    (to > 0).then_some(Change::LowerGpusPerWorker { to })
}
