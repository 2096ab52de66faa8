//! After the policy: jobs whose time slice has expired make room for waiting jobs.

use super::fair_share::TenantShares;
use super::{
    CONSIDERED, SliceWaiter, could_run, each, needs, overlaps, queued, suspended_by_gpu,
    suspended_waiters, vacate,
};
use crate::plan::Action;
use crate::planner::fixpoint::RoundFixpoint;
use crate::planner::free::{Availability, FreeNode, NodeGpuMasks};
use crate::planner::gang;
use crate::planner::gpu_memory::GpuMemory;
use crate::planner::observations::is_whole;
use crate::planner::place;
use crate::planner::planned_job::PlannedJob;
use crate::planner::round_state::RoundState;
use crate::planner::scheduling_state::SchedulingState;
use crate::policy::Slicing;
use muster_model::job::Intent;
use std::collections::{BTreeMap, BTreeSet};

/// Shortest slice relative to the quantum, for any weight: suspensions must cost little compared
/// with the time between them.
const SHORTEST: f64 = 1.0 / 8.0;

/// Suspends jobs whose time slice has expired, for waiting jobs.
pub(crate) fn after_policy(round: &mut RoundState<'_>, fixpoint: &RoundFixpoint) {
    if let Some(slicing) = round.policy.slicing {
        SliceRotation::new(round, fixpoint, slicing).rotate();
    }
}

/// One rotation: which jobs are suspended for which.
struct SliceRotation<'w, 'a, 'r> {
    round: &'w mut RoundState<'a>,
    fixpoint: &'r RoundFixpoint,
    slicing: Slicing,
    /// Free and unpromised resources, plus those of jobs suspended in this round.
    free: Vec<FreeNode>,
    /// Number of suspended jobs, or jobs about to be suspended, by node and GPU.
    idle: BTreeMap<(u32, u32), u32>,
    /// GPU memory that suspended programs keep.
    memory: GpuMemory,
    weights: SliceWeights,
    /// Jobs that keep their GPUs after their slice, until the first waiter that could not be served
    /// can get all of its GPUs at once.
    awaited: Option<BTreeSet<usize>>,
}

impl<'w, 'a, 'r> SliceRotation<'w, 'a, 'r> {
    fn new(round: &'w mut RoundState<'a>, fixpoint: &'r RoundFixpoint, slicing: Slicing) -> Self {
        let idle = suspended_by_gpu(round);
        Self {
            weights: SliceWeights::of(round),
            memory: GpuMemory::of(round),
            free: fixpoint.free.clone(),
            round,
            fixpoint,
            slicing,
            idle,
            awaited: None,
        }
    }

    fn rotate(&mut self) {
        let mut line = queued(self.round, self.slicing);
        line.retain(|waiter| !self.is_served(waiter.index));
        line.extend(suspended_waiters(self.round));
        line.sort_unstable();
        if let Some(shares) = TenantShares::of(self.round, &line) {
            line.retain(|waiter| !shares.defers(self.round, *waiter));
        }
        let mut running = self.expired();
        let lent = self.lent(&running);
        let yielding: Vec<usize> = lent.iter().chain(&running).copied().collect();
        // A waiter that does not fit its tenant's quota, even without all jobs in `yielding`,
        // delays no other waiter.
        line.retain(|waiter| self.quota_has_room(waiter.index, &yielding));
        line.truncate(CONSIDERED);
        if line.is_empty() {
            return;
        }
        if let Some((_, kept)) = &self.round.reserved {
            for (node, gpus) in kept {
                self.free[*node as usize].now |= gpus;
            }
        }
        // Lent GPUs belong to the reservation of the first waiter that is due.
        let owner = line.iter().position(|waiter| self.is_due(*waiter));
        for (place, waiter) in line.into_iter().enumerate() {
            let expired = if owner == Some(place) {
                let there = yielding.iter().copied();
                there
                    .filter(|index| running.contains(index) || lent.contains(index))
                    .collect()
            } else {
                running.clone()
            };
            let victims = match self.round.jobs[waiter.index].scheduling_state {
                SchedulingState::Suspended => self.victims_at_home(waiter.index, &expired),
                _ => self.victims_for_newcomer(waiter, &expired),
            };
            for &victim in &victims {
                self.suspend_for(victim, waiter.index);
            }
            let awaited = self.awaited.as_ref();
            running.retain(|index| {
                !victims.contains(index) && awaited.is_none_or(|awaited| !awaited.contains(index))
            });
        }
    }

    /// Protects the GPUs of the first waiter that cannot be served yet, until all of them can be
    /// vacated at once. [`before_policy`] reserves those that become free, so a suspension there
    /// for another waiter would not give it a GPU.
    ///
    /// [`before_policy`]: super::before_policy()
    fn await_all(&mut self, gpus: &NodeGpuMasks) {
        if self.awaited.is_some() {
            return;
        }
        let jobs = self.round.jobs.iter().enumerate();
        let there = jobs.filter(|(_, live)| overlaps(live, gpus));
        self.awaited = Some(there.map(|(index, _)| index).collect());
        for (&node, gpus) in gpus {
            self.free[node as usize].now &= !gpus;
        }
    }

    /// Whether the job is already promised GPUs of stopping tasks.
    fn is_served(&self, index: usize) -> bool {
        let member = self.round.jobs[index].member;
        member.is_none_or(|member| self.fixpoint.promised.contains_key(&member))
    }

    /// Whether GPUs may be reserved for a waiter: it is suspended, or has waited for a quantum.
    fn is_due(&self, waiter: SliceWaiter) -> bool {
        let waited_ms = self.round.now_ms.saturating_sub(waiter.since_ms);
        waiter.is_suspended || waited_ms >= ms(self.slicing.quantum_ms)
    }

    /// Jobs that can be suspended.
    fn movable(&self) -> impl Iterator<Item = (usize, &PlannedJob<'a>)> {
        let jobs = self.round.jobs.iter().enumerate();
        jobs.filter(|(_, live)| live.scheduling_state == SchedulingState::Running)
            // A job that comes up in this round begins its slice now.
            .filter(|(_, live)| live.actions.is_empty())
            .filter(|(_, live)| is_whole(live.job) && live.job.takes_turns())
            .filter(|(_, live)| live.job.has_run_long_enough(self.round.now_ms))
            // A host is not suspended in the round in which it gets a guest. A guest's slice ends
            // with its host's too.
            .filter(|(_, live)| !self.has_just_met(live))
    }

    /// Jobs on lent GPUs, except those in `expired`.
    fn lent(&self, expired: &[usize]) -> Vec<usize> {
        let lent = self.movable().filter(|(_, live)| live.job.lent);
        let lent = lent.map(|(index, _)| index);
        lent.filter(|index| !expired.contains(index)).collect()
    }

    /// Running jobs whose slice has expired, longest slice first.
    fn expired(&self) -> Vec<usize> {
        let round = &*self.round;
        let mut expired: Vec<(i64, usize)> = self
            .movable()
            .map(|(index, live)| (live.job.slice_began_ms(), index))
            .filter(|&(since_ms, index)| {
                let slice_ms = self
                    .weights
                    .slice_ms(round, &round.jobs[index], self.slicing);
                round.now_ms.saturating_sub(since_ms) >= slice_ms
            })
            .collect();
        expired.sort_unstable();
        expired.into_iter().map(|(_, index)| index).collect()
    }

    fn has_just_met(&self, live: &PlannedJob<'_>) -> bool {
        let guest = live.guest.map(|guest| &self.round.jobs[guest]);
        guest.is_some_and(|guest| !guest.actions.is_empty())
    }

    /// Jobs that hold GPUs of a suspended job, if the slices of all of them have expired; otherwise
    /// none.
    fn victims_at_home(&mut self, index: usize, expired: &[usize]) -> Vec<usize> {
        let home = self.round.jobs[index].home();
        let blockers: Vec<usize> = (0..self.round.jobs.len())
            .filter(|&other| other != index && overlaps(&self.round.jobs[other], &home))
            .collect();
        let Some(guests) = self.guests_for_quota(index, &blockers, expired) else {
            return Vec::new();
        };
        // The job trades places with them, so it no longer counts as suspended there.
        self.uncount_suspended(&home);
        let are_ready = blockers
            .iter()
            .all(|other| expired.contains(other) && self.may_replace(index, *other));
        if !are_ready {
            self.count_suspended(&home);
            // A blocker without time slices would have to be awaited for ever.
            if blockers
                .iter()
                .all(|&other| self.round.jobs[other].job.takes_turns())
            {
                self.await_all(&home);
            }
            return Vec::new();
        }
        for (node, gpus) in home {
            self.free[node as usize].now &= !gpus;
        }
        blockers.into_iter().chain(guests).collect()
    }

    /// Jobs to suspend so that the smallest gang of a queued job fits, longest slice first. Jobs
    /// that turn out not to be needed are left out.
    fn victims_for_newcomer(&mut self, waiter: SliceWaiter, expired: &[usize]) -> Vec<usize> {
        let index = waiter.index;
        let shape = self.round.jobs[index].shape.clone();
        let considered = 4 * shape.min_gpus() as usize + 16;
        // A guest frees no GPU.
        let jobs = &self.round.jobs;
        let mut movable: Vec<usize> = expired
            .iter()
            .copied()
            .filter(|&victim| jobs[victim].host.is_none() && self.has_lane(victim))
            .filter(|&victim| self.fits_after(index, victim))
            .collect();
        if !self.quota_has_room(index, &[]) {
            // Only jobs of the same tenant free its quota.
            movable.sort_by_key(|&victim| jobs[victim].tenant != jobs[index].tenant);
        }
        let oldest = &movable[..considered.min(movable.len())];
        let found = self.make_room(index, oldest).or_else(|| {
            // A wide worker needs GPUs of one node, and the jobs with the longest slices may be on
            // several.
            let places = self.places(index, &movable)?;
            let there = movable.iter().copied();
            let there = there.filter(|&victim| overlaps(&self.round.jobs[victim], &places));
            self.make_room(index, &there.collect::<Vec<_>>())
        });
        let Some((mut victims, free)) = found else {
            if self.awaited.is_none() && self.is_due(waiter) {
                let running: Vec<usize> = (0..self.round.jobs.len())
                    .filter(|&other| {
                        self.round.jobs[other].scheduling_state == SchedulingState::Running
                    })
                    .filter(|&other| takes_part(&self.round.jobs[other]))
                    .filter(|&other| self.has_lane(other) && self.fits_after(index, other))
                    .collect();
                let places = self.places(index, &running);
                places.iter().for_each(|places| self.await_all(places));
            }
            return Vec::new();
        };
        let Some(guests) = self.guests_for_quota(index, &victims, expired) else {
            return Vec::new();
        };
        victims.extend(guests);
        self.free = free;
        victims
    }

    /// GPUs that the smallest gang of a job would use if all of `victims` were suspended; `None` if
    /// it would not fit even then.
    fn places(&self, index: usize, victims: &[usize]) -> Option<NodeGpuMasks> {
        let shape = self.round.jobs[index].shape.clone();
        let mut free = self.free_for(index);
        for &victim in victims {
            vacate(&mut free, &self.round.jobs[victim]);
        }
        let least = (shape.workers.min, shape.ps_shards.min);
        let mut places = NodeGpuMasks::new();
        for share in place::find(&free, &shape, least, Availability::Later)? {
            let wanted = share.workers * shape.worker.gpus;
            *places.entry(share.node).or_default() |=
                free[share.node as usize].take_gpus(wanted, Availability::Later);
        }
        Some(places)
    }

    /// The first candidates without which the smallest gang of a job does not fit. It also returns
    /// the free resources after these have left and the gang is placed.
    fn make_room(&self, index: usize, candidates: &[usize]) -> Option<(Vec<usize>, Vec<FreeNode>)> {
        let shape = self.round.jobs[index].shape.clone();
        let least = (shape.workers.min, shape.ps_shards.min);
        let mut victims = Vec::new();
        let mut free = self.free_for(index);
        let mut found = place::find(&free, &shape, least, Availability::Later);
        for &victim in candidates {
            if found.is_some() {
                break;
            }
            vacate(&mut free, &self.round.jobs[victim]);
            victims.push(victim);
            found = place::find(&free, &shape, least, Availability::Later);
        }
        let mut shares = found?;
        for victim in victims.clone() {
            let others: Vec<usize> = victims
                .iter()
                .copied()
                .filter(|&one| one != victim)
                .collect();
            let mut without = self.free_for(index);
            for &other in &others {
                vacate(&mut without, &self.round.jobs[other]);
            }
            if let Some(fewer) = place::find(&without, &shape, least, Availability::Later) {
                (victims, free, shares) = (others, without, fewer);
            }
        }
        gang::take(&mut free, &shape, &shares, Availability::Later);
        Some((victims, free))
    }

    /// Free resources for a queued job: GPUs on which it does not fit beside suspended programs are
    /// withheld.
    fn free_for(&self, index: usize) -> Vec<FreeNode> {
        let mut free = self.free.clone();
        let job = self.round.jobs[index].job;
        self.memory.admit(&mut free, self.round.snapshot, job);
        free
    }

    /// Whether a queued job fits on the GPUs of a victim once that is suspended there.
    fn fits_after(&self, index: usize, victim: usize) -> bool {
        let jobs = &self.round.jobs;
        self.memory
            .fits_after(self.round, jobs[index].job, &jobs[victim])
    }

    /// Whether a running job can be suspended so that a job that is suspended on its GPUs resumes.
    fn may_replace(&self, index: usize, blocker: usize) -> bool {
        let jobs = &self.round.jobs;
        let (job, other) = (jobs[index].job, &jobs[blocker]);
        self.has_lane(blocker) && self.memory.may_return(self.round, job, other)
    }

    /// Whether one more job may be suspended on each of its GPUs: suspended jobs keep memory.
    fn has_lane(&self, index: usize) -> bool {
        // Its guest would be suspended there too.
        let guests = u32::from(self.round.jobs[index].guest.is_some());
        each(&self.round.jobs[index].home()).all(|gpu| {
            let idle = self.idle.get(&gpu).copied().unwrap_or(0);
            idle + guests < self.slicing.suspended_per_gpu
        })
    }

    fn quota_has_room(&self, index: usize, victims: &[usize]) -> bool {
        let jobs = &self.round.jobs;
        let live = &jobs[index];
        let Some(quota) = self.round.quota(live) else {
            return true;
        };
        // A guest leaves with its host.
        let guests = victims.iter().filter_map(|&victim| jobs[victim].guest);
        let guests = guests.filter(|guest| !victims.contains(guest));
        let leave: u32 = victims
            .iter()
            .copied()
            .chain(guests)
            .map(|one| &jobs[one])
            .filter(|one| one.tenant == live.tenant)
            .map(PlannedJob::charged)
            .sum();
        let held = self.round.held[live.tenant as usize].saturating_sub(leave);
        held.saturating_add(needs(self.round, index)) <= quota
    }

    /// Guests of the waiter's tenant that must be suspended, in addition to `victims`, so that the
    /// quota has room. A guest occupies no GPU that a waiter needs, so without this rule the
    /// tenant's waiting jobs would wait for its end. `None` if all such guests are not enough.
    fn guests_for_quota(
        &self,
        index: usize,
        victims: &[usize],
        expired: &[usize],
    ) -> Option<Vec<usize>> {
        let tenant = self.round.jobs[index].tenant;
        let mut all = victims.to_vec();
        for &guest in expired {
            if self.quota_has_room(index, &all) {
                break;
            }
            let live = &self.round.jobs[guest];
            let Some(host) = live.host else { continue };
            if live.tenant == tenant
                && live.shared > 0
                && !all.contains(&host)
                && self.has_lane(guest)
            {
                all.push(guest);
            }
        }
        self.quota_has_room(index, &all)
            .then(|| all.split_off(victims.len()))
    }

    fn count_suspended(&mut self, home: &NodeGpuMasks) {
        for gpu in each(home) {
            *self.idle.entry(gpu).or_default() += 1;
        }
    }

    fn uncount_suspended(&mut self, home: &NodeGpuMasks) {
        for gpu in each(home) {
            self.idle.entry(gpu).and_modify(|count| *count -= 1);
        }
    }

    fn suspend_for(&mut self, index: usize, waiter: usize) {
        let home = self.round.jobs[index].home();
        self.count_suspended(&home);
        let job = self.round.jobs[index].job;
        self.memory.add(self.round.snapshot, job, &home);
        let (live, other) = (&self.round.jobs[index], &self.round.jobs[waiter]);
        let whose = other.named_to(live.tenant);
        let why = format!("its time slice has expired; replaced by {whose}");
        self.round.remember(index);
        self.round.unpair(index);
        let now_ms = self.round.now_ms;
        self.round.jobs[index].take(Action::Suspend { why }, now_ms);
    }
}

/// Whether the job's intent is to run and it may be suspended for others.
fn takes_part(live: &PlannedJob<'_>) -> bool {
    let is_there = matches!(
        live.scheduling_state,
        SchedulingState::Running | SchedulingState::Suspended | SchedulingState::Queued
    );
    is_there && live.job.takes_turns() && live.job.intent == Intent::Run
}

/// Weights that determine the lengths of time slices.
struct SliceWeights {
    /// Number of time-sliced jobs of each tenant, which share its weight.
    taking_turns: Vec<u32>,
    /// Largest weight of any of these jobs.
    heaviest: f64,
}

impl SliceWeights {
    fn of(round: &RoundState<'_>) -> Self {
        let mut weights = Self {
            taking_turns: vec![0; round.problem.tenants.len()],
            heaviest: f64::MIN_POSITIVE,
        };
        let members: Vec<&PlannedJob<'_>> = round
            .jobs
            .iter()
            .enumerate()
            .filter(|(index, live)| takes_part(live) && could_run(round, *index))
            .map(|(_, live)| live)
            .collect();
        for live in &members {
            weights.taking_turns[live.tenant as usize] += 1;
        }
        let all = members.iter().map(|live| weights.weight(round, live));
        weights.heaviest = all.fold(f64::MIN_POSITIVE, f64::max);
        weights
    }

    /// Weight of a job: its part of its tenant's weight, doubled for every 25 of priority. So a
    /// tenant gets no more time by having more jobs.
    fn weight(&self, round: &RoundState<'_>, live: &PlannedJob<'_>) -> f64 {
        let tenant = live.tenant as usize;
        let part =
            round.problem.tenants[tenant].weight / f64::from(self.taking_turns[tenant].max(1));
        part * (f64::from(live.priority) / 25.0).exp2()
    }

    /// Slice of a job in milliseconds. The job with the largest weight has the whole quantum, and
    /// others have less in proportion. So no slice exceeds one quantum, except where the job's
    /// document states a longer `min_runtime`.
    fn slice_ms(&self, round: &RoundState<'_>, live: &PlannedJob<'_>, slicing: Slicing) -> i64 {
        let share = (self.weight(round, live) / self.heaviest).clamp(SHORTEST, 1.0);
        let slice_ms = (ms(slicing.quantum_ms) as f64 * share) as i64;
        slice_ms.max(live.job.min_runtime_ms())
    }

    /// End of the present slice of a running job, Unix ms; `i64::MAX` if it has no slices.
    fn ends_ms(&self, round: &RoundState<'_>, live: &PlannedJob<'_>, slicing: Slicing) -> i64 {
        if !live.job.takes_turns() {
            return i64::MAX;
        }
        let slice_ms = self.slice_ms(round, live, slicing);
        live.job.slice_began_ms().saturating_add(slice_ms)
    }
}

/// Milliseconds until the slice of the first waiter in line can begin at the earliest, if no job
/// ends. Lent GPUs are returned by then.
pub(super) fn loan_ms(round: &RoundState<'_>, slicing: Slicing, index: usize) -> i64 {
    let weights = SliceWeights::of(round);
    let ends: Vec<(i64, &PlannedJob<'_>)> = round
        .jobs
        .iter()
        .filter(|live| live.scheduling_state.stays() && live.host.is_none() && !live.job.lent)
        .map(|live| (weights.ends_ms(round, live, slicing), live))
        .collect();
    let begins_ms = match round.jobs[index].scheduling_state {
        SchedulingState::Suspended => {
            let home = round.jobs[index].home();
            let there = ends.into_iter().filter(|(_, live)| overlaps(live, &home));
            there
                .map(|(ends_ms, _)| ends_ms)
                .max()
                .unwrap_or(round.now_ms)
        }
        _ => fits_after(round, index, ends),
    };
    begins_ms.saturating_sub(round.now_ms)
}

/// Time of the first of these slice ends after which the smallest gang of a job fits, if all lent
/// GPUs are returned too. Unix ms; `i64::MAX` if it never fits.
fn fits_after(round: &RoundState<'_>, index: usize, mut ends: Vec<(i64, &PlannedJob<'_>)>) -> i64 {
    ends.sort_by_key(|(ends_ms, live)| (*ends_ms, live.job.id));
    let shape = round.jobs[index].shape.clone();
    let least = (shape.workers.min, shape.ps_shards.min);
    let mut free = round.free.clone();
    for (node, gpus) in round.reserved.iter().flat_map(|(_, kept)| kept) {
        free[*node as usize].now |= gpus;
    }
    let lent = round.jobs.iter().filter(|live| live.job.lent);
    lent.for_each(|live| vacate(&mut free, live));
    let counts: Vec<usize> = (0..=ends.len()).collect();
    let count = counts.partition_point(|&count| {
        let mut free = free.clone();
        let gone = ends[..count].iter();
        gone.for_each(|(_, live)| vacate(&mut free, live));
        place::find(&free, &shape, least, Availability::Later).is_none()
    });
    match count.checked_sub(1) {
        None => round.now_ms,
        Some(last) => ends.get(last).map_or(i64::MAX, |(ends_ms, _)| *ends_ms),
    }
}

/// Shortest slice and shortest loan, in milliseconds.
pub(super) fn shortest_ms(slicing: Slicing) -> i64 {
    (ms(slicing.quantum_ms) as f64 * SHORTEST) as i64
}

/// Next time at which a slice expires, or at which a queued job has waited for a quantum and may
/// start. Unix ms.
pub(super) fn next_ms(round: &RoundState<'_>) -> Option<i64> {
    let slicing = round.policy.slicing?;
    let weights = SliceWeights::of(round);
    let running = round.jobs.iter();
    let running = running
        .filter(|live| live.scheduling_state == SchedulingState::Running && takes_part(live));
    let expired = running.map(|live| weights.ends_ms(round, live, slicing));
    let waited = queued(round, slicing).into_iter();
    let waited = waited.map(|waiter| waiter.since_ms.saturating_add(ms(slicing.quantum_ms)));
    expired
        .chain(waited)
        .filter(|&at_ms| at_ms > round.now_ms)
        .min()
}

fn ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
