//! Before the policy: who has waited long enough gets its GPUs, or keeps what of them is free.

use super::{
    CONSIDERED, Gpus, Waiter, count, go_on, home, needs, queued, quota_has_room, standing_by_gpu,
    standing_still, vacate,
};
use crate::live::free::{FreeNode, When, first_bits};
use crate::live::gang;
use crate::live::pass::requeue;
use crate::live::place;
use crate::live::standing::{Standing, gpus_of};
use crate::live::world::{LiveJob, World};
use crate::policy::Slicing;
use muster_model::job::{Intent, RequeueCause};
use std::cmp::Reverse;

/// Before the policy: gives GPUs back to those who stand still and come before everybody in the queue, and starts those in the queue for
/// whom the policy has had no room for a quantum. What is free of what the first in the line needs is kept for it.
pub(crate) fn before(world: &mut World<'_>) {
    let mut line = standing_still(world);
    // Without turns nobody is suspended for them, and they are in nobody's way here.
    if let Some(slicing) = world.policy.slicing {
        line.extend(queued(world, slicing));
    }
    line.sort_unstable();
    let quantum_ms = world.policy.slicing.map(|slicing| slicing.quantum_ms);
    let quantum_ms = quantum_ms.map_or(i64::MAX, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
    let slicing = world.policy.slicing;
    let crowded = slicing.map_or_else(Gpus::new, |slicing| crowded(world, slicing));
    // Without turns nobody makes room for it.
    let patience_ms = match slicing {
        Some(_) => quantum_ms,
        None => i64::try_from(world.policy.min_run_ms).unwrap_or(i64::MAX),
    };
    let urgent = urgent(world, &line);
    let lasting = held_for_good(world, &line);
    let mut looked = 0;
    for waiter in line {
        let waited_ms = world.now_ms.saturating_sub(waiter.since_ms);
        // Who waits for its tenant's quota is in nobody's way.
        if !quota_has_room(world, waiter.index, needs(world, waiter.index)) {
            continue;
        }
        if looked == CONSIDERED || !(waiter.stands || waited_ms >= quantum_ms) {
            break;
        }
        // The policy would take it away again for them; what they leave it gets after them.
        let gives_way = waiter.stands
            && urgent.is_some_and(|urgent| world.jobs[waiter.index].job.priority < urgent);
        looked += usize::from(!gives_way);
        let served = match waiter.stands {
            true if gives_way => false,
            true => go_on(world, waiter.index, "its turn has come"),
            false => begin(world, waiter.index, &crowded),
        };
        if served && waiter.stands {
            world.enlist(waiter.index);
        } else if waiter.stands
            && waited_ms >= patience_ms
            && is_in(&lasting, &home(world, waiter.index))
        {
            go_elsewhere(world, waiter.index);
        } else if !served && !gives_way && world.reserved.is_none() {
            let wanted = match waiter.stands {
                true => home(world, waiter.index),
                false => gang_of(world, waiter.index, &crowded),
            };
            reserve(world, waiter.index, wanted);
        }
    }
}

/// The highest priority in the queue of a job that would start once everybody of a lower one had made room: who cannot start even then is in
/// nobody's way. Only those above somebody who stands still matter, and of them so many are looked at.
fn urgent(world: &World<'_>, line: &[Waiter]) -> Option<i32> {
    let standing = line.iter().filter(|waiter| waiter.stands);
    let lowest = standing
        .map(|waiter| world.jobs[waiter.index].job.priority)
        .min()?;
    let queued = world.jobs.iter().enumerate().filter(|(_, live)| {
        let waits = live.standing == Standing::Queued && live.job.intent == Intent::Run;
        waits && live.job.priority > lowest
    });
    let mut queued: Vec<usize> = queued.map(|(index, _)| index).collect();
    queued.sort_by_key(|&index| Reverse(world.jobs[index].job.priority));
    let mut room: Option<(i32, Vec<FreeNode>)> = None;
    let could_start = |&index: &usize| {
        let live = &world.jobs[index];
        let priority = live.job.priority;
        if !quota_would_have_room(world, live) {
            return false;
        }
        let (_, free) = match room.take() {
            Some(known) if known.0 == priority => room.insert(known),
            _ => room.insert((priority, once_lower_are_gone(world, priority))),
        };
        let least = (live.shape.workers.min, live.shape.ps_shards.min);
        place::find(free, &live.shape, least, When::Later).is_some()
    };
    let found = queued.into_iter().take(CONSIDERED).find(could_start);
    found.map(|index| world.jobs[index].job.priority)
}

/// Whoever the policy may displace for a job of this priority. Who stands still keeps its memory.
fn makes_room(live: &LiveJob<'_>, priority: i32) -> bool {
    live.standing.stays() && live.job.priority < priority
}

fn once_lower_are_gone(world: &World<'_>, priority: i32) -> Vec<FreeNode> {
    let mut free = world.free.clone();
    let jobs = world.jobs.iter();
    for live in jobs.filter(|live| makes_room(live, priority)) {
        for held in &live.holdings {
            let all = first_bits(world.problem.nodes[held.node as usize].gpus);
            free[held.node as usize].release_later(held, all);
        }
    }
    free
}

fn quota_would_have_room(world: &World<'_>, live: &LiveJob<'_>) -> bool {
    let Some(quota) = world.quota(live) else {
        return true;
    };
    let jobs = world.jobs.iter();
    let leaves =
        |other: &&LiveJob<'_>| other.tenant == live.tenant && makes_room(other, live.job.priority);
    let left: u32 = jobs
        .filter(leaves)
        .map(|other| gpus_of(&other.holdings) + other.shared)
        .sum();
    let held = world.held[live.tenant as usize].saturating_sub(left);
    held.saturating_add(live.shape.min_gpus()) <= quota
}

/// What is held by those who take no turns: who stands still and needs it could only wait for their end.
fn held_for_good(world: &World<'_>, line: &[Waiter]) -> Gpus {
    if !line.iter().any(|waiter| waiter.stands) {
        return Gpus::new();
    }
    let takes_turns = |live: &LiveJob<'_>| {
        world.policy.slicing.is_some() && live.job.suspends && !live.job.exclusive
    };
    let jobs = world.jobs.iter();
    let mut lasting = Gpus::new();
    for live in jobs.filter(|live| live.standing.stays() && !takes_turns(live)) {
        for held in live
            .holdings
            .iter()
            .chain(&live.leaving)
            .chain(&live.joining)
        {
            *lasting.entry(held.node).or_default() |= held.gpus;
        }
    }
    lasting
}

fn is_in(lasting: &Gpus, home: &Gpus) -> bool {
    let mut home = home.iter();
    home.any(|(node, gpus)| lasting.get(node).is_some_and(|held| held & gpus != 0))
}

/// A job that stands still, and could not go on there, starts from its checkpoint where there is room; where there is none it waits for it in
/// the queue, and its owner is told so.
fn go_elsewhere(world: &mut World<'_>, index: usize) {
    let live = &world.jobs[index];
    let (shape, size) = (live.shape, live.size);
    let gpus = count(&home(world, index));
    let why = "its GPUs are held by a job that takes no turns";
    let found = match quota_has_room(world, index, gpus) {
        true => place::find(&world.free, &shape, size, When::Now),
        false => None,
    };
    match found {
        Some(shares) => {
            let placed = gang::take(&mut world.free.clone(), &shape, &shares, When::Now);
            let why = format!("{why}: it goes on elsewhere from its checkpoint");
            world.relocate(index, placed, why);
        }
        None => {
            let why = format!("{why}: it waits in the queue for room elsewhere");
            world.stop(index, requeue(RequeueCause::Resize, why));
            world.enlist(index);
        }
    }
}

/// Starts a job of the queue with its smallest gang, if that fits now.
fn begin(world: &mut World<'_>, index: usize, crowded: &Gpus) -> bool {
    let shape = world.jobs[index].shape;
    let least = (shape.workers.min, shape.ps_shards.min);
    let mut free = world.free.clone();
    leave_out(&mut free, crowded);
    let Some(shares) = place::find(&free, &shape, least, When::Now) else {
        return false;
    };
    let placed = gang::take(&mut free, &shape, &shares, When::Now);
    world.start(index, &placed, "its turn has come".to_owned());
    true
}

/// The GPUs of the smallest gang of a job once those who take turns have made room; none, if it would not fit then either.
fn gang_of(world: &World<'_>, index: usize, crowded: &Gpus) -> Gpus {
    let shape = world.jobs[index].shape;
    let mut free = world.free.clone();
    leave_out(&mut free, crowded);
    let runs = |live: &&LiveJob<'_>| live.standing == Standing::Running;
    for live in world.jobs.iter().filter(runs) {
        if live.job.suspends && !live.job.exclusive {
            vacate(world, &mut free, live);
        }
    }
    let least = (shape.workers.min, shape.ps_shards.min);
    let mut gang = Gpus::new();
    let Some(shares) = place::find(&free, &shape, least, When::Later) else {
        return gang;
    };
    // What is free now is what can be kept for it.
    for share in shares {
        let node = &mut free[share.node as usize];
        let wanted = share.workers * shape.worker.gpus;
        let now = wanted.min(node.now.count_ones());
        *gang.entry(share.node).or_default() |= node.take_gpus(now, When::Now);
    }
    gang
}

/// GPUs on which so many stand still that only one of those may be at work there.
fn crowded(world: &World<'_>, slicing: Slicing) -> Gpus {
    let mut crowded = Gpus::new();
    for ((node, gpu), count) in standing_by_gpu(world) {
        if count > slicing.suspended_per_gpu {
            *crowded.entry(node).or_default() |= 1 << gpu;
        }
    }
    crowded
}

fn leave_out(free: &mut [FreeNode], gpus: &Gpus) {
    for (&node, gpus) in gpus {
        free[node as usize].now &= !gpus;
    }
}

/// Keeps what is free of these for the first in the line whom its tenant's quota lets in: who holds the rest of them is turned out when its slice is over, and nobody
/// else comes in between, so that a gang does not starve behind single workers.
fn reserve(world: &mut World<'_>, index: usize, gpus: Gpus) {
    if gpus.is_empty() {
        return;
    }
    let mut kept = Gpus::new();
    for (node, gpus) in gpus {
        if let Some(free) = world.free.get_mut(node as usize) {
            kept.insert(node, free.now & gpus);
            free.now &= !gpus;
        }
    }
    world.reserved = Some((index, kept));
}
