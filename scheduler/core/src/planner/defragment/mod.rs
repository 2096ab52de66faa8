//! Migrations that a round proposes, independent of the policy. Running jobs move so that a waiting
//! gang fits, or a spread job is gathered on one node or rack. They follow Gandiva (Xiao et al.,
//! OSDI 2018, section 3.3).
//!
//! A migration must save more GPU-seconds than it costs. Its cost is that of the job's measured
//! restarts (`cost`). Its gain is the time that the gang would wait for other jobs' ends, or by
//! which the moved job ends earlier. Only one wave of migrations is in progress at a time. Room is
//! made for a gang only if a trial shows that the policy then starts it.

mod consolidation;

use super::assumed_change::{WAVES, would_start_after};
use super::cost;
use super::fixpoint::RoundFixpoint;
use super::free::{Availability, FreeNode, Holding, HostCapacity, gpus_of};
use super::gang::{self, GangPlacement, GangShape};
use super::hysteresis::{in_cooldown, is_settled};
use super::observations::{done_workers, is_up};
use super::place;
use super::planned_job::PlannedJob;
use super::preemption;
use super::queue_order::QueueOrder;
use super::round_state::RoundState;
use super::scheduling_state::SchedulingState;
use crate::report::MoveReport;
use consolidation::consolidate;
use muster_model::job::Intent;
use std::collections::BTreeSet;

/// Minimum ratio of savings to cost, because estimates have errors.
const REPAID: f64 = 2.0;
/// Maximum number of jobs that move for one gang.
const MOST_MOVED: usize = 8;
/// Maximum number of nodes that are considered for clearing; those that lack the fewest GPUs come
/// first.
const MOST_NODES: usize = 32;
/// Number of jobs at the head of the queue that are considered; one of them gets room.
const IN_FRONT: usize = 4;
/// Maximum number of jobs in a round with migrations: larger rounds run no trials.
const MOST_JOBS: usize = 4_096;
/// Maximum number of ends of running jobs that are considered.
const MOST_ENDS: usize = 256;
/// Upper bound of estimated waiting times, in seconds.
const LONGEST_WAIT_S: f64 = 7.0 * 86_400.0;

/// One job's migration.
struct JobMigration {
    index: usize,
    placed: GangPlacement,
    costs_gpu_s: f64,
    stop_s: f64,
    measured: bool,
}

/// Distance between a job's GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Locality {
    Node,
    Rack,
    Else,
}

/// Migrates jobs if that pays. Returns whether any job migrates. The last pass must have changed
/// nothing.
pub(crate) fn propose_migrations(round: &mut RoundState<'_>, fixpoint: &RoundFixpoint) -> bool {
    let on_the_way = round.jobs.iter().any(|live| live.destination.is_some());
    if on_the_way || round.jobs.len() > MOST_JOBS {
        return false;
    }
    let waiting = waiting(round, fixpoint);
    if waiting.is_empty() {
        return is_settled(round) && consolidate(round, fixpoint);
    }
    let mut waiting = waiting.into_iter().take(IN_FRONT);
    waiting.any(|index| make_room(round, fixpoint, index))
}

/// Queued jobs without promised GPUs, in queue order.
fn waiting(round: &RoundState<'_>, fixpoint: &RoundFixpoint) -> Vec<usize> {
    let mut waiting: Vec<usize> = (0..round.jobs.len())
        .filter(|&index| {
            let live = &round.jobs[index];
            live.scheduling_state == SchedulingState::Queued
                && live.job.intent == Intent::Run
                && live.member.is_some_and(|member| {
                    !fixpoint.promised.contains_key(&member)
                        && !fixpoint.behind.contains_key(&member)
                })
        })
        .collect();
    waiting.sort_by_key(|&index| QueueOrder::of(&round.jobs[index]));
    waiting
}

/// Migrates other jobs to make room for a gang for which enough GPUs are free, but not where it
/// fits.
fn make_room(round: &mut RoundState<'_>, fixpoint: &RoundFixpoint, index: usize) -> bool {
    let live = &round.jobs[index];
    let (shape, tenant) = (live.shape.clone(), live.tenant as usize);
    let needs = shape.min_gpus();
    let quota = round.quota(live);
    let least = (shape.workers.min, shape.ps_shards.min);
    let free: u32 = fixpoint
        .free
        .iter()
        .map(|node| node.gpus(Availability::Now))
        .sum();
    let has_quota = quota.is_none_or(|quota| round.held[tenant].saturating_add(needs) <= quota);
    if free < needs
        || !has_quota
        || place::find(&fixpoint.free, &shape, least, Availability::Later).is_some()
    {
        return false;
    }
    let Some(moves) = clearing(round, fixpoint, index) else {
        return false;
    };
    let stop_s = moves.iter().map(|one| one.stop_s).fold(0.0, f64::max);
    let costs_gpu_s: f64 = moves.iter().map(|one| one.costs_gpu_s).sum();
    let wait_s = wait_s(round, fixpoint, &shape);
    let saves_gpu_s = (wait_s - stop_s) * f64::from(needs);
    if saves_gpu_s < REPAID * costs_gpu_s {
        return false;
    }
    let trial: Vec<(usize, GangPlacement)> = moves
        .iter()
        .map(|one| (one.index, one.placed.clone()))
        .collect();
    let starts = would_start_after(round, index, WAVES, |round| {
        for (index, placed) in trial {
            round.relocate(index, placed, String::new());
        }
        true
    });
    if !starts {
        return false;
    }
    for one in moves {
        let (mover, gang) = (&round.jobs[one.index], &round.jobs[index]);
        let whose = gang.named_to(mover.tenant);
        let why = format!(
            "{whose} finds its {needs} GPUs together then, for which it would wait about {wait_s:.0} s; all moves for it cost \
             {costs_gpu_s:.1} and save {saves_gpu_s:.0} GPU-seconds",
        );
        carry_out(round, one, why, Some(index), (costs_gpu_s, saves_gpu_s));
    }
    true
}

fn carry_out(
    round: &mut RoundState<'_>,
    one: JobMigration,
    why: String,
    gang: Option<usize>,
    (costs_gpu_s, saves_gpu_s): (f64, f64),
) {
    let why = format!("{}: {why}", way(round, one.index, &one.placed));
    let (from, to) = names(round, one.index, &one.placed);
    round.moves.push(MoveReport {
        job: round.jobs[one.index].job.id,
        from,
        to,
        makes_room_for: gang.map(|gang| round.jobs[gang].job.id),
        costs_gpu_s,
        saves_gpu_s,
        measured: one.measured,
    });
    round.relocate(one.index, one.placed, why);
}

/// Text: source, destination and cost of the move.
pub(crate) fn way(round: &RoundState<'_>, index: usize, placed: &GangPlacement) -> String {
    let live = &round.jobs[index];
    let (from, to) = names(round, index, placed);
    let cost = cost::restart(live, round.policy);
    let basis = if cost.measured {
        "as its restarts were measured"
    } else {
        "assumed, as its restarts are not measured yet"
    };
    let seconds = cost.total_s() + cost::at_risk_s(live, round.now_ms);
    let (from, to) = (from.join(", "), to.join(", "));
    if placed.size().0 != live.size.0 {
        return format!("starts again on {to}, which costs it about {seconds:.1} s ({basis})");
    }
    format!("moves from {from} to {to}, which costs it about {seconds:.1} s ({basis})")
}

/// Names of the nodes that a job leaves, and of its destination.
fn names(
    round: &RoundState<'_>,
    index: usize,
    placed: &GangPlacement,
) -> (Vec<String>, Vec<String>) {
    let live = &round.jobs[index];
    let from = node_names(round, &live.holdings);
    let to = node_names(round, &placed.holdings(&live.shape));
    (from, to)
}

fn node_names(round: &RoundState<'_>, holdings: &[Holding]) -> Vec<String> {
    let nodes = holdings.iter().map(|held| held.node as usize);
    let names: BTreeSet<String> = nodes
        .map(|node| match round.snapshot.nodes.get(node) {
            Some(node) => node.name.clone(),
            // A node that exists only in a trial.
            None => String::new(),
        })
        .collect();
    names.into_iter().collect()
}

/// Migrations after which the gang fits, chosen node by node by least cost; `None` if there are
/// none.
fn clearing(
    round: &RoundState<'_>,
    fixpoint: &RoundFixpoint,
    gang: usize,
) -> Option<Vec<JobMigration>> {
    let shape = round.jobs[gang].shape.clone();
    let least = (shape.workers.min, shape.ps_shards.min);
    let priority = round.jobs[gang].priority;
    let mut free = fixpoint.free.clone();
    let mut cleared: BTreeSet<u32> = BTreeSet::new();
    let mut moves: Vec<JobMigration> = Vec::new();
    while place::find(&free, &shape, least, Availability::Later).is_none() {
        let mut best: Option<(f64, u32, Vec<JobMigration>, Vec<FreeNode>)> = None;
        for node in shortest_of(&free, &shape, &cleared) {
            let movers = movers_on(round, node, priority, &moves);
            let found = clear(round, &free, &shape, (node, &cleared), movers);
            if let Some((found, after)) = found {
                let cost: f64 = found.iter().map(|one| one.costs_gpu_s).sum();
                let cheaper = best.as_ref().is_none_or(|(least, ..)| cost < *least);
                if cheaper && moves.len() + found.len() <= MOST_MOVED {
                    best = Some((cost, node, found, after));
                }
            }
        }
        let (_, node, found, after) = best?;
        cleared.insert(node);
        moves.extend(found);
        free = after;
    }
    Some(moves)
}

/// Movable jobs on a node with at most this priority and not among `moves`, by least cost.
fn movers_on(
    round: &RoundState<'_>,
    node: u32,
    priority: i32,
    moves: &[JobMigration],
) -> Vec<usize> {
    let mut movers: Vec<usize> = (0..round.jobs.len())
        .filter(|index| moves.iter().all(|one| one.index != *index))
        .filter(|&index| {
            let live = &round.jobs[index];
            live.priority <= priority && is_movable(round, live) && is_on(live, node)
        })
        .collect();
    movers.sort_by(|&a, &b| {
        let cost = cost_gpu_s(round, &round.jobs[a]);
        let other = cost_gpu_s(round, &round.jobs[b]);
        cost.total_cmp(&other).then(a.cmp(&b))
    });
    movers
}

/// Open nodes that could hold one more worker, in order of the GPUs that they lack for it.
fn shortest_of(free: &[FreeNode], shape: &GangShape, cleared: &BTreeSet<u32>) -> Vec<u32> {
    let per_worker = shape.worker.gpus.max(1);
    let mut nodes: Vec<(u32, u32)> = (0_u32..)
        .zip(free)
        .filter(|(index, node)| node.takes(shape) && !cleared.contains(index))
        .map(|(index, node)| {
            (
                per_worker - node.gpus(Availability::Later) % per_worker,
                index,
            )
        })
        .collect();
    nodes.sort_unstable();
    nodes.truncate(MOST_NODES);
    nodes.into_iter().map(|(_, index)| index).collect()
}

/// Migrates jobs of `movers` off a node, in their order, until one more worker fits there. They go
/// to free resources of nodes that are not being cleared. No job is spread further than before.
fn clear(
    round: &RoundState<'_>,
    free: &[FreeNode],
    shape: &GangShape,
    (node, cleared): (u32, &BTreeSet<u32>),
    movers: Vec<usize>,
) -> Option<(Vec<JobMigration>, Vec<FreeNode>)> {
    let before = place::units(&free[node as usize], shape, Availability::Later);
    let mut free = free.to_vec();
    let mut moves = Vec::new();
    for index in movers {
        let live = &round.jobs[index];
        let beside = without(&free, |at| at == node || cleared.contains(&at));
        let Some(shares) = place::find(&beside, &live.shape, live.size, Availability::Now) else {
            continue;
        };
        let own: Vec<u32> = live.holdings.iter().map(|held| held.node).collect();
        let goes: Vec<u32> = shares.iter().map(|share| share.node).collect();
        if locality(round, &goes) > locality(round, &own) || goes.len() > own.len() {
            continue;
        }
        let placed = gang::take(&mut free, &live.shape, &shares, Availability::Now);
        for held in &live.holdings {
            free[held.node as usize].release_later(held);
        }
        moves.push(proposed(round, index, placed));
        if place::units(&free[node as usize], shape, Availability::Later) > before {
            return Some((moves, free));
        }
    }
    None
}

fn proposed(round: &RoundState<'_>, index: usize, placed: GangPlacement) -> JobMigration {
    let live = &round.jobs[index];
    let cost = cost::restart(live, round.policy);
    JobMigration {
        index,
        placed,
        costs_gpu_s: cost_gpu_s(round, live),
        stop_s: cost.stop_s,
        measured: cost.measured,
    }
}

/// The nodes, with nothing free on the closed ones.
fn without(free: &[FreeNode], closed: impl Fn(u32) -> bool) -> Vec<FreeNode> {
    let nodes = (0_u32..).zip(free).map(|(index, node)| {
        if closed(index) {
            FreeNode {
                open: false,
                now: 0,
                later: 0,
                now_room: HostCapacity::default(),
                later_room: HostCapacity::default(),
                ..*node
            }
        } else {
            *node
        }
    });
    nodes.collect()
}

/// Estimated seconds until the gang fits because other jobs end.
fn wait_s(round: &RoundState<'_>, fixpoint: &RoundFixpoint, shape: &GangShape) -> f64 {
    let mut free = fixpoint.free.clone();
    let least = (shape.workers.min, shape.ps_shards.min);
    let stays = round
        .jobs
        .iter()
        .filter(|live| live.scheduling_state.stays());
    let mut ends: Vec<(f64, &PlannedJob<'_>)> = stays
        .map(|live| (live.estimate.time_s(live.size), live))
        .filter(|(left_s, _)| *left_s < LONGEST_WAIT_S)
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.job.id.cmp(&b.1.job.id)));
    let further = ends
        .get(MOST_ENDS)
        .map_or(LONGEST_WAIT_S, |(left_s, _)| *left_s);
    for (left_s, live) in ends.into_iter().take(MOST_ENDS) {
        for held in &live.holdings {
            free[held.node as usize].release_later(held);
        }
        if place::find(&free, shape, least, Availability::Later).is_some() {
            return left_s;
        }
    }
    further
}

/// Whether a whole running gang is out of its cooldown, not exclusive, and can migrate.
fn is_movable(round: &RoundState<'_>, live: &PlannedJob<'_>) -> bool {
    live.scheduling_state == SchedulingState::Running
        && live.allows_size(live.size)
        && !live.is_resizing
        && live.host.is_none()
        && !live.job.is_cpu_only()
        && !live.job.exclusive
        && !cost::begins_anew(live)
        && preemption::may_make_room(live.job, round.now_ms)
        && preemption::is_within_budget(live, round.policy, round.now_ms)
        && live.job.intent == Intent::Run
        && is_up(live.job)
        // The remaining workers of a command, and the finished ones, would start from the
        // beginning.
        && done_workers(live.job) == 0
        && !in_cooldown(round, live)
}

fn is_on(live: &PlannedJob<'_>, node: u32) -> bool {
    live.holdings
        .iter()
        .any(|held| held.node == node && held.gpus != 0)
}

/// Cost of a migration in GPU-seconds.
fn cost_gpu_s(round: &RoundState<'_>, live: &PlannedJob<'_>) -> f64 {
    let cost = cost::restart(live, round.policy);
    let seconds = cost.total_s() + cost::at_risk_s(live, round.now_ms);
    seconds * f64::from(gpus_of(&live.holdings))
}

fn locality(round: &RoundState<'_>, nodes: &[u32]) -> Locality {
    match nodes {
        [] => Locality::Node,
        [first, others @ ..] if others.iter().all(|node| node == first) => Locality::Node,
        // Nodes without a rack are not known to be far from each other.
        [first, others @ ..]
            if others
                .iter()
                .all(|node| rack_of(round, *node) == rack_of(round, *first)) =>
        {
            Locality::Rack
        }
        _ => Locality::Else,
    }
}

fn rack_of<'w>(round: &'w RoundState<'_>, node: u32) -> Option<&'w str> {
    let node = round.snapshot.nodes.get(node as usize);
    node.and_then(|node| node.rack.as_deref())
}
