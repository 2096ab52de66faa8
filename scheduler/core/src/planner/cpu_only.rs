//! Jobs whose workers use no GPUs (CPU-only jobs). Policies divide GPUs, so these jobs are not part
//! of their problem.
//!
//! A CPU-only job starts in the order of the queue where CPU and memory are free. Jobs with GPUs
//! that precede it keep the CPU and memory that they need beside free GPUs.

use super::fixpoint::RoundFixpoint;
use super::free::{Availability, FreeNode, Holding, HostCapacity};
use super::gang::{self, GangShape};
use super::planned_job::PlannedJob;
use super::queue_order::QueueOrder;
use super::range_enforcement::quota_is_short;
use super::round_state::{RoundState, cpu_of_workers};
use super::scheduling_state::SchedulingState;
use super::{place, place_by_cpu};
use muster_model::job::Intent;

/// Stage before the passes: starts CPU-only jobs that precede jobs with GPUs, and those for which
/// there is room beside them.
pub(crate) fn start_before_policy(round: &mut RoundState<'_>) {
    if round.has_cpu_only {
        let free = round.free.clone();
        start(round, free, |_| false);
    }
}

/// Stage after the passes: starts CPU-only jobs on what the policy left. Returns whether any job
/// starts.
pub(crate) fn start_on_the_rest(round: &mut RoundState<'_>, fixpoint: &RoundFixpoint) -> bool {
    if !round.has_cpu_only {
        return false;
    }
    let is_promised = |live: &PlannedJob<'_>| {
        let member = live.member;
        member.is_some_and(|member| fixpoint.promised.contains_key(&member))
    };
    start(round, fixpoint.free.clone(), is_promised)
}

fn start<'a>(
    round: &mut RoundState<'a>,
    mut free: Vec<FreeNode>,
    is_served: impl Fn(&PlannedJob<'a>) -> bool,
) -> bool {
    let mut queue: Vec<usize> = (0..round.jobs.len())
        .filter(|&index| {
            let live = &round.jobs[index];
            live.scheduling_state.waits() && live.job.intent == Intent::Run && !is_served(live)
        })
        .collect();
    if !queue.iter().any(|&index| may_start(&round.jobs[index])) {
        return false;
    }
    queue.sort_by_key(|&index| QueueOrder::of(&round.jobs[index]));
    keep_cpu_of_suspended(round, &mut free);
    let mut kept = KeptForEarlier::of(round);
    // A shape that does not fit fits no later job either.
    let mut too_large: Vec<GangShape> = Vec::new();
    let mut any = false;
    for index in queue {
        let live = &round.jobs[index];
        if !live.job.is_cpu_only() {
            kept.add(round, index, &mut free);
            continue;
        }
        if !may_start(live) || too_large.contains(&live.shape) {
            continue;
        }
        let shape = live.shape.clone();
        let size = (shape.workers.min, shape.ps_shards.min);
        let Some(shares) = place_by_cpu::find(&free, &shape, size, Availability::Now) else {
            too_large.push(shape);
            continue;
        };
        let placed = gang::take(&mut free, &shape, &shares, Availability::Now);
        round.start(
            index,
            &placed,
            "uses no GPUs; CPU and memory are free".into(),
        );
        any = true;
    }
    any
}

fn may_start(live: &PlannedJob<'_>) -> bool {
    let is_queued = live.scheduling_state == SchedulingState::Queued;
    live.job.is_cpu_only() && is_queued && live.destination.is_none()
}

/// CPU and memory of each node that jobs with GPUs keep, because they precede a CPU-only job.
struct KeptForEarlier {
    by_node: Vec<HostCapacity>,
    /// Shapes of these jobs, whether they are overdue, and the number of workers.
    shapes: Vec<(GangShape, bool, u32)>,
}

impl KeptForEarlier {
    fn of(round: &RoundState<'_>) -> Self {
        Self {
            by_node: vec![HostCapacity::default(); round.free.len()],
            shapes: Vec::new(),
        }
    }

    /// Keeps room for the smallest gang of a job and subtracts it from `free`. Jobs that wait only
    /// for their quota keep nothing.
    fn add(&mut self, round: &RoundState<'_>, index: usize, free: &mut [FreeNode]) {
        let live = &round.jobs[index];
        if quota_is_short(round, live) || !place::could_ever_run(round, live) {
            return;
        }
        let since_ms = live.placed_ms.unwrap_or(live.job.submitted_ms);
        let waited_ms = round.now_ms.saturating_sub(since_ms);
        let is_overdue = u64::try_from(waited_ms).unwrap_or(0) >= round.policy.overtake_ms;
        let shape = live.shape.least();
        let known = self
            .shapes
            .iter()
            .position(|(other, overdue, _)| *other == shape && *overdue == is_overdue);
        let at = known.unwrap_or_else(|| {
            self.shapes.push((shape, is_overdue, 0));
            self.shapes.len() - 1
        });
        let (shape, _, workers) = &mut self.shapes[at];
        *workers = workers.saturating_add(shape.workers.min);
        let worker = HostCapacity::worker(&shape.worker);
        for ((node, all), kept) in free.iter_mut().zip(&round.free).zip(&mut self.by_node) {
            let there = units(all, shape, is_overdue).min(*workers);
            let needed = worker.times(there);
            let more = HostCapacity {
                cpu_milli: (needed.cpu_milli - kept.cpu_milli).max(0),
                memory_bytes: (needed.memory_bytes - kept.memory_bytes).max(0),
            };
            kept.give(more);
            node.take_room(more, Availability::Later);
        }
    }
}

/// Workers that the free GPUs of a node can hold. An overdue job keeps room beside all of them. Its
/// CPU then accumulates, however many CPU-only jobs follow.
fn units(node: &FreeNode, shape: &GangShape, is_overdue: bool) -> u32 {
    if !is_overdue {
        return place::units(node, shape, Availability::Later);
    }
    if node.takes(shape) && node.gpus_of_a_task(Availability::Later) >= shape.worker.gpus {
        node.gpus(Availability::Later) / shape.worker.gpus.max(1)
    } else {
        0
    }
}

/// Subtracts the CPU that suspended jobs need for their resumption, beyond that of the jobs on
/// their GPUs.
fn keep_cpu_of_suspended(round: &RoundState<'_>, free: &mut [FreeNode]) {
    let suspended = round
        .jobs
        .iter()
        .filter(|live| live.scheduling_state == SchedulingState::Suspended);
    for live in suspended {
        let home = live.home();
        for (node, needed) in cpu_of_workers(live) {
            let gpus = home.get(&node).copied().unwrap_or(0);
            let is_there = |held: &&Holding| held.node == node && held.gpus & gpus != 0;
            let jobs = round.jobs.iter().flat_map(|other| &other.holdings);
            let released: i64 = jobs.filter(is_there).map(|held| held.room.cpu_milli).sum();
            let Some(free) = free.get_mut(node as usize) else {
                continue;
            };
            let kept = HostCapacity {
                cpu_milli: (needed - released).max(0),
                memory_bytes: 0,
            };
            free.take_room(kept, Availability::Later);
        }
    }
}

impl RoundState<'_> {
    /// Subtracts what a CPU-only job holds from the nodes that the policy sees.
    pub(crate) fn hide_cpu_of(&mut self, index: usize) {
        for held in self.held_without_gpus(index) {
            let node = &mut self.problem.nodes[held.node as usize];
            let (cpu_milli, memory_bytes) = amounts(&held);
            node.cpu_milli = node.cpu_milli.saturating_sub(cpu_milli);
            node.memory_bytes = node.memory_bytes.saturating_sub(memory_bytes);
        }
    }

    /// Shows the policy what a CPU-only job will release.
    pub(crate) fn show_cpu_of(&mut self, index: usize) {
        for held in self.held_without_gpus(index) {
            let node = &mut self.problem.nodes[held.node as usize];
            let (cpu_milli, memory_bytes) = amounts(&held);
            node.cpu_milli = node.cpu_milli.saturating_add(cpu_milli);
            node.memory_bytes = node.memory_bytes.saturating_add(memory_bytes);
        }
    }

    fn held_without_gpus(&self, index: usize) -> Vec<Holding> {
        let live = &self.jobs[index];
        if live.job.is_cpu_only() {
            live.holdings.clone()
        } else {
            Vec::new()
        }
    }
}

fn amounts(held: &Holding) -> (u64, u64) {
    let cpu_milli = u64::try_from(held.room.cpu_milli).unwrap_or(0);
    let memory_bytes = u64::try_from(held.room.memory_bytes).unwrap_or(0);
    (cpu_milli, memory_bytes)
}
